import pytest
import torch

from infoflow.construct.softmax_attention.losses import NAMED
from infoflow.construct.softmax_attention.trajectory import (
    A_PRIORI,
    FROM_RUN,
    DescentProblem,
    exact_descent,
    reach,
    spectrum,
)
from infoflow.errors import InfoFlowError

F64 = torch.float64


def problem(d, n, seed, labels=False, separable=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(d, n, generator=generator, dtype=F64)
    y = torch.randn(d, generator=generator, dtype=F64) @ x
    if not separable:
        y = y + torch.randn(n, generator=generator, dtype=F64)
    return DescentProblem(x, torch.sign(y) if labels else y, torch.randn(d, generator=generator, dtype=F64))


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("separable", [False, True])
def test_descent_never_leaves_the_bound_known_before_it_runs(name, ridge, separable):
    loss = NAMED[name]
    for seed in range(4):
        data = problem(3, 12, seed, labels=name == "logistic", separable=separable)
        _, smoothness = spectrum(loss, data, ridge)
        for eta in (0.1 / smoothness, 2 / smoothness):
            far = reach(loss, data, eta, 200, ridge)
            path = exact_descent(loss, data, eta, 200, ridge)
            s = path @ data.x
            arguments = s - data.y if loss.form == "residual" else s
            assert arguments.abs().max() <= far.arguments
            assert path.norm(dim=1).max() <= far.weights
            assert far.source == A_PRIORI


def test_too_large_a_step_is_read_off_a_run_and_says_so():
    data = problem(2, 8, 0)
    _, smoothness = spectrum(NAMED["squared"], data, 0.0)
    assert reach(NAMED["squared"], data, 2.1 / smoothness, 5, 0.0).source == FROM_RUN
    with pytest.raises(InfoFlowError, match="diverges"):
        reach(NAMED["squared"], data, 1e6, 200, 0.0)


def test_wrong_data():
    x = torch.zeros(2, 3, dtype=F64)
    with pytest.raises(InfoFlowError, match="d rows of n numbers"):
        DescentProblem(x, torch.zeros(2, dtype=F64), torch.zeros(2, dtype=F64))
    with pytest.raises(InfoFlowError, match="finite numbers in y"):
        DescentProblem(x, torch.full((3,), torch.nan, dtype=F64), torch.zeros(2, dtype=F64))
