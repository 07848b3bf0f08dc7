"""Scores of forecasts: by hand where that is possible, and the report of registered cells on cells made up."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from infoflow.cli import cli
from infoflow.errors import InfoFlowError
from infoflow.forecasts import families
from infoflow.forecasts.cells import draw_cells
from infoflow.forecasts.registered import judged
from infoflow.forecasts.registered_report import report, write_report
from infoflow.forecasts.scores import line, others_mean, rank_correlation, score

RECORDED = Path(__file__).parents[2] / "results/forecast"


def test_a_factor_is_the_larger_of_both_ratios() -> None:
    errors = np.log10([1e-3, 1e-2, 1e-1, 1.0])
    forecast = np.log10([2e-3, 5e-3, 1e-1, 1.0])
    found = score(forecast, errors, np.array(["a"] * 4), np.array(["f", "f", "g", "g"]))
    assert found.spearman == 1.0
    assert found.within_target == 1.0
    assert found.median_factor == pytest.approx(2**0.5, abs=0.01)
    assert found.within_3 == 1.0


def test_a_line_never_sees_the_group_it_speaks_of() -> None:
    known, groups = np.arange(9.0), np.repeat(["a", "b", "c"], 3)
    errors = 2 * known + 1
    assert line(known, errors, groups) == pytest.approx(errors)
    spoilt = errors.copy()
    spoilt[groups == "c"] += 100
    assert line(known, spoilt, groups)[groups == "c"] == pytest.approx(errors[groups == "c"])


def test_the_mean_of_others_leaves_the_cell_out() -> None:
    assert others_mean(np.array([1.0, 3.0, 8.0]), np.array(["a", "a", "b"])).tolist() == [3.0, 1.0, 2.0]


def test_rank_correlation_of_a_constant_is_zero() -> None:
    assert rank_correlation(np.ones(4), np.arange(4.0)) == 0.0


def registration(folder: Path, trained: int) -> None:
    """Registered cells with made-up forecasts; those trained ended where they were forecast."""
    cells = sorted(draw_cells("test", families.TEST, 9, 1), key=lambda cell: cell.T)[:24]
    rng = np.random.default_rng(0)
    entries, rows, floors = [], [], []
    for cell in cells:
        nmse = float(10 ** rng.uniform(-4, 0))
        entries.append(cell.to_json() | {"nmse": nmse, "low": nmse / 3, "high": nmse * 3, "floor": 1e-3, "seeds": 4,
                                         "training_flops": 1e12, "forecast_flops": 1e9})  # fmt: skip
        run = {"test": nmse * 1.2, "best": nmse, "steps": 42, "curve": [nmse]}
        rows.append(cell.to_json() | {name: [run] * 4 for name in ("full", "pilot_0.05", "pilot_0.017")})
        floors.append({"name": cell.name, "ends": [nmse, nmse], "ways": [nmse, nmse], "aimed": nmse, "sharpened": nmse,
                       "missed": [], "seconds": 1.0})  # fmt: skip
    payload = {"draw": {"families": "test", "targets": 9, "seed": 1}, "cells": entries}
    (folder / "registered.json").write_text(json.dumps(payload))
    (folder / "registered.jsonl").write_text("\n".join(map(json.dumps, rows[:trained])))
    (folder / "registered_floors.jsonl").write_text("\n".join(map(json.dumps, floors)))
    (folder / "registered_calibration.json").write_text((RECORDED / "registered_calibration.json").read_text())
    few = [{"name": row["name"], "quarter_T": [0.1], "quarter_width": [row["full"][0]["test"]]} for row in rows[:6]]
    few.append({"name": rows[6]["name"], "quarter_width": [rows[6]["full"][0]["test"]]})  # too short at a quarter of T
    (folder / "registered_smaller.jsonl").write_text("\n".join(map(json.dumps, few)))


def test_registered_forecasts_are_scored_beside_their_rivals(tmp_path: Path) -> None:
    registration(tmp_path, trained=20)
    found = write_report(tmp_path, tmp_path / "out")
    assert (found["registered"], found["trained"], found["untrained"]) == (24, 20, 4)
    rows = {row["from"]: row for row in found["rows"]}
    assert rows["theory"]["spearman"] == 1.0
    assert rows["theory"]["median_factor"] == pytest.approx(1.2)
    assert found["coverage"] == 1.0
    assert all(goal["met"] for goal in found["goals"]["theory"].values())
    assert {"theory and pilot", "nearest calibration cell", "verdict (target left out)"} <= set(rows)
    assert rows["... at a quarter of the width (7 cells)"]["spearman"] == 1.0
    assert rows["the same cell at a quarter of T, trained (6 cells)"]["spearman"] == 0.0
    assert rows["a quarter of the run itself, an ensemble of learning curves"]["spearman"] == 1.0
    assert "4 not trained yet" in (tmp_path / "out/table.md").read_text()
    assert (tmp_path / "out/forecast_against_trained.svg").is_file()


def test_before_training_nothing_is_scored(tmp_path: Path) -> None:
    registration(tmp_path, trained=0)
    assert "24 not trained yet" in report(judged(tmp_path))


def test_a_folder_without_a_registration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InfoFlowError, match="registered forecasts"):
        judged(tmp_path)


def test_the_command_scores_another_registration_by_its_name(tmp_path: Path) -> None:
    registration(tmp_path, trained=0)
    for suffix in (".json", ".jsonl", "_floors.jsonl"):
        (tmp_path / f"registered{suffix}").rename(tmp_path / f"second{suffix}")
    words = ["reproduce", "forecast/test", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--json"]
    assert CliRunner().invoke(cli, words).exit_code != 0
    found = CliRunner().invoke(cli, [*words, "--part", "second"])
    assert json.loads(found.output)["untrained"] == 24


def test_cells_forecast_again_are_scored_by_what_the_other_registration_trained(tmp_path: Path) -> None:
    registration(tmp_path, trained=20)
    for suffix in (".json", "_floors.jsonl", "_calibration.json"):
        (tmp_path / f"again{suffix}").write_text((tmp_path / f"registered{suffix}").read_text())
    listed = json.loads((tmp_path / "again.json").read_text())
    for source, trained in (("registered", 20), ("nobody", 0)):
        (tmp_path / "again.json").write_text(json.dumps(listed | {"trained_in": source}))
        assert judged(tmp_path, "again")["trained"] == trained
    later = [entry | {"nmse": 1.0} for entry in listed["cells"]]
    (tmp_path / "again.json").write_text(json.dumps(listed | {"trained_in": "registered", "cells": later}))
    for names, first in ((("registered", "again"), True), (("again", "registered"), False)):
        both = judged(tmp_path, *names)  # each cell once, with the forecast of the registration named first
        assert (both["registered"], both["trained"]) == (24, 20)
        assert (both["rows"][0]["median_factor"] == pytest.approx(1.2)) == first
    for wrong in ("../registered", 3, None):
        (tmp_path / "again.json").write_text(json.dumps(listed | {"trained_in": wrong}))
        with pytest.raises(InfoFlowError, match="trained_in"):
            judged(tmp_path, "again")
