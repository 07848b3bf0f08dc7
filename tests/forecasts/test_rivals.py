"""The rivals of the forecast, on cases whose answer is known."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.forecasts.cells import USUAL, Cell
from infoflow.forecasts.registered import smaller
from infoflow.forecasts.rivals import effective_rank, extrapolated, near
from infoflow.train.run import Run

FOLDER = Path(__file__).parents[2] / "results/forecast"


def test_a_power_law_is_followed_to_the_end_of_the_run() -> None:
    looks = np.arange(1, 16)
    assert extrapolated([0.1 * k**-2.0 for k in looks], 0.25) == pytest.approx(-1 - 2 * np.log10(60), abs=0.02)


def test_a_curve_that_has_stopped_stays_and_one_point_is_taken_as_it_is() -> None:
    assert extrapolated([0.2] * 15, 0.25) == pytest.approx(np.log10(0.2), abs=1e-6)
    assert extrapolated([0.03], 0.05) == pytest.approx(np.log10(0.03))


def test_an_effective_rank_counts_directions() -> None:
    assert effective_rank(torch.eye(5)) == pytest.approx(5.0)
    assert effective_rank(torch.ones(5, 5)) == pytest.approx(1.0, abs=1e-4)
    assert 1.0 < effective_rank(torch.diag(torch.tensor([1.0, 0.1]))) < 2.0


def test_near_counts_every_hidden_layer() -> None:
    """Each hidden layer adds two ranks of at least one: two layers and an MLP encoder have three."""
    F = targets.max_plus_min()
    shallow, deep = (
        near(Run(F, Architecture(heads, (4,) * len(heads), (8,) * len(heads)), 6, 0, USUAL)) for heads in ((2,), (2, 2))
    )
    encoder = USUAL.with_(encoder="mlp", encoder_width=8)
    assert 2.0 <= shallow <= 16.0
    assert deep > shallow + 1.0
    assert near(Run(F, Architecture((2,), (4,), (8,)), 6, 0, encoder)) > shallow + 1.0


def test_a_smaller_cell_is_a_quarter_in_one_size_alone() -> None:
    cell = Cell("c", "f", targets.max_plus_min(), Architecture((2, 2), (4, 4), (32, 32)), 24, USUAL)
    assert smaller(cell, "quarter_T") == (cell.arch, 6)
    arch, T = smaller(cell, "quarter_width")
    assert (arch.widths, arch.heads, T) == ((8, 8), (2, 2), 24)


@pytest.mark.parametrize("name", ["registered", "second", "third", "fourth", "tenth"])
def test_the_calibration_beside_a_registration_is_the_one_it_was_made_with(name: str) -> None:
    listed = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    kept = (FOLDER / f"{name}_calibration.json").read_bytes()
    assert hashlib.sha256(kept).hexdigest() == listed["calibration_sha256"]
