"""The newest families: targets that can be sampled, evaluated in numpy and torch alike, and differentiated."""

import numpy as np
import pytest
import torch

from infoflow.forecasts import families
from infoflow.forecasts.cells import ARCHITECTURES, draw_cells
from infoflow.forecasts.draws import Family
from infoflow.forecasts.newest_families import LATEST, NEWEST

GROUPS = {"newest": NEWEST, "latest": LATEST}


@pytest.mark.parametrize("family", NEWEST + LATEST)
@pytest.mark.parametrize("T", [4, 6, 12, 64])
def test_targets_are_finite_vary_and_have_gradients(family: Family, T: int) -> None:
    for seed in range(5):
        target = family(np.random.default_rng(seed)).target
        X = target.sample(50, T, seed=1)
        y = target(X)
        assert X.shape == (50, T, target.dim)
        assert np.isfinite(y).all()
        assert (y.std(0) > 1e-6).all()
        torch.testing.assert_close(target(torch.from_numpy(X)), torch.from_numpy(y))
        gradient = target.gradient(X)
        assert gradient.shape == (50, T, target.outputs * target.dim)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("group", GROUPS)
def test_cells_can_be_drawn_and_each_target_has_its_spelling(group: str) -> None:
    cells = draw_cells(group, GROUPS[group], 24, 41)
    assert len(cells) == 24 * ARCHITECTURES
    assert {cell.family for cell in cells} == {family.__name__ for family in GROUPS[group]}
    assert len({cell.target.spelling for cell in cells}) == 24


@pytest.mark.parametrize("group", GROUPS)
def test_no_family_is_an_older_one(group: str) -> None:
    older = {family.__name__ for name, known in families.GROUPS.items() if name != group for family in known}
    assert not older & {family.__name__ for family in GROUPS[group]}
