"""Every line lies above its activation on its interval, checked on a dense grid; touching lines touch."""

import numpy as np
import pytest
import torch

from infoflow.nn.transformer import ACTIVATIONS
from infoflow.proofs import lines
from infoflow.proofs.lines import ACTS, intercept, lines_above


def intervals(seed: int, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centre, width = rng.normal(scale=3.0, size=count), 10.0 ** rng.uniform(-10, 1.5, count)
    special = np.array([[-(2**0.5), 2**0.5], [0.0, 0.0], [-5.0, -(2**0.5)], [-40.0, 40.0], [0.0, 3.0], [-1e-12, 1e-12]])
    return np.append(centre - width, special[:, 0]), np.append(centre + width, special[:, 1])


def test_every_activation_of_the_house_has_its_lines() -> None:
    theirs = {**ACTIVATIONS, "softplus": torch.nn.functional.softplus}
    assert set(ACTS) == set(theirs)
    z = np.linspace(-6, 6, 1001)
    for name, act in ACTS.items():
        assert np.allclose(act.value(z), theirs[name](torch.from_numpy(z)).numpy(), atol=1e-14)
        slope = (act.value(z + 1e-6) - act.value(z - 1e-6)) / 2e-6
        assert np.allclose(slope[np.abs(z) > 1e-5], act.slope(z)[np.abs(z) > 1e-5], atol=1e-8)


@pytest.mark.parametrize("name", sorted(ACTS))
@pytest.mark.parametrize("sign", [1, -1])
def test_lines_are_above(name: str, sign: int) -> None:
    low, high = intervals(0)
    slopes, ends = lines_above(name, sign, low, high)
    z = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 801)
    over = slopes[..., None] * z[:, None] + ends[..., None] - sign * ACTS[name].value(z)[:, None]
    assert over.min() >= -1e-12
    rng = np.random.default_rng(1)
    for _ in range(5):  # any slope
        slope = rng.normal(scale=1.0, size=len(low))
        t = intercept(name, sign, slope, low, high)
        assert (slope[:, None] * z + t[:, None] - sign * ACTS[name].value(z)).min() >= -1e-12


@pytest.mark.parametrize("name", sorted(ACTS))
@pytest.mark.parametrize("sign", [1, -1])
def test_on_a_short_interval_the_lines_are_tight(name: str, sign: int) -> None:
    """The lowest line is off by at most sup |act''| width^2 / 8, for relu by half the width."""
    rng = np.random.default_rng(2)
    low = rng.normal(scale=2.0, size=200)
    high = low + 0.1
    slopes, ends = lines_above(name, sign, low, high)
    z = low[:, None] + 0.1 * np.linspace(0, 1, 101)
    lowest = (slopes[..., None] * z[:, None] + ends[..., None]).min(1) - sign * ACTS[name].value(z)
    assert lowest.max() <= (0.05 if name == "relu" else 0.8 * 0.1**2 / 8 * 1.5)


def test_a_wrong_bend_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were gelu taken as concave nowhere, a line would cut through it: the check above sees that."""
    wrong = lines.Act(ACTS["gelu"].value, ACTS["gelu"].slope, (), ())
    monkeypatch.setitem(lines.ACTS, "gelu", wrong)
    with pytest.raises(AssertionError):
        test_lines_are_above("gelu", -1)
