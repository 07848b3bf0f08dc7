import pytest
import torch

from infoflow.construct.softmax_attention.anchors import KINDS, Anchors, check_finite
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


def test_wrong_input():
    with pytest.raises(InfoFlowError, match="a < b"):
        Anchors(1.0, 1.0, 4)
    with pytest.raises(InfoFlowError, match="did you mean 'closed'"):
        Anchors(0.0, 1.0, 4, "close")
    with pytest.raises(InfoFlowError, match="two anchors"):
        Anchors(0.0, 1.0, 1)
    with pytest.raises(InfoFlowError, match=r"nan at position \(2,\)"):
        check_finite("w", torch.tensor([0.0, float("nan")]))
