"""Lies in files of trained networks: what `lies.py` changes in them, and their errors as the stored network makes them.

    trained      one layer, any length: the argument by softmax averages
    deep         two layers, two or three numbers: splitting
    vocabulary   one layer over a table of token vectors, all sequences run
    accuracy     one layer over token numbers, all sequences run

Bounds are asked for without an attack (`seconds=0`), so that nothing but the proof speaks.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import infoflow as iflow
from infoflow.certificates import Certificate
from infoflow.nn import Transformer, TransformerConfig
from infoflow.proofs.reduce import reduce, uncovered
from infoflow.targets.named import parse

Tensors = dict[str, torch.Tensor]
Header = dict[str, Any]
Lie = Callable[[np.random.Generator, Tensors, Header], None]
GROUPS = ("trained", "deep", "vocabulary", "accuracy")
TARGETS = {1: ("sum_of_maxima:D=1,d=1", "kth_largest:k=2", "kth_largest:k=1"),
           2: ("sum_of_maxima:D=1,d=2", "sum_of_maxima:D=2,d=2", "value_at_argmax:d=2")}  # fmt: skip
TABLE = np.array([[0.9, -0.4], [-0.3, 0.8], [0.1, 0.2], [-0.7, -0.6]])
SIZES = 10.0 ** np.array([-300, -200, -160, -120, -60, -20, -8, -3, 0, 1, 3, 8, 20, 60, 120, 160, 200, 300])


def original(group: str, path: Path) -> Path:
    """A network with random weights of ordinary size; what it is said to compute is far off, and its bound says so."""
    one = {"heads": (2,), "head_dims": (2,), "widths": (5,), "activation": "gelu"}
    shape: dict[str, Any] = {
        "trained": {"dim": 2, **one},
        "vocabulary": {"dim": 2, **one},
        "accuracy": {"dim": 4, "outputs": 4, "encoder": "table", **one},
        "deep": {"dim": 1, "heads": (1, 2), "head_dims": (2, 2), "widths": (3, 4), "positions": "additive",
                 "length": 3},
    }[group]  # fmt: skip
    network = Transformer(TransformerConfig(**shape)).double()
    network.initialise(torch.Generator().manual_seed(0), scale=2.0)
    about = {"task": "task:largest_token,symbols=4,length=3"} if group == "accuracy" else {
        "target": TARGETS[shape["dim"]][0], "T": 3}  # fmt: skip
    return network.save(path, **about)


def redrawn(rng: np.random.Generator, tensors: Tensors) -> None:
    """Other weights for every file, tame or saturated."""
    size = float(rng.choice([0.3, 1.0, 3.0]))
    for tensor in tensors.values():
        tensor.copy_(torch.from_numpy(size * rng.normal(size=tuple(tensor.shape))))


def scaled_against(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    """A chain of tensors, up in one place and down in another, the product kept or not."""
    names = [str(name) for name in rng.choice(sorted(tensors), size=int(rng.integers(2, 5)), replace=False)]
    factors = rng.choice(SIZES, size=len(names))
    factors[-1] = np.clip(1 / np.prod(factors[:-1]), 1e-307, 1e307) if rng.integers(3) else factors[-1]
    for name, factor in zip(names, factors.tolist(), strict=True):
        tensors[name] *= factor


def entries_extreme(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    for _ in range(int(rng.integers(1, 4))):
        flat = tensors[str(rng.choice(sorted(tensors)))].view(-1)
        value = torch.tensor(float(rng.choice([0.0, -1.0, *SIZES, *-SIZES])), dtype=torch.float64)
        flat[int(rng.integers(flat.numel()))] = value.to(flat.dtype)


def columns_tiny(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    """One coordinate of the tokens hardly counts: directions with entries beside which others are infinite."""
    for name in {"encoder.maps.0.weight", "table"} & set(tensors):  # none where an earlier lie left the encoder out
        tensors[name][:, int(rng.integers(tensors[name].shape[1]))] *= float(rng.choice(SIZES[:6]))


def heads_tied(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    name = str(rng.choice([n for n in tensors if n.endswith(("query", "key", "value"))]))
    tensors[name][-1] = tensors[name][0] * float(rng.choice([1.0, -1.0, 0.0, 1 + 2.0**-52, 1e8]))


def fields_changed(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    """Fields that make another function of the same tensors."""
    new: dict[str, list[Any]] = {
        "activation": ["tanh", "relu", "sigmoid", "identity"], "readout_activation": ["tanh", "relu", "identity"],
        "encoder_activation": ["relu"], "residual": [False], "mask": ["causal"], "hard": [True], "cls": [False],
        "encoder_skip": [True], "readout_skip": [True], "ffn_skip": [True], "layer_norm": [True],
        "scales": [[0.0], [-1.0], [1e300], [1e-300], [50.0, 0.01]], "ffn_layers": [2], "readout": [False],
        "encoder": ["none", "mlp"], "outputs": [2], "length": [1, 2, 9], "positions": ["none", "augmented"],
    }  # fmt: skip
    name = str(rng.choice(sorted(new)))
    header["config"][name] = new[name][int(rng.integers(len(new[name])))]


def tokens_as_they_are(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    """No encoder (the tensors of one are left out), with a skip around it or not."""
    if "encoder.maps.0.weight" in tensors and header["config"]["heads"] != [1, 2]:
        for name in [n for n in tensors if n.startswith("encoder")]:
            del tensors[name]
        E = tensors["attentions.0.query"].shape[-1]
        header["config"] |= {"encoder": "none", "encoder_skip": bool(rng.integers(2)), "dim": E}
        header["target"] = f"sum_of_maxima:D=1,d={E}"


def asked_otherwise(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    d = header["config"]["dim"]
    if "target" in header and d in TARGETS:
        header["target"] = str(rng.choice(TARGETS[d]))
        header["T"] = int(rng.choice([1, 2, 3, 4, 2**53]))
    elif "task" in header:
        header["task"] = f"task:largest_token,symbols=4,length={int(rng.choice([1, 2, 3, 10**6]))}"


def numbers_narrow(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    for name in tensors:
        tensors[name] = tensors[name].to(torch.float32 if rng.integers(9) else torch.float16)


LIES: tuple[Lie, ...] = (scaled_against, scaled_against, entries_extreme, columns_tiny, heads_tied, fields_changed,
                         tokens_as_they_are, asked_otherwise, numbers_narrow)  # fmt: skip


def certified(group: str, network: Any) -> Certificate:
    return iflow.certify(network, seconds=0.0, vocabulary=TABLE if group == "vocabulary" else None)


def truth(group: str, network: Transformer, header: Header, rng: np.random.Generator) -> float | None:
    """The largest error (the accuracy) that the stored network has when it runs in float64; None where it cannot."""
    network = network.double()
    if group == "accuracy":
        T = int(header["task"].rpartition("=")[2])
        every = np.array(list(product(range(4), repeat=T))) if T <= 4 else None
        if every is None:
            return None
        with torch.no_grad():
            answers = network(torch.from_numpy(every)).numpy()
        top = answers[np.arange(len(every)), every.max(1)]
        return float((np.nan_to_num(answers, nan=np.inf).max(1) <= top).mean())
    target, T = parse(header["target"]), header["T"]
    if T > 8:
        return None
    X = TABLE[np.array(list(product(range(4), repeat=T)))] if group == "vocabulary" else drawn(target, T, rng)
    with torch.no_grad():
        off = np.abs(network(torch.from_numpy(X)).numpy().reshape(len(X), -1) - target(X).reshape(len(X), -1)).max(1)
    off = np.where(target.slack(X) >= 0, off, 0.0) if target.condition else off
    return float(np.nan_to_num(off, nan=np.inf).max())


def drawn(target: Any, T: int, rng: np.random.Generator) -> np.ndarray:
    """Uniform tokens, corners, few different ones, one apart."""
    d, (low, high) = target.dim, target.domain
    unit = rng.uniform(size=(1200, T, d))
    unit[300:600] = rng.integers(0, 2, (300, T, d))
    unit[600:900] = np.take_along_axis(rng.integers(0, 2, (300, 2, d)) * 1.0, rng.integers(0, 2, (300, T, 1)), 1)
    unit[900:, 1:] = unit[900:, :1]
    unit[900:, 0] = rng.integers(0, 2, (300, d))
    return np.asarray(low + (high - low) * unit)


def broken(group: str, bound: float, seen: float) -> bool:
    return seen < bound if group == "accuracy" else seen > bound


def misread(group: str, network: Transformer, header: Header, rng: np.random.Generator) -> bool:
    """Whether the formula that the proof is about differs from the run by more than it allows for."""
    if group not in ("trained", "vocabulary") or uncovered(network) or header["T"] > 8:
        return False
    reduced, X = reduce(network), drawn(parse(header["target"]), header["T"], rng)
    with torch.no_grad():
        ran = network.double()(torch.from_numpy(X)).numpy().reshape(len(X), -1)
    off = np.nan_to_num(np.abs(reduced(reduced.averages(X)) - ran), nan=np.inf).max(0)
    return bool((off > reduced.rounding(float(np.abs(X).max()), header["T"])).any())
