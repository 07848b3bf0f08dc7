"""The three constructions as the command line runs them: keys of the report, words for people, nothing saved on
failure."""

import json
from pathlib import Path

import numpy as np
import pytest

from infoflow.commands.constructions import context_map, equivariant, memorizer
from infoflow.commands.options import encode
from infoflow.compiler.certification import certify
from infoflow.construct.rank_one.equivariant import function_named
from infoflow.errors import InfoFlowError
from infoflow.nn import files


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    vocabulary = rng.normal(size=(12, 3))
    tokens = np.array([rng.choice(12, 4, replace=False) for _ in range(15)])
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"X": vocabulary[tokens].tolist(), "Y": rng.integers(1, 6, size=(15, 4)).tolist()}))
    return path


def test_memorizer(data: Path, tmp_path: Path) -> None:
    report = memorizer.run({"data": str(data), "positions": "corollary"}, tmp_path / "out", 0)
    keys = {"contexts", "wrong", "max_error", "gap", "certificate", "parameters", "seconds", "path"}
    assert keys <= report.keys()
    assert report["wrong"] == 0
    assert set(report["parameters"]) == {"paper", "factored", "dense"}
    assert "60 contexts, 0 wrong" in memorizer.text(json.loads(json.dumps(encode(report))))
    loaded = files.load(report["path"])
    assert loaded.certificate.bound == pytest.approx(report["certificate"]["bound"])
    content = json.loads(data.read_text())
    import torch

    out = loaded(torch.tensor(content["X"], dtype=torch.float64)).detach().numpy()
    assert (np.rint(out) == np.array(content["Y"])[..., None]).all()


def test_memorizer_of_text(tmp_path: Path) -> None:
    lines = [f"w{k % 7} B-{(k * k) % 3}" + ("\n" if k % 5 == 4 else "") for k in range(60)]
    (tmp_path / "train.txt").write_text("\n".join(lines))
    (tmp_path / "valid.txt").write_text("w1 B-0\nother B-1\n")
    report = memorizer.run({"conll": str(tmp_path / "train.txt"), "d": "3"}, tmp_path / "out", 0)
    assert report["accuracy"] == pytest.approx(report["ceilings"]["order_free"])
    assert report["paper"] == 0.9872
    assert 0 <= report["development"] <= 1
    words = memorizer.text(json.loads(json.dumps(encode(report))))
    for part in ("majority tag", "word alone", "order-free", "positions", "0.9872", "development accuracy"):
        assert part in words


@pytest.mark.parametrize("scale", ["auto", "sufficient", "paper"])
def test_context_map(data: Path, tmp_path: Path, scale: str) -> None:
    report = context_map.run({"data": str(data), "scale": scale}, tmp_path, 0)
    assert {"gap", "log10_gap", "method", "bits"} <= report.keys()
    assert f"scale {scale}" in context_map.text(json.loads(json.dumps(encode(report))))
    assert report["float64"] == (scale == "auto")
    loaded = files.load(report["path"])
    assert loaded.certificate.bound == pytest.approx(report["log10_gap"])


def test_equivariant(tmp_path: Path) -> None:
    report = equivariant.run({"function": "wave", "d": "1", "n": "2", "D": "8"}, tmp_path, 0)
    assert report["classes"] == 64
    assert report["l2"] == pytest.approx(0.15, rel=0.1)
    assert "64 classes" in equivariant.text(json.loads(json.dumps(encode(report))))
    files.load(report["path"])


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        (memorizer, {}, "--data FILE.json or --conll FILE"),
        (memorizer, {"data": "missing.json"}, "no file"),
        (memorizer, {"data": "DATA", "mask": "caual"}, "expected mask"),
        (memorizer, {"data": "DATA", "postions": "random"}, "did you mean '--positions'"),
        (memorizer, {"data": "DATA", "head_size": "0"}, "head_size to be an integer of at least 1"),
        (memorizer, {"data": "DATA", "dense": "-1"}, "--dense"),
        (memorizer, {"conll": "missing.txt"}, "no file"),
        (context_map, {"data": "DATA", "scale": "huge"}, "expected scale"),
        (context_map, {"data": "DATA", "merge": "maybe"}, "true or false"),
        (context_map, {"data": "DATA", "head_size": "0"}, "head_size to be an integer of at least 1"),
        (context_map, {"data": "DATA", "draws": "0"}, "--draws"),
        (context_map, {}, "--data"),
        (equivariant, {"function": "waves"}, "did you mean 'wave'"),
        (equivariant, {"D": "x"}, "expected D to be an integer"),
        (equivariant, {"D": "0"}, "at least 1"),
        (equivariant, {"D": "4000"}, "smaller D"),
        (equivariant, {"points": "0"}, "--points"),
    ],
)
def test_wrong_calls_save_nothing(module, options: dict[str, str], words: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    with pytest.raises(InfoFlowError, match=words):
        module.run({key: str(data) if value == "DATA" else value for key, value in options.items()}, out, 0)
    assert not out.exists()


@pytest.mark.parametrize("content", ["[1]", "{", '{"X": []}', '{"X": [[[1]]], "Y": 3}', '{"X": [[[NaN]]], "Y": [[1]]}'])
def test_hostile_files_are_one_sentence(content: str, tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(content)
    with pytest.raises(InfoFlowError):
        memorizer.run({"data": str(path)}, tmp_path / "made", 0)
    assert not (tmp_path / "made").exists()


def test_equivariant_takes_an_expression_and_certifies_its_file(tmp_path):
    report = equivariant.run({"function": "x11*(x12+x13)", "d": "1", "n": "3", "D": "4"}, tmp_path, 0)
    named = function_named("x11*(x12+x13)", 1, 3)
    X = np.random.default_rng(0).random((5, 3, 1))
    assert np.allclose(named(X), X * (X.sum(1, keepdims=True) - X))
    assert report["l2"] < 0.6
    assert certify(files.load(report["path"]), seconds=0).holds


def test_an_expression_is_made_to_commute_with_permutations():
    named = function_named("x11+x12^2; x21*x13", 2, 3)  # looks at the second and third token differently
    X = np.random.default_rng(1).random((4, 3, 2))
    order = [2, 0, 1]
    assert np.allclose(named(X[:, order]), named(X)[:, order])
    with pytest.raises(InfoFlowError, match="2 expressions"):
        function_named("x11*x12", 2, 3)
