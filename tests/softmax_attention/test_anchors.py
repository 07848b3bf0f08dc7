import pytest
import torch

from infoflow.construct.softmax_attention.anchors import KINDS, Anchors, ambiguous_fraction, check_finite
from infoflow.errors import InfoFlowError


@pytest.mark.parametrize("kind", KINDS)
def test_interpolation_error_is_the_supremum(kind):
    anchors = Anchors(-1.0, 2.0, 16, kind)
    z = torch.linspace(-3, 4, 70_001, dtype=torch.float64)
    nearest = (z.clamp(-1, 2)[:, None] - anchors.points()).abs().min(1).values
    assert nearest.max() <= anchors.interpolation_error * (1 + 1e-9)
    assert nearest.max() >= anchors.interpolation_error * 0.999


def test_b_is_no_anchor_of_the_papers_grid():
    assert Anchors(0.0, 1.0, 4).points().max() == 0.75
    assert Anchors(0.0, 1.0, 4, "closed").points().max() == 1.0


def test_the_ambiguous_band_is_measured():
    anchors, eps0 = Anchors(0.0, 1.0, 8), 0.01
    for c in (20.0, 100.0):
        z = torch.linspace(0, 1 - 1 / 8, 200_001, dtype=torch.float64)
        scores = -c * ((z[:, None] - anchors.points()) / anchors.spacing) ** 2
        second = torch.softmax(scores, 1).topk(2, dim=1).values[:, 1]
        assert abs((second > eps0).double().mean() - ambiguous_fraction(c, eps0)) < 1e-3


def test_wrong_input():
    with pytest.raises(InfoFlowError, match="a < b"):
        Anchors(1.0, 1.0, 4)
    with pytest.raises(InfoFlowError, match="did you mean 'closed'"):
        Anchors(0.0, 1.0, 4, "close")
    with pytest.raises(InfoFlowError, match="two anchors"):
        Anchors(0.0, 1.0, 1)
    with pytest.raises(InfoFlowError, match=r"nan at position \(2,\)"):
        check_finite("w", torch.tensor([0.0, float("nan")]))
