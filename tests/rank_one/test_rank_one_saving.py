"""Saved memorisers: bit for bit, certified again from the file, damage found and named."""

from pathlib import Path

import numpy as np
import pytest
import torch

from infoflow.compiler.certification import certify
from infoflow.construct.rank_one.memorize import memorize
from infoflow.construct.rank_one.saving import save_memorizer
from infoflow.errors import InfoFlowError
from infoflow.nn import files


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    vocabulary = rng.normal(size=(15, 3))
    tokens = np.array([rng.choice(15, 4, replace=False) for _ in range(12)])
    return vocabulary[tokens], rng.integers(1, 7, size=(12, 4))


@pytest.mark.parametrize("options", [{}, {"positions": "corollary"}, {"mask": np.ones((4, 4), dtype=bool)}])
def test_loads_bit_for_bit_and_still_memorises(options: dict, tmp_path: Path) -> None:
    X, Y = data()
    made = memorize(X, Y, head_size=2, **options)
    loaded = files.load(save_memorizer(made, tmp_path / "m.safetensors"))
    for name, value in made.memory.network.state_dict().items():
        assert torch.equal(value, loaded.network.state_dict()[name])
    assert loaded.contexts.size == made.contexts.size
    assert loaded.verify() == []
    with torch.no_grad():
        out = loaded(torch.from_numpy(X))
    assert torch.equal(out, made.memory.network(torch.from_numpy(X)))
    assert (np.rint(out.numpy()) == Y[..., None]).all()
    certificate = certify(loaded, seconds=0.5)
    assert certificate.holds
    assert certificate.attacked is not None
    assert certificate.bound == pytest.approx(made.certificate.bound)
    assert certificate.attacked <= certificate.bound < 0.5


def rewrite(path: Path, change: dict[str, torch.Tensor | None]) -> None:
    kind, tensors, header = files.read(path)
    for name, value in change.items():
        tensors.pop(name)
        if value is not None:
            tensors[name] = value
    files.write(path, kind, tensors, header)


def test_a_changed_weight_is_named_and_a_changed_table_breaks_the_bound(tmp_path: Path) -> None:
    made = memorize(*data(), head_size=2)
    path = save_memorizer(made, tmp_path / "m.safetensors")
    _, tensors, _ = files.read(path)
    key = tensors["network.attentions.0.key"].clone()
    key[0, 1, 2] *= 1.5
    rewrite(path, {"network.attentions.0.key": key})
    broken = certify(files.load(path), seconds=0.1)
    assert not broken.holds
    assert "W_K[1, 2]" in broken.reasons[0]
    path = save_memorizer(made, tmp_path / "m.safetensors")
    last = tensors["network.readout.maps.1.weight"].clone()
    last[0, 0] += 1000.0
    rewrite(path, {"network.readout.maps.1.weight": last})
    assert certify(files.load(path), seconds=0.1).bound > 0.5  # still true, and now useless: labels are wrong


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("data.labels", None, "labels of shape"),
        ("data.tokens", None, "data.tokens"),
        ("data.tokens", torch.full((2, 2), 99.0, dtype=torch.float64), "between -1"),
        ("data.tokens", torch.full((2, 2), 0.5, dtype=torch.float64), "integers"),
        ("data.vocabulary", torch.zeros(15, 3, dtype=torch.float64), "other than 0"),
        ("data.vocabulary", torch.zeros(15, 3), "float64"),
        ("data.vocabulary", torch.full((15, 3), 1e200, dtype=torch.float64), "in size"),
        ("network.attentions.0.key", None, "attentions.0.key"),
    ],
)
def test_damaged_files_are_one_sentence(name: str, value: torch.Tensor | None, words: str, tmp_path: Path) -> None:
    path = save_memorizer(memorize(*data()), tmp_path / "m.safetensors")
    rewrite(path, {name: value})
    with pytest.raises(InfoFlowError, match=words) as caught:
        files.load(path)
    assert "\n" not in str(caught.value)
