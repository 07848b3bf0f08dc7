"""forecast: what it says, that its parts are consistent, and that the calibration that ships is the recorded one."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import infoflow as iflow
from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.cli import cli
from infoflow.errors import InfoFlowError
from infoflow.forecasts import families
from infoflow.forecasts.cells import USUAL, draw_cells
from infoflow.forecasts.choose import ALIKE, candidates, ordered, preferred
from infoflow.forecasts.draws import Family
from infoflow.forecasts.explain import explain
from infoflow.forecasts.model import FADING, Calibration, Model, _faded, calibrated, shipped
from infoflow.forecasts.proved import proved_floor
from infoflow.forecasts.quantities import NAMES

ROOT = Path(__file__).parents[2]


def test_too_few_heads_are_forecast_far_worse_than_enough() -> None:
    F = targets.max_plus_min()
    one, two = (iflow.forecast(F, f"heads={h} embed={6 * h} width=64", T=16, recipe=USUAL) for h in (1, 2))
    assert one.nmse > 0.2
    assert two.nmse < 0.01
    assert one.low <= one.nmse <= one.high
    assert "no read-out behind these reads" in str(one)
    assert "none found" in str(two)


def test_the_command_prints_one_json_object_with_the_named_fields(tmp_path: Path) -> None:
    words = ["forecast", "max_plus_min", "heads=2", "embed=4", "-T", "8", "--epochs", "20", "--json"]
    answer = CliRunner().invoke(cli, [*words, "--out", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.output)
    assert {"nmse", "low", "high", "mode", "parts", "seconds"} <= set(found)
    assert set(found["parts"]) == {"floor", "sharpness", "readout", "luck", "proved"}
    assert found["mode"] == "theory"
    assert any("warm_up=0" in word for word in found["outside"])  # the cells have a warm-up: said, not hidden
    assert (tmp_path / "forecast.svg").is_file()


def test_more_steps_are_never_forecast_to_hurt_much() -> None:
    curve = iflow.forecast("max_plus_min", "heads=2 embed=12 width=64", 16, USUAL).curve
    assert all(later[1] < 1.5 * sooner[1] for sooner, later in pairwise(curve))


def test_no_two_groups_share_a_family() -> None:
    names = [family.__name__ for group in families.GROUPS.values() for family in group]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("family", [family for group in families.GROUPS.values() for family in group])
def test_a_family_draws_the_same_target_from_the_same_seed(family: Family) -> None:
    one, two = (family(np.random.default_rng(3)) for _ in range(2))
    X = one.target.sample(5, 8, seed=0)
    assert one.target.spelling == two.target.spelling
    np.testing.assert_array_equal(one.target(X), two.target(X))
    assert np.std(np.asarray(one.target(one.target.sample(50, 8, seed=1)))) > 0


def test_the_same_seed_draws_the_same_cells() -> None:
    first, second = (draw_cells("calibration", families.CALIBRATION, 9, 0) for _ in range(2))
    assert [cell.to_json() for cell in first] == [cell.to_json() for cell in second]


def test_the_calibration_that_ships_is_that_of_the_recorded_cells() -> None:
    """And of no cell of the tenth and eleventh registration: what is to be scored must not teach."""
    folder = ROOT / "results/forecast"
    asked = {cell["name"] for name in ("tenth", "eleventh")
             for cell in json.loads((folder / f"{name}.json").read_text())["cells"]}  # fmt: skip
    recorded = {}
    for name in ("calibration", "registered", "second", "fifth", "sixth", "seventh", "eighth", "ninth", "plan",
                 "plan_second", "plan_third"):  # fmt: skip
        for line in (folder / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line)
            key = (row["target"], row["T"], row["arch"], row["epochs"], row["encoder"]) if "name" in row else (
                row["target"], row["T"], row["arch"], 6, "linear")  # fmt: skip
            recorded.setdefault(key, []).append([r["test"] for r in row["full"]] if "full" in row else row["tests"])
    found = calibrated()
    assert len(found.cells) == sum(map(len, recorded.values()))
    assert not asked & {cell["name"] for cell in found.cells}
    mlp = NAMES.index("mlp encoder")
    for cell in found.cells:
        encoder = "mlp" if cell["quantities"][mlp] else "linear"
        errors = recorded[cell["target"], cell["T"], cell["arch"], cell["epochs"], encoder]
        logs = [np.log10(np.median(tests)) for tests in errors]
        assert min(abs(cell["log10_nmse"] - log) for log in logs) < 1e-4
    assert all(cell["pilot"] for cell in calibrated(pilot=True).cells)


def test_a_family_left_out_is_not_seen() -> None:
    """Misses come from models without the family: one that only itself could tell is missed."""
    rng = np.random.default_rng(0)
    quantities, errors = rng.normal(size=(60, len(NAMES))), np.full(60, -3.0)
    names = ["odd" if i >= 50 else f"t{i // 10}" for i in range(60)]
    errors[50:] = 0.0
    quantities[50:] += 3.0
    quantities[:, NAMES.index("floor")] -= 10.0  # no floor that would be believed
    misses = Calibration(quantities, errors, np.array(names), NAMES).misses
    assert (misses[50:] > 1.0).all()
    assert np.abs(misses[:50]).max() < 1.0


def test_intervals_cover_what_they_say_when_families_differ() -> None:
    """Families with offsets of their own: intervals from misses within families would be too short, these are not."""
    rng = np.random.default_rng(1)
    families = np.repeat(np.arange(10), 30)
    quantities = rng.normal(size=(300, len(NAMES)))
    quantities[:, NAMES.index("floor")] -= 10.0
    errors = quantities[:, 5] - 4.0 + rng.normal(size=10)[families] + 0.1 * rng.normal(size=300)
    found = Calibration(quantities, errors, families.astype(str), NAMES)
    assert 0.72 <= found.coverage() <= 0.9
    assert found.widening() >= 0.9


def test_a_large_floor_is_taken_at_its_word() -> None:
    """Cells that ended far below: the forecast goes to the floor as it grows, and not at all below a hundredth."""
    rng = np.random.default_rng(2)
    quantities, errors = rng.normal(size=(40, len(NAMES))), np.full(40, -4.0)
    quantities[:, NAMES.index("floor")] -= 10.0
    model = Calibration(quantities, errors, np.repeat(["a", "b"], 20), NAMES).model()
    row = np.zeros((4, len(NAMES)))
    row[:, NAMES.index("floor")] = -3.0, -2.0, -0.3, -0.3
    row[3, NAMES.index("one layer")] = row[3, NAMES.index("mlp encoder")] = 1.0
    none, small, large, encoded = model(row)
    assert none == pytest.approx(-4.0, abs=0.2)
    assert small == pytest.approx(-4.0, abs=0.2)
    assert large == pytest.approx(0.7 * -0.3 + 0.3 * -4.0, abs=0.1)
    assert encoded == pytest.approx(large + 0.7 * np.log10(0.8), abs=0.1)


def test_a_pilot_joins_the_theory() -> None:
    short = USUAL.with_(samples=2000, validation=500, epochs=None, steps=400, warm_up=20)
    found = iflow.forecast("max_plus_min", "heads=2 embed=4 width=8", 8, short, pilot=True)
    assert found.mode == "pilot"
    assert found.low <= found.nmse <= found.high
    assert "with a pilot" in str(found)


def test_an_explanation_names_what_is_not_followed_and_what_helps() -> None:
    said = explain("max_plus_min", "heads=1 embed=6 width=64", 16, USUAL)
    assert said.not_followed
    changes = {change.what: change for change in said.changes}
    assert set(changes) == {"one more head", "one more layer", "twice the width", "twice the steps"}
    assert changes["one more head"].nmse < 0.2 * said.forecast.nmse
    assert "what helps most: one more" in str(said)  # a head, or a layer in which there is another
    enough = explain("max_plus_min", "heads=2 embed=12 width=64", 16, USUAL)
    assert not enough.not_followed


def test_a_plan_by_forecast_stays_within_its_budget_and_has_the_heads() -> None:
    words = ["plan", "max_plus_min", "-T", "8", "--forecast", "--parameters", "400", "--max-layers", "1", "--json"]
    answer = CliRunner().invoke(cli, words)
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)["candidates"]  # progress goes to stderr
    assert all(candidate["parameters"] <= 400 for candidate in found)
    assert "heads=1 " not in found[0]["arch"]
    least = min(c["nmse"] for c in found)
    alike = [c for c in found if c["nmse"] <= ALIKE * least]
    assert found[: len(alike)] == alike  # of one layer: by their heads
    heads = [sum(Architecture.of(c["arch"]).heads) for c in alike]
    assert heads == sorted(heads, reverse=True)
    assert [c["nmse"] for c in found[len(alike) :]] == sorted(c["nmse"] for c in found[len(alike) :])
    alone = CliRunner().invoke(cli, ["plan", "max_plus_min", "-T", "8", "--forecast"])
    assert "together" in str(alone.exception or alone.output)


def test_of_forecasts_that_say_the_same_the_one_with_the_most_heads_in_two_layers_is_trained() -> None:
    shapes = [Architecture.of(f"heads={heads}") for heads in ("1,1,1", "1,1", "2,2", "3", "3,3")]
    assert preferred([1.0, 2.4, 2.4, 2.6, 5.0], shapes) == [2, 1, 0, 3, 4]  # as many heads: the fewest layers
    assert preferred([1.0, 2.6, 2.7, 2.8, 2.9], shapes) == [0, 1, 2, 3, 4]
    assert preferred([4.0, 4.0, 4.0, 1.0, 1.0], shapes) == [4, 3, 0, 1, 2]


@pytest.mark.parametrize(
    ("target", "asks"),
    [("position_sum:positions=1+3,d=2", True), ("sum_of_maxima:D=2,d=2", False), ("triangle_center:d=2", False)],
)
def test_candidates_have_positions_where_the_order_of_the_tokens_matters(target: str, asks: bool) -> None:
    assert ordered(targets.parse(target), 6) == asks
    found = list(candidates(targets.parse(target), 6, 2_000, 2))
    assert {shape.positions for shape in found} == {"additive" if asks else "none"}
    assert all(shape.parameters(2, 1, 6) <= 2_000 for shape in found)


def test_functions_of_the_whole_sequence_say_by_their_values_whether_order_matters() -> None:
    assert ordered(targets.function(lambda X: X[..., 0, 0] * X[..., 1:, 0].mean(-1), 1, name="first"), 5)
    assert not ordered(targets.function(lambda X: X.square().sum((-1, -2)), 2, name="squares"), 5)


def test_predict_shows_what_is_possible_and_what_will_happen() -> None:
    words = ["predict", "max_plus_min", "heads=2", "embed=4", "-T", "8", "--forecast", "--json"]
    found = json.loads(CliRunner().invoke(cli, words).output)
    assert found["verdict"] == "constructed"
    assert found["forecast"]["nmse"] < 0.1


def test_a_proved_floor_is_the_variance_of_a_sum_drawn_without_replacement() -> None:
    F = targets.position_sum(positions=(0, 1), d=2)
    found = proved_floor(F, Architecture(1, 4, 8), 5, mlp=True)
    assert found is not None
    X = np.random.default_rng(0).standard_normal((200_000, 5, 2))
    best = 2 / 5 * X.sum(1)  # the mean over all orders of one multiset
    error = ((F(X) - best) ** 2).sum() / ((F(X) - F(X).mean(0)) ** 2).sum()
    assert found.bound == pytest.approx(3 / 5)
    assert error == pytest.approx(found.bound, rel=0.02)
    small = proved_floor(F, Architecture(1, 1, 8, positions="additive"), 5, mlp=False)
    assert small is not None
    assert small.bound == pytest.approx(1 / 2)
    assert proved_floor(F, Architecture(1, 4, 8, positions="additive"), 5, mlp=True) is None
    assert proved_floor(targets.max_plus_min(), Architecture(1, 4, 8), 5, mlp=True) is None


def test_a_notebook_shows_text_and_picture() -> None:
    page = iflow.forecast("max_plus_min", "heads=2 embed=4 width=16", 8, USUAL)._repr_html_()
    assert "forecast  NMSE" in page
    assert "<svg" in page or "data:image" in page


def test_an_architecture_that_fit_cannot_train_is_refused_in_one_sentence() -> None:
    with pytest.raises(iflow.InfoFlowError, match="kv_heads"):
        iflow.forecast("max_plus_min", "heads=2 embed=4 kv_heads=1", 8)


@pytest.mark.parametrize("T", [10**5, 10**9])
def test_states_that_do_not_fit_are_refused_before_they_are_made(T: int) -> None:
    with pytest.raises(iflow.InfoFlowError, match=r"token states .* lower T, d or layers"):
        iflow.forecast("max_plus_min", "heads=2,2,2 embed=4", T)


@pytest.mark.parametrize("lie", [[1.0], ["evil.py:F"] * len(NAMES), [float("nan")] * len(NAMES), None, "word"])
def test_a_calibration_whose_cells_are_not_numbers_is_refused(lie: Any) -> None:
    payload = json.loads((ROOT / "results/forecast/fourth_calibration.json").read_text())
    payload["cells"][3]["quantities"] = lie
    with pytest.raises(InfoFlowError, match="expected the text of a calibration"):
        calibrated(text=json.dumps(payload))


def test_misses_that_are_no_numbers_are_refused() -> None:
    payload = json.loads(shipped())
    for lie in ([], ["x"], [float("nan")], 5, None):
        payload["cells"][0]["misses"] = lie
        with pytest.raises(InfoFlowError, match="expected the text of a calibration"):
            calibrated(text=json.dumps(payload))


def test_a_calibration_without_cells_is_refused() -> None:
    """It would be a mean of nothing."""
    empty = json.dumps({"cells": [], "quantities": list(NAMES), "widening": {"theory": 1.0, "pilot": 1.0}})
    with pytest.raises(InfoFlowError, match="no cells"):
        calibrated(text=empty)


def test_what_nobody_aimed_counts_less_in_a_long_run() -> None:
    """Four tenths as much at 8,400 steps and beyond as at 840; not at all by the rule of earlier versions."""
    names = ("steps", FADING)
    rng = np.random.default_rng(0)
    steps = rng.choice(np.log10([840.0, 8_400.0, 33_600.0]), 200)
    quantities = np.column_stack([steps, rng.uniform(-3, 0, 200)])
    seen = _faded(quantities, names)
    share = np.where(steps < 3, 1.0, 0.4)
    np.testing.assert_allclose(seen[:, 1], share * quantities[:, 1])
    np.testing.assert_array_equal(seen[:, 0], steps)
    np.testing.assert_array_equal(_faded(quantities, ("steps", "untold by directed reads")), quantities)


def test_a_run_is_forecast_to_end_no_higher_than_its_pilot() -> None:
    """But by the rule of earlier registrations, whose calibrations name no weight for it."""
    rng = np.random.default_rng(1)
    quantities = np.column_stack([rng.uniform(-3, 0, 60), np.zeros(60), np.zeros(60), rng.uniform(-3, 0, 60)])
    errors = quantities[:, 3] - 0.1
    errors[::5] = 0.0  # some got lost
    names = ("floor", "one layer", "mlp encoder")
    capped = Model.fit(quantities, errors, names, 2.0)(quantities)
    assert (capped <= quantities[:, 3]).all()
    assert (Model.fit(quantities, errors, names)(quantities) > quantities[:, 3]).any()


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf, "two", [2]])
def test_a_weight_of_the_pilot_that_is_no_positive_number_is_refused(weight: Any) -> None:
    payload = json.loads(shipped()) | {"pilot_weight": weight}
    with pytest.raises(InfoFlowError, match="expected the text of a calibration"):
        calibrated(True, json.dumps(payload))
