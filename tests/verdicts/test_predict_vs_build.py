"""`constructed` exactly when build succeeds, `proved hard` only below the proved width: calls of the whole grammar."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from infoflow import Architecture, targets

ROOT = Path(__file__).parent.parent.parent
SPEC = importlib.util.spec_from_file_location("predict_vs_build", ROOT / "benchmarks" / "predict_vs_build.py")
sweep = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = sweep  # dataclasses look their module up
SPEC.loader.exec_module(sweep)


@pytest.mark.parametrize("part", range(4))
def test_predict_and_build_agree(part, tmp_path):
    draws = sweep.Draws(100 + part, tmp_path)
    found = {str(call): wrong for call in (draws.call() for _ in range(50)) if (wrong := sweep.judge(call)[1])}
    assert found == {}


def test_every_target_of_the_users_file_is_judged(tmp_path):
    draws = sweep.Draws(0, tmp_path)
    for name in sweep.USERS:
        target = sweep.asked_target(f"{draws.file}:{name}")
        heads = (2,) if target.arity == 1 else (2, 2, 2)
        for bound in (1, None):
            call = sweep.Call(target, Architecture(heads, positions="additive"), 4, 0.5, bound)
            assert sweep.judge(call)[1] == [], name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verdict": "open"}, "open with constructed"),
        ({"constructed": None}, "constructed with constructed = None"),
        ({"verdict": "proved hard", "constructed": None}, "proved hard with width None"),
    ],
)
def test_a_false_verdict_is_found(change, words):
    from dataclasses import replace

    said = sweep.predict(targets.max_plus_min(), Architecture(2), 4)
    assert said.verdict == "constructed"
    assert sweep._wrong_words(said) == []
    assert any(words in wrong for wrong in sweep._wrong_words(replace(said, **change)))


def test_the_recorded_sweep_has_no_disagreement():
    recorded = json.loads(sweep.RESULTS.read_text(encoding="utf-8"))
    assert recorded["draws"] >= 2000
    assert recorded["disagreements"] == []
    assert sum(recorded["verdicts"].values()) == recorded["draws"]
    for builder in ("compiler", "exponential_head", "memory_head", "occupancy"):
        assert recorded["verdicts"][f"constructed by {builder}"] > 0
    assert recorded["verdicts"]["proved hard"] > 0
