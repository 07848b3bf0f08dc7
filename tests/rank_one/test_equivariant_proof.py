"""The certificate of Proposition 1's network: it bounds what an attack finds, and a changed weight is named."""

from pathlib import Path

import numpy as np
import pytest
import torch

from infoflow.compiler.certification import certify
from infoflow.construct.rank_one import equivariant as eq
from infoflow.construct.rank_one import equivariant_proof as off
from infoflow.errors import InfoFlowError
from infoflow.nn import files


@pytest.mark.parametrize(
    ("name", "d", "n", "D"), [("wave", 1, 2, 16), ("mean_product", 2, 2, 3), ("wave", 1, 3, 5), ("wave", 1, 1, 4)]
)
def test_the_bound_holds_against_an_attack(name: str, d: int, n: int, D: int, tmp_path: Path) -> None:
    net = eq.approximate_equivariant(eq.FUNCTIONS[name], d, n, D)
    loaded = files.load(off.save_equivariant(net, name, "centre", tmp_path / "e.safetensors"))
    assert all(torch.equal(v, loaded.network.state_dict()[k]) for k, v in net.network.state_dict().items())
    found = certify(loaded, seconds=0.3)
    assert found.holds
    assert found.attacked <= found.bound < 1e-5


@pytest.mark.parametrize(("d", "n", "D"), [(1, 2, 12), (2, 2, 3)])
def test_the_first_block_and_attention_move_ids_by_less_than_claimed(d: int, n: int, D: int) -> None:
    net = eq.approximate_equivariant(eq.FUNCTIONS["wave"], d, n, D)
    X = np.random.default_rng(0).random((300, n, d))
    X = X[(X - np.floor(X * D) / D > 2 * net.delta).all((1, 2))]
    with torch.no_grad():
        t = net.network.represent(torch.from_numpy(X)).numpy() @ net.head.key
    nearest = np.abs(t.reshape(-1, 1) - net.ids[None]).min(1)
    assert nearest.max() <= off.shift_of_ids(net) < np.diff(net.ids).min() / 16


def test_nothing_is_proved_where_rounding_may_leave_a_plateau() -> None:
    found = off.certificate_of(eq.approximate_equivariant(eq.FUNCTIONS["wave"], 1, 2, 16, delta=2.0**-44))
    assert found.bound is None
    assert "plateau" in found.reasons[0]


def test_damage_is_named(tmp_path: Path) -> None:
    net = eq.approximate_equivariant(eq.FUNCTIONS["wave"], 1, 2, 4)
    path = off.save_equivariant(net, "wave", "centre", tmp_path / "e.safetensors")
    kind, tensors, header = files.read(path)
    tensors["readout.maps.1.weight"][0, 3] += 1e-3
    files.write(path, kind, tensors, header)
    broken = certify(files.load(path), seconds=0.1)
    assert not broken.holds
    assert "readout.maps.1.weight[0, 3]" in broken.reasons[0]
    for change in ({"D": 5}, {"function": "noise"}, {"delta": "x"}, {"labels": "top"}):
        files.write(path, kind, tensors, {**header, **change})
        with pytest.raises(InfoFlowError):
            files.load(path)
