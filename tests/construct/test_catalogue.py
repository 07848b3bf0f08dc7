"""One list of constructions: Python and the command line make the same network from the same options."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import infoflow as iflow
from infoflow import cli
from infoflow.construct import makers
from infoflow.construct.catalogue import CONSTRUCTIONS, REQUIRED, Option
from infoflow.nn import files

DATA = {"X": [[[0.1], [0.5]], [[0.9], [0.2]]], "Y": [[1, 0], [0, 1]]}
DESCENT = {"x": [[1.0, 2.0, -1.0]], "y": [2.0, 4.0, -2.0]}
SMALL = {
    "truncated_linear": {"a": -1, "b": 2, "eps": 0.1},
    "grid": {"function": "x11^2", "g": 4},
    "icgd": {"data": DESCENT, "steps": 3},
    "memorizer": {"data": DATA},
    "context_map": {"data": {"X": DATA["X"]}},
    "equivariant": {"D": 4},
    "codec": {"eps": 0.5},
    "memory_head": {"T": 2, "eps": 0.5},
    "exponential_head": {"target": "d_retrieval:D=2,d=1", "T": 4, "eps": 0.5},
}


def command(*words):
    done = CliRunner().invoke(cli.cli, ["build", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_every_construction_has_a_maker_a_report_and_a_case_here():
    assert SMALL.keys() == CONSTRUCTIONS.keys()
    for name in CONSTRUCTIONS:
        assert callable(getattr(makers, name))


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_python_makes_what_the_command_makes(name, tmp_path):
    given = {**SMALL[name]}
    made = iflow.build(name, **given)
    made.save(tmp_path / "python.safetensors")
    if "data" in given:
        (tmp_path / "data.json").write_text(json.dumps(given["data"]))
        given["data"] = tmp_path / "data.json"
    quiet = ["--figures", "no"] if name in ("truncated_linear", "grid", "icgd") else []
    words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    report = json.loads(command(name, *words, *quiet, "--json", "--out", str(tmp_path / "out")))
    ours, theirs = files.read(tmp_path / "python.safetensors"), files.read(report["path"])
    assert ours.kind == theirs.kind
    assert ours.header == theirs.header
    assert ours.tensors.keys() == theirs.tensors.keys()
    assert all(torch.equal(ours.tensors[key], theirs.tensors[key]) for key in ours.tensors)
    assert iflow.certify(made, seconds=0.01).holds


def test_options_in_the_spelling_are_options():
    spelled, named = iflow.build("truncated_linear:a=-1,b=2,p=16"), iflow.build("truncated_linear", a=-1, b=2, p=16)
    assert spelled.certificate == named.certificate
    assert torch.equal(spelled.w, named.w)
    with pytest.raises(iflow.InfoFlowError, match="key=value"):
        iflow.build("truncated_linear:a")


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_help_shows_options_defaults_and_an_example(name):
    text = " ".join(command(name, "--help").split())
    listed = CONSTRUCTIONS[name]
    assert " ".join(listed.example.removeprefix("infoflow ").split()) in text
    for option in (*listed.options, *listed.command_options):
        assert f"--{option.name} " in text
        assert option.help[1:] in text
        if type(option.default) in (int, float, str):
            assert f"[default: {option.default}]" in text


def test_the_examples_of_the_list_run(tmp_path, monkeypatch):
    """As they stand, but for sizes that take long."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.json").write_text(json.dumps(DATA))
    for name, listed in CONSTRUCTIONS.items():
        if name == "icgd":
            (tmp_path / "data.json").write_text(json.dumps(DESCENT))
        words = listed.example.removeprefix("infoflow build ").replace('"', "").split()
        quiet = ["--figures", "no"] if any(o.name == "figures" for o in listed.command_options) else []
        assert command(*words, *quiet)
        (tmp_path / "data.json").write_text(json.dumps(DATA))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: iflow.build("grid"), "expected option --function"),
        (lambda: iflow.build("grid", function="x11", cells=3), "unknown option 'cells'"),
        (lambda: iflow.build("codec", m="two"), "expected m to be an integer"),
        (lambda: iflow.build("codec", m=2.5), "expected m to be an integer"),
        (lambda: iflow.build("codec", seed=-1), "seed"),
        (lambda: iflow.build("min_pair", T=4), "a length T and an error eps"),
        (lambda: iflow.build("min_pair", T=4, eps=0.5, bogus=1), "unknown option 'bogus'"),
        (lambda: iflow.build("memorizer", data=DATA, d=3), "no --d with --data"),
        (lambda: iflow.build("icgd", data={"x": [[1.0]], "y": [1.0], "z": 1}), "got 'z'"),
    ],
)
def test_wrong_calls_are_one_sentence(call, words):
    with pytest.raises(iflow.InfoFlowError, match=words):
        call()


def test_an_option_reads_text_and_values_alike():
    for kind, text, value in (("integer", "3", 3), ("number", "0.5", 0.5), ("yes or no", "no", False)):
        option = Option("x", kind, REQUIRED, "what")
        assert option.read(text) == option.read(value) == value
    assert Option("w", "numbers", [1.0], "what").read(np.array([1.0, 2.0])) == [1.0, 2.0]
    assert Option("x", "integer", None, "what").read(None) is None
