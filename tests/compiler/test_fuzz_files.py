"""A few hundred damaged and malicious files of every kind of network; `benchmarks/fuzz_files.py` tries thousands."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from _fuzz_attack import found
from _fuzz_damage import DAMAGE, damaged
from _fuzz_networks import MAKERS
from fuzz_files import judged

FILES = 11  # of every network


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("networks")


@pytest.mark.parametrize("name", MAKERS)
def test_every_answer_is_a_refusal_or_a_true_verdict(name, folder):
    original = MAKERS[name](folder / f"{name}.safetensors")
    said = judged(original, 0.0, np.random.default_rng(0))
    assert said["answer"].startswith("holds")
    assert not said["failed"], said
    path = folder / "damaged.safetensors"
    for number in range(FILES):
        rng = np.random.default_rng([1, number, *name.encode()])
        damage, data = damaged(rng, original.read_bytes())
        path.write_bytes(data)
        said = judged(path, 0.0, rng)
        assert not said["failed"], (number, damage, said)


def test_the_attack_finds_what_is_broken(folder):
    """A network whose weights are changed in memory, behind the back of its file: every attack must see it."""
    from fuzz_files import own_header
    from infoflow.nn.files import load

    for name in ("pairs", "memorizer", "occupancy", "equivariant"):
        path = MAKERS[name](folder / f"{name}.safetensors")
        network = load(path)
        module = getattr(network, "network", getattr(network, "transformer", network))
        for parameter in module.parameters():
            parameter.data += 0.3
        kind, header = own_header(path)
        worst, _ = found(kind, header, network, 0.0, np.random.default_rng(0))
        assert worst > header["eps"]


def test_a_claim_about_float64_is_tried_in_float64(folder):
    """A trained network stored in float16 is certified as its weights run in float64, so that is what is attacked."""
    from safetensors.torch import load_file, save_file

    original = MAKERS["trained"](folder / "trained.safetensors")
    path = folder / "half.safetensors"
    length = int.from_bytes(original.read_bytes()[:8], "little")
    stated = json.loads(original.read_bytes()[8 : 8 + length])["__metadata__"]
    save_file({name: tensor.half() for name, tensor in load_file(original).items()}, path, stated)
    said = judged(path, 0.0, np.random.default_rng(0))
    assert said["answer"] == "holds"
    assert not said["failed"], said


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_kind_of_damage_changes_the_file(damage, folder):
    data = MAKERS["pairs"](folder / "pairs.safetensors").read_bytes()
    changed = {DAMAGE[damage](np.random.default_rng(seed), data) for seed in range(8)}
    assert len(changed - {data}) >= 2
