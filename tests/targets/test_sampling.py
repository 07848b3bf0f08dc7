import numpy as np
import pytest
import torch

from infoflow.errors import InfoFlowError
from infoflow.targets import NAMED, d_retrieval, pairwise_max, parse, triangle_center


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_seed_fixes_the_sample(name: str, kind: str) -> None:
    F = parse(name)
    X = F.sample(3, 5, seed=1, kind=kind)
    assert tuple(X.shape) == (3, 5, F.dim)
    assert (np.asarray(X) == np.asarray(F.sample(3, 5, seed=1, kind=kind))).all()
    assert (np.asarray(X) != np.asarray(F.sample(3, 5, seed=2, kind=kind))).any()


def test_numbers_do_not_drift_between_versions() -> None:
    """Recorded results depend on these draws."""
    assert pairwise_max(d=1).sample(1, 2, seed=0).ravel().tolist() == pytest.approx([0.12573022, -0.13210486])
    assert d_retrieval(d=1).sample(1, 2, seed=0).ravel().tolist() == pytest.approx([0.63696169, 0.26978671])


def test_generators_go_on_where_they_stand() -> None:
    F = pairwise_max()
    rng = np.random.default_rng(0)
    assert not np.array_equal(F.sample(1, 2, generator=rng), F.sample(1, 2, generator=rng))
    generator = torch.Generator().manual_seed(0)
    first = F.sample(1, 2, generator=generator, kind="torch", dtype=torch.float64)
    assert first.dtype == torch.float64
    assert not torch.equal(first, F.sample(1, 2, generator=generator, kind="torch", dtype=torch.float64))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_laws(kind: str) -> None:
    uniform = np.asarray(d_retrieval(d=2).sample(2000, 5, kind=kind), dtype=float)
    assert 0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() <= 1
    assert uniform.mean() == pytest.approx(0.5, abs=0.01)
    normal = np.asarray(pairwise_max(d=2).sample(2000, 5, kind=kind), dtype=float)
    assert normal.mean() == pytest.approx(0, abs=0.03)
    assert normal.var() == pytest.approx(1, abs=0.04)
    norm = np.linalg.norm(np.asarray(triangle_center().sample(4000, 5, kind=kind), dtype=float), axis=-1)
    # |N(0, 2 I_2)| is Rayleigh: P(< r) = 1 - exp(-r^2 / 4), with the mass outside [0.2, 4] moved to the ends.
    assert norm.min() == pytest.approx(0.2, rel=1e-6)
    assert norm.max() == pytest.approx(4.0, rel=1e-6)
    assert (norm < 0.2001).mean() == pytest.approx(1 - np.exp(-0.01), abs=0.004)
    assert (norm > 3.999).mean() == pytest.approx(np.exp(-4), abs=0.004)
    assert (norm < 2).mean() == pytest.approx(1 - np.exp(-1), abs=0.015)


def test_lengths_and_kinds_are_checked() -> None:
    with pytest.raises(InfoFlowError, match="'numpy' or 'torch'"):
        pairwise_max().sample(1, 2, kind="jax")
    with pytest.raises(InfoFlowError, match="at least 1"):
        pairwise_max().sample(1, 0)
