"""The commands of the framework as a user calls them: JSON, text, files, errors in one sentence with exit code 2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from infoflow.cli import main
from infoflow.targets import parse

EXAMPLE = "[[0,-1],[0.7,0.7],[0,1],[-0.2,-0.9]]"


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    return run


def test_predict_json(call):
    code, out, err = call("predict", "pairwise_max:D=4,d=4", "heads=4,4", "embed=24", "-T", "64", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["version"] == 1
    assert found["verdict"] == "constructed"
    assert found["counting"]["exponent"] == "0"
    assert found["flow"]["exponent"] == "1/3"
    assert out.count("\n") == 1


def test_predict_text_count_and_weight_class(call):
    words = ("predict", "triangle_center", "heads=2,2 embed=24", "--T", "64")
    assert "exponent 1/3" in call(*words)[1]
    assert "exponent 0 " in call(*words, "--count", "lower")[1]
    assert "weights unbounded" in call(*words, "--weight-bound", "none")[1]


def test_predict_temperature(call):
    found = json.loads(call("predict", "max_plus_min", "heads=2 embed=2", "-T", "8", "--temperature", "--json")[1])
    assert len(found["temperature"]["beta"]) == len(found["temperature"]["nmse_at"]) == 3


def test_trace_json_is_appendix_e(call):
    found = json.loads(call("trace", "min_pair:d=2", "heads=1,1 embed=4", "--tokens", EXAMPLE, "--json")[1])
    assert found["sets"][1] == [[1, 3], [2, 4], [1, 3], [3, 4], []]
    assert found["sets"][2][4] == [1, 3]
    assert found["argmax"] == [[[3], [4], [1], [3], [None]], [[None], [None], [None], [None], [1]]]
    assert found["active"] == [1, 3]
    assert found["learns"] is True


def test_trace_draws_and_repeats(call, tmp_path):
    words = ("trace", "pairwise_max:D=2,d=2", "heads=2,2", "embed=8", "-T", "8", "--seed", "5")
    first = call(*words, "--out", "figures")[1]
    assert "figures/flow.svg" in first
    assert (tmp_path / "figures" / "flow.svg").is_file()
    assert call(*words, "--json")[1] == call(*words, "--json")[1]


def test_plan_json(call):
    found = json.loads(call("plan", "pairwise_max:D=4,d=4", "-T", "64", "--json")[1])
    heads = [option["heads"] for option in found["options"]]
    assert [4, 4] in heads
    assert [1, 1, 1, 1, 1] in heads


@pytest.mark.parametrize(("count", "first"), [("lower", 111), ("ordered", 44)])
def test_scale_json(call, tmp_path, count, first):
    words = ("scale", "triangle_center", "heads=2,2", "embed=24", "--T", "8..4096", "--count", count, "--json")
    found = json.loads(call(*words)[1])
    assert found["first_positive_T"] == first
    assert [row["T"] for row in found["rows"]][:3] == [8, 16, 32]
    assert (tmp_path / "out" / "scale" / "exponents.svg").is_file()


WRONG = [
    (["predict", "pairwise_mx", "heads=4,4 embed=24", "-T", "64"], "did you mean 'pairwise_max'"),
    (["predict", "pairwise_max:D=x", "heads=4,4 embed=24", "-T", "64"], "integer"),
    (["predict", "pairwise_max:sed=1", "heads=4,4 embed=24", "-T", "64"], "did you mean 'seed'"),
    (["predict", "pairwise_max:D", "heads=4,4 embed=24", "-T", "64"], "key=value"),
    (["predict", "pairwise_max", "heads=4,4 embed=25", "-T", "64"], "divisible"),
    (["predict", "pairwise_max", "heads=4,4 embd=24", "-T", "64"], "did you mean 'embed'"),
    (["predict", "pairwise_max", "heads=4,4 embed=24"], "-T"),
    (["predict", "closest_pair", "heads=4,4 embed=24", "-T", "1"], "T >= 2"),
    (["predict", "pairwise_max", "heads=4,4 embed=24", "-T", "64", "--eps", "0"], "eps to be a finite number above 0"),
    (["predict", "pairwise_max", "heads=4,4 embed=24", "-T", "64", "--weight-bound", "big"], "number or none"),
    (["predict", "kth_largest", "heads=1 embed=4", "-T", "64", "--count", "lower"], "lower"),
    (["predict", "d_retrieval:D=1,sets=9..12", "heads=1 embed=4", "-T", "8"], "position"),
    (["predict", "mine.py:F", "heads=1 embed=4", "-T", "8"], "mine.py"),
    (["trace", "min_pair:d=3", "heads=1,1 embed=6", "--tokens", EXAMPLE], "shape (..., T, 3), got (4, 2)"),
    (["trace", "min_pair:d=2", "heads=1,1 embed=4", "--tokens", "[[NaN,1],[1,2]]"], "finite"),
    (["trace", "min_pair:d=2", "heads=1,1 embed=4", "--tokens", "[[1e999,1],[1,2]]"], "finite"),
    (["trace", "min_pair:d=2", "heads=1,1 embed=4", "--tokens", "[" * 100000], "JSON"),
    (["trace", "min_pair:d=2", "heads=1,1 embed=4", "--tokens", EXAMPLE, "-T", "4"], "either"),
    (["trace", "min_pair:d=2", "heads=1,1 embed=4", "-T", "1", "--out", "made"], "T >= 2"),
    (["scale", "triangle_center", "heads=2,2 embed=24", "--T", "2..64"], "T >= 3"),
    (["scale", "triangle_center", "heads=2,2 embed=24", "--T", "8..", "--out", "made"], "8..4096"),
    (["plan", "pairwise_max", "-T", "64", "--max-layers", "1"], "max-layers"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[" ".join(w)[:60] for w, _ in WRONG])
def test_bad_input_is_one_sentence_and_writes_nothing(call, tmp_path, words, message):
    code, out, err = call(*words)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.startswith("infoflow: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The tour through a real process, as a newcomer runs it: the folder, what was printed."""
    folder = tmp_path_factory.mktemp("newcomer")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "infoflow", "demo"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_demo_writes_a_self_contained_report(demo):
    folder, printed = demo[0] / "out" / "demo", demo[1]
    page = (folder / "report.html").read_text(encoding="utf-8")
    drawings = sorted(path.name for path in folder.glob("*.svg"))
    assert drawings == ["collision.svg", "errors.svg", "flow-long.svg", "flow.svg", "scale.svg"]
    assert page.count("<svg") >= len(drawings)
    assert "http-equiv" not in page
    assert "<script" not in page
    assert "heads 4,4: constructed" in printed
    assert "heads 3,4: open" in printed
    assert "certify  holds" in printed
    assert "two inputs with one state" in printed
    assert str(Path("out") / "demo" / "report.html") in printed


def test_the_commands_the_demo_recommends_work(demo):
    """Typed into a shell as they are printed, where no `infoflow` is on the path."""
    folder, printed = demo
    lines = printed.partition("Next, try:\n")[2].strip().splitlines()
    assert len(lines) == 3
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    for line in lines:
        done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout


def test_the_demo_refutes_a_network_that_learned():
    from infoflow.commands.demo import TRAINED
    from infoflow.nn.files import load

    network = load(TRAINED)
    target = parse(network.header["target"])
    X = target.sample(4000, network.header["T"], seed=123, kind="torch").to(next(network.parameters()).dtype)
    with torch.no_grad():
        error = ((network(X) - target(X)).square().mean() / target(X).var()).item()
    assert error < 0.02
    assert error == pytest.approx(network.header["nmse"], rel=0.1)
