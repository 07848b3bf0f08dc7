import contextlib
import json
import os
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import infoflow
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig, files

CONFIG = TransformerConfig(dim=2, heads=(2, 1), head_dims=(2, 3), widths=(4, 5), scales=(1.5, 2.0))


def network(stack=()):
    net = Transformer(CONFIG, stack).double()
    net.initialise(torch.Generator().manual_seed(0))
    return net


def metadata(**changes):
    header = {"config": CONFIG.to_json(), "stack": []}
    payload = {"format": files.FORMAT, "kind": "transformer", "header": header, **changes}
    return {files.KEY: json.dumps(payload)}


@pytest.mark.parametrize("stack", [(), (3,)])
def test_what_is_saved_comes_back(tmp_path, stack):
    net = network(stack)
    path = net.save(tmp_path / "net.safetensors", target="pairwise_max:D=1,d=2", T=8, directions=["x1", "x2"])
    again = infoflow.load(path)
    X = torch.randn(*stack, 4, 8, 2, dtype=torch.float64)
    assert torch.equal(net(X), again(X))
    assert again.config == CONFIG
    assert again.header == {"target": "pairwise_max:D=1,d=2", "T": 8, "directions": ["x1", "x2"]}
    assert again.save(tmp_path / "twice.safetensors").read_bytes() == path.read_bytes()


def test_nothing_half_written(tmp_path):
    with pytest.raises(InfoFlowError, match="plain JSON"):
        network().save(tmp_path / "net.safetensors", bound=float("nan"))
    with pytest.raises(InfoFlowError, match="plain JSON"):
        network().save(tmp_path / "net.safetensors", tensor=torch.zeros(2))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [0, 4, 8, 200, -1])
def test_truncated(tmp_path, keep):
    path = network().save(tmp_path / "net.safetensors")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InfoFlowError, match=r"net\.safetensors"):
        infoflow.load(path)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_flipped_byte_is_refused_or_loads(tmp_path_factory, data):
    """A damaged file either is refused with an InfoFlowError or still is a well-formed network (weights changed)."""
    path = network().save(tmp_path_factory.mktemp("flip") / "net.safetensors")
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    where = data.draw(st.integers(0, 8 + length))
    content[where] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    loaded = None
    with contextlib.suppress(InfoFlowError):
        loaded = infoflow.load(path)
    assert loaded is None or isinstance(loaded, Transformer)


def damaged(tmp_path, tensors=None, **changes):
    path = tmp_path / "net.safetensors"
    state = {k: v.detach().clone() for k, v in network().state_dict().items()} if tensors is None else tensors
    save_file(state, path, metadata=metadata(**changes))
    return path


def header(**changes):
    return {"config": {**CONFIG.to_json(), **changes}, "stack": []}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 2}, "format 2"),
        ({"format": "1"}, "format"),
        ({"kind": "transformr"}, "did you mean 'transformer'"),
        ({"kind": 3}, "kind"),
        ({"header": []}, "header"),
        ({"header": {}}, "configuration"),
        ({"header": header(surprise=1)}, "surprise"),
        ({"header": header(dim="2")}, "dim"),
        ({"header": header(dim=True)}, "dim"),
        ({"header": header(heads=[2, 2**40])}, "heads"),  # never allocated
        ({"header": header(widths=[4, 2**30])}, "shape"),
        ({"header": header(heads=[1] * 50, head_dims=[1] * 50, widths=[1] * 50, scales=[])}, "50 layers"),
        ({"header": header(ffn_layers=10**9)}, "layers"),
        ({"header": header(scales=[1.5, float("inf")])}, "no number of JSON"),
        ({"header": header(activation="swish")}, "activation"),
        ({"header": {**header(), "stack": [-1]}}, "model axes"),
        ({"header": {**header(), "stack": [2]}}, "shape"),
    ],
)
def test_hostile_headers(tmp_path, changes, reason):
    with pytest.raises(InfoFlowError, match=reason):
        infoflow.load(damaged(tmp_path, **changes))


def test_hostile_tensors(tmp_path):
    state = {k: v.detach().clone() for k, v in network().state_dict().items()}
    name = "cls_token"
    cases = {
        "incomplete": {k: v for k, v in state.items() if k != name},
        "more than": {**state, "extra": torch.zeros(1)},
        "shape": {**state, name: torch.zeros(5, dtype=torch.float64)},
        "floating": {**state, name: torch.zeros(4, dtype=torch.int64)},
        "finite": {**state, name: torch.full((4,), torch.nan, dtype=torch.float64)},
        "dtype": {**state, name: torch.zeros(4)},
    }
    for reason, tensors in cases.items():
        with pytest.raises(InfoFlowError, match=reason):
            infoflow.load(damaged(tmp_path, tensors))


def test_not_ours(tmp_path):
    path = tmp_path / "other.safetensors"
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(InfoFlowError, match="saved by infoflow"):
        infoflow.load(path)
    with pytest.raises(InfoFlowError, match="no file"):
        infoflow.load(tmp_path / "absent.safetensors")
    with pytest.raises(InfoFlowError, match="no plain file"):
        infoflow.load(tmp_path)
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(InfoFlowError, match="no plain file"):
        infoflow.load(tmp_path / "pipe.safetensors")
    save_file({"x": torch.zeros(1)}, path, metadata={files.KEY: "[" * 100_000})
    with pytest.raises(InfoFlowError, match="does not parse"):
        infoflow.load(path)


def test_a_file_of_a_terabyte_and_one_of_too_many_tensors(tmp_path):
    """The first is a hole: nothing of it is on the disk, but its tensor would be in memory."""
    entry = {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}
    head = json.dumps({"x": entry, "__metadata__": metadata()}).encode()
    with (tmp_path / "hole.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(8 + len(head) + 2**40)
    with pytest.raises(InfoFlowError, match="to fit in"):
        infoflow.load(tmp_path / "hole.safetensors")
    many = {f"t{n}": torch.zeros(0) for n in range(files.MOST_TENSORS + 1)}
    save_file(many, tmp_path / "many.safetensors", metadata=metadata())
    with pytest.raises(InfoFlowError, match="at most 20000 tensors"):
        infoflow.load(tmp_path / "many.safetensors")
