"""The three constructions as the command line runs them, saved, loaded and certified again."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from infoflow.commands.constructions import grid, icgd, truncated_linear
from infoflow.commands.options import encode
from infoflow.compiler.certification import certify
from infoflow.construct.catalogue import Option
from infoflow.errors import InfoFlowError
from infoflow.nn.files import load, read, write

QUIET = {"figures": "no"}


def data_file(tmp_path, **changes):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 12, generator=generator, dtype=torch.float64)
    payload = {"x": x.tolist(), "y": (x[0] - 2 * x[1]).tolist(), "x_u": [0.5, 0.25]} | changes
    path = tmp_path / "data.json"
    path.write_text(json.dumps(payload))
    return str(path)


def recertified(report):
    return certify(load(report["path"]), None, None, seconds=0.5, seed=0)


def test_truncated_linear(tmp_path):
    report = truncated_linear.run({"a": "-1", "b": "2", "n": "4", "eps": "0.01", **QUIET}, tmp_path, 0)
    assert report["p"] == 600
    assert report["heads"] == 1
    assert report["attacked"] <= report["bound"] <= 0.0100001
    assert {"p", "beta", "heads", "bound", "attacked"} <= json.loads(json.dumps(encode(report))).keys()
    assert "600 anchors" in truncated_linear.text(report)
    assert recertified(report).bound == report["bound"]


def test_truncated_linear_with_heads(tmp_path):
    report = truncated_linear.run({"n": "6", "H": "4", "w": "1,-2", **QUIET}, tmp_path, 0)
    assert (report["p"], report["heads"]) == (16, 4)
    assert report["holds"]
    assert recertified(report).holds
    with pytest.raises(InfoFlowError, match="--H alone"):
        truncated_linear.run({"H": "4", "eps": "0.1"}, tmp_path, 0)
    with pytest.raises(InfoFlowError, match="either eps or p"):
        truncated_linear.run({"p": "8", "eps": "0.1"}, tmp_path, 0)


@pytest.mark.parametrize("variant", ["two-layer", "one-layer-softmax", "quadratic"])
def test_grid(tmp_path, variant):
    options = {"function": "sin(2*x11)+x11*x12", "d": "1", "n": "2", "g": "8", "variant": variant, **QUIET}
    report = grid.run(options, tmp_path, 0)
    assert report["heads"] == {
        "built": {"two-layer": 17, "one-layer-softmax": 16, "quadratic": 0}[variant],
        "factored": 17,
        "paper": 129,
    }
    assert report["l2" if variant != "quadratic" else "sup"] <= report["bound"]
    assert "proved bound" in grid.text(report)
    assert recertified(report).holds


def test_a_grid_without_a_modulus_says_so(tmp_path):
    report = grid.run({"function": "1/x11", "g": "4", "variant": "quadratic", **QUIET}, tmp_path, 0)
    assert report["bound"] is None
    assert "no modulus" in grid.text(report)


@pytest.mark.parametrize("loss", ["squared", "logcosh", "huber"])
def test_descent(tmp_path, loss):
    options = {"loss": loss, "data": data_file(tmp_path), "eta": "0.5", "steps": "20", "ridge": "0.1", **QUIET}
    report = icgd.run(options, tmp_path, 0)
    assert {"w", "w_exact", "deviation", "bound", "heads"} <= report.keys()
    assert report["deviation"] <= report["bound"]
    assert report["heads"] == 20 * 5
    assert abs(report["prediction"] - float(report["w"] @ torch.tensor([0.5, 0.25]).double())) < 1e-6
    assert "deviation" in icgd.text(report)
    assert recertified(report).holds


def test_a_file_with_other_numbers_does_not_hold(tmp_path):
    options = {"loss": "squared", "data": data_file(tmp_path), "steps": "3", **QUIET}
    path = icgd.run(options, tmp_path, 0)["path"]
    kind, tensors, header = read(path)
    tensors["table1"][5] += 1
    changed = write(tmp_path / "changed.safetensors", kind, tensors, header)
    certificate = certify(load(changed), None, None, seconds=0.5, seed=0)
    assert not certificate.holds
    assert "table1[6]" in certificate.reasons[0]


@pytest.mark.parametrize("change", [{"d": "two"}, {"loss": "hinge"}, {"p": 256.5}, {"eta": None}])
def test_damaged_headers_are_refused(tmp_path, change):
    path = icgd.run({"data": data_file(tmp_path), "steps": "3", **QUIET}, tmp_path, 0)["path"]
    kind, tensors, header = read(path)
    bad = write(tmp_path / "bad.safetensors", kind, tensors, header | change)
    with pytest.raises(InfoFlowError):
        load(bad)


@pytest.mark.parametrize("change", [{"d": 10**6, "n": 10**6}, {"g": 10**9}, {"p": 10**14}, {"function": "("}])
def test_greedy_headers_are_refused(tmp_path, change):
    path = grid.run({"function": "x11", "g": "4", **QUIET}, tmp_path, 0)["path"]
    kind, tensors, header = read(path)
    with pytest.raises(InfoFlowError):
        load(write(tmp_path / "bad.safetensors", kind, tensors, header | change))
    path = truncated_linear.run({"n": "6", "H": "4", **QUIET}, tmp_path, 0)["path"]
    kind, tensors, header = read(path)
    with pytest.raises(InfoFlowError):
        load(write(tmp_path / "bad.safetensors", kind, tensors, header | {"H": 10**12}))


def test_many_tokens_and_anchors_are_saved_without_their_product(tmp_path):
    report = truncated_linear.run({"n": "100000", "eps": "0.0001", **QUIET}, tmp_path, 0)
    assert report["p"] == 100_001
    assert recertified(report).holds


def test_missing_tensors_are_refused(tmp_path):
    path = grid.run({"function": "x11", "g": "4", **QUIET}, tmp_path, 0)["path"]
    kind, _, header = read(path)
    with pytest.raises(InfoFlowError, match="table"):
        load(write(tmp_path / "bad.safetensors", kind, {}, header))
    plain = tmp_path / "plain.safetensors"
    save_file(load_file(path), plain)
    with pytest.raises(InfoFlowError, match="saved by infoflow"):
        load(plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [1.0]}, "12 numbers in y"),
        ({"x": [[1.0, 2.0], [1.0]]}, "equal length"),
        ({"x": []}, "d rows"),
        ({"x": [["a"] * 12] * 2}, "row 1 of x"),
        ({"w0": [1.0]}, "2 numbers in w0"),
        ({"weights": [1.0]}, "got 'weights'"),
        ({"y": [1e999] * 12}, "no number of JSON"),
        ({"y": [True] * 12}, "12 numbers in y"),
    ],
)
def test_wrong_data(tmp_path, changes, message):
    with pytest.raises(InfoFlowError, match=message):
        icgd.run({"data": data_file(tmp_path, **changes), **QUIET}, tmp_path, 0)
    assert not (tmp_path / "icgd.safetensors").exists()


def test_other_wrong_calls(tmp_path):
    (tmp_path / "no.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    for name, message in (("no.json", "does not parse"), ("list.json", "an object"), ("none.json", "found no file")):
        with pytest.raises(InfoFlowError, match=message):
            icgd.run({"data": str(tmp_path / name)}, tmp_path, 0)
    with pytest.raises(InfoFlowError, match="expected option --function"):
        grid.run({}, tmp_path, 0)
    with pytest.raises(InfoFlowError, match="did you mean '--eps'"):
        truncated_linear.run({"epss": "1"}, tmp_path, 0)
    with pytest.raises(InfoFlowError, match="yes or no"):
        Option("lazy", "yes or no", False, "").read("perhaps")
    assert Option("w", "numbers", [1.0], "").read("1,-2.5") == [1.0, -2.5]


def test_figures_are_written(tmp_path):
    report = truncated_linear.run({"a": "0", "b": "1", "n": "4", "p": "16"}, tmp_path / "one", 0)
    report["figures"] += grid.run({"function": "x11^2", "g": "4"}, tmp_path / "two", 0)["figures"]
    report["figures"] += icgd.run({"data": data_file(tmp_path), "steps": "5"}, tmp_path / "three", 0)["figures"]
    names = {path.stem for path in report["figures"]}
    assert names == {"rates", "selection", "heat_map", "grid", "icgd"}
    assert all(path.stat().st_size > 1000 for path in report["figures"])
