"""Scores of answers to planted networks, and the command that makes and scores them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from infoflow.cli import cli
from infoflow.errors import InfoFlowError
from infoflow.probes.benchmark import open_benchmark, score
from infoflow.probes.benchmark.truth import Truth

COUNT = 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted")
    done = CliRunner().invoke(
        cli, ["planted", str(path), "--count", str(COUNT), "--seed", "3", "--salt", "x", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["hidden"] == [4]
    return path


def layered(truth: Truth, value) -> list[list]:
    layers = 1 + max(l for l, _ in truth.heads)
    return [
        [value(truth.heads[l, i], (l, i)) for i in range(sum(k == l for k, _ in truth.heads))] for l in range(layers)
    ]


def perfect(truth: Truth) -> dict:
    plain = truth.to_json()
    return {
        "modes": layered(truth, lambda head, node: head.labels[0] if head.labels else "max"),
        "matter": layered(truth, lambda head, node: float(node in truth.matter)),
        "edges": [[a, b, 1.0] for a, b in plain["edges"]],
        "directions": [(-2 * d.vector).tolist() for d in truth.directions],
        "sets": plain.get("sets", []),
        "copies": layered(truth, lambda head, node: float(head.says == "copying" and head.role == "computes")),
    }


def test_the_truth_scores_one_and_always_max_does_not(folder: Path) -> None:
    known = {n.number: n.truth() for n in open_benchmark(folder) if not n.hidden}
    best = score(folder, {k: perfect(t) for k, t in known.items()}, {"matter": 0.5, "edges": 0.5, "copies": 0.5})
    for task, levels in best.items():
        for row in levels.values():
            for name in ("macro_f1", "auroc", "f1", "mean"):
                if name in row and row[name]["value"] is not None:
                    assert row[name]["value"] == pytest.approx(1.0), (task, name)
    lazy = score(folder, {k: {"modes": layered(t, lambda h, n: "max")} for k, t in known.items()})
    assert lazy["modes"]["keeps the function"]["macro_f1"]["value"] < 0.3


def test_a_method_is_scored_in_ten_lines(folder: Path) -> None:
    from infoflow.probes import head_modes, record

    answers = {}
    for network in open_benchmark(folder):
        found = head_modes(record(network.model, network.batch))
        layers = range(network.model.config.layers)
        answers[network.number] = {"modes": [[m.label for m in found if m.layer == l] for l in layers]}
    scores = score(folder, answers)["modes"]
    found = scores["keeps the function"]["macro_f1"]
    assert found["value"] > 0.6
    assert [type(number) for number in (found["value"], *found["interval"])] == [float] * 3  # they print as numbers


def test_the_salt_scores_the_hidden_part(folder: Path, tmp_path: Path) -> None:
    layers = {n.number: n.model.config.heads for n in open_benchmark(folder)}
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps({k: {"modes": [["max"] * h for h in heads]} for k, heads in layers.items()}))

    def networks(*more: str) -> int:
        done = CliRunner().invoke(cli, ["planted", str(folder), "--score", str(answers), "--json", *more])
        assert done.exit_code == 0, done.output
        table = json.loads(done.stdout)["modes"]
        return sum(row["networks"] for level, row in table.items() if level.startswith("disguise"))

    assert networks() == COUNT - 1
    assert networks("--salt", "x") == COUNT
    wrong = CliRunner().invoke(cli, ["planted", str(folder), "--score", str(answers), "--salt", "y"])
    assert wrong.exit_code != 0
    with pytest.raises(InfoFlowError, match="hidden"):
        next(n for n in open_benchmark(folder) if n.hidden).truth()
    assert "modes" in CliRunner().invoke(cli, ["planted", str(folder), "--score", str(answers)]).output


@pytest.mark.parametrize(
    "answer", [{"modes": [["max"]]}, {"edges": [[1, 2]]}, {"matter": "none"}, {"matter": [[float("nan")] * 9] * 4}]
)
def test_wrong_answers_are_one_sentence(folder: Path, answer: dict) -> None:
    with pytest.raises(InfoFlowError, match="expected an answer"):
        score(folder, dict.fromkeys(range(4), answer))
