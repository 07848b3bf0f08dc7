"""The occupancy network: any Lipschitz score, also one that decomposes over no tree, in low dimension and for all T.

Cells with centres c cover the box; one head per cell reads the distance of the nearest token, m(c) = min_t |x_t - c|_1,
and the read-out takes, over k-tuples of cells,

    F^ = min [ score(c_1..c_k) + sum_v L_v m(c_v) ],     F <= F^ <= F + sum_v L_v (h_1 + h_2 + W((T-1)/e)/beta),

L_v the Lipschitz constants in the Euclidean norm, h_1 and h_2 the cells' radii in the two norms: the nearest tokens
prove the left side, the cells of the best tuple the right one. The middle is subtracted; maxima are minima of the
negated score.

What is a network here: the encoder (ReLU, exact distances) and the attention layer are the one Transformer. The
read-out is a minimum of affine functions of the CLS state, i.e. a ReLU network of depth 1 + ceil(log2 tuples) with two
units per comparison; its functions are stored and the minimum is evaluated directly instead of unrolled into layers.
Its weights are Lipschitz constants, so the weight bound of Theorem 4 does not apply to it.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import chain, combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from infoflow.certificates import Certificate, asked_of, error_claim
from infoflow.certificates.attack import steeper
from infoflow.certificates.certificate import expect_config, expect_float64, is_finite
from infoflow.compiler.compile import linear_maps
from infoflow.compiler.occupancy_plan import Grid, OccupancyPlan, count, fits, slopes_of
from infoflow.compiler.offer import Question, Refusal
from infoflow.errors import InfoFlowError
from infoflow.flow.normal_form import Refused
from infoflow.nn import Transformer, TransformerConfig, files
from infoflow.targets.named import parse
from infoflow.targets.score import CallableScore, NormOfSum
from infoflow.targets.target import Target
from infoflow.targets.terms import Extremum

CHUNK = 4_000_000  # numbers of the read-out evaluated at once


class OccupancyNetwork(nn.Module):
    """X (B, T, d) -> (B,) or (B, outputs). `tables[i]` are the scores of term i at its tuples of cells."""

    def __init__(self, transformer: Transformer, target: Target, grid: Grid, header: dict[str, Any]) -> None:
        super().__init__()
        self.transformer, self.target, self.grid, self.header = transformer, target, grid, header
        self.indices = [torch.from_numpy(tuples(term, len(grid.centres))) for term in target.terms]
        for i, (term, index) in enumerate(zip(target.terms, self.indices, strict=True)):
            assert isinstance(term, Extremum)
            self.register_buffer(f"table{i}", _scores(term, grid.centres, index.numpy()))
        self.slopes = [torch.tensor(slopes_of(term, header["domain"])) for term in target.terms]

    @property
    def certificate(self) -> Certificate:
        """What its file states."""
        return Certificate.from_json(self.header["certificate"])

    def forward(self, X: Tensor) -> Tensor:
        """Distances of the cells to the tokens, then the least score over tuples of cells."""
        distances = self.transformer(X)  # (B, cells)
        distances = distances - torch.nn.functional.one_hot(torch.tensor(0), distances.shape[-1]).to(distances)
        values = [self._value(i, distances) for i in range(len(self.target.terms))]
        result: Tensor = self.target.outer(torch.stack(values, -1))
        return result[..., 0] if self.target.outputs == 1 else result

    def _value(self, i: int, distances: Tensor) -> Tensor:
        """min over tuples of table + sum_v L_v m(c_v), less the middle of the one-sided error."""
        term, index, table = self.target.terms[i], self.indices[i], self.get_buffer(f"table{i}")
        best: Tensor | None = None
        step = max(1, CHUNK // max(len(distances), 1))
        for start in range(0, len(index), step):
            part = index[start : start + step].to(distances.device)
            total = table[start : start + step].to(distances)[None].expand(len(distances), -1)
            for v, slope in enumerate(self.slopes[i].tolist()):
                total = total + slope * distances[:, part[:, v]]
            low = total.amin(-1)
            best = low if best is None else torch.minimum(best, low)
        assert best is not None
        assert isinstance(term, Extremum)
        centred: Tensor = best - self.header["middle"][i]
        return centred if term.kind == "min" else -centred

    def attack(self, seed: int = 0, seconds: float = 10.0) -> float:
        """The largest error found on sequences of at most 24 tokens."""
        from infoflow.certificates.attack import Region, attack

        low, high = (np.array(side) for side in self.header["domain"])
        T = min(self.header["T"], 24)  # the bound speaks of every shorter length too, and the target is cubic in T
        return attack(self, self.target, Region(T, low, high), seconds, seed, batch=24).error

    def check(self, certificate: Certificate, seed: int = 0, seconds: float = 10.0) -> Certificate:
        """The attack on Lipschitz constants that an author states, one token moved at a time."""
        rng = np.random.default_rng(seed)
        low, high = (np.array(side) for side in self.header["domain"])
        for term in self.target.terms:
            if isinstance(term, Extremum) and isinstance(term.score, CallableScore):
                assert term.score.lipschitz is not None
                others = rng.uniform(low, high, (256, term.arity, term.dim))
                for v in range(term.arity):
                    found = steeper(
                        partial(_moved, term.score, others, v),
                        others[:, v],
                        term.score.lipschitz,
                        rng,
                        (low, high),
                        euclidean=True,
                        rounds=1,
                    )
                    if found is not None:
                        return certificate.against(f"the Lipschitz constant of a score is wrong: {found}")
        return certificate

    def verify(self) -> list[str]:
        """Stored tensors against a fresh construction: tensor, index and both numbers of every difference."""
        fresh = build_occupancy(self.target, self.header["T"], self.header["eps"], None, self.header["domain"], None)
        reasons = []
        for name, tensor in self.state_dict().items():
            wanted = fresh.state_dict().get(name)
            if wanted is None or wanted.shape != tensor.shape:
                return [f"{name} has shape {tuple(tensor.shape)}, the construction another"]
            for place in torch.nonzero(tensor != wanted).tolist():
                index = ",".join(map(str, place))
                now, then = tensor[tuple(place)].item(), wanted[tuple(place)].item()
                reasons.append(f"{name}[{index}] is {now:.17g}, the construction has {then:.17g}")
        if self.header["middle"] != fresh.header["middle"]:
            reasons.append(f"middle is {self.header['middle']}, the construction has {fresh.header['middle']}")
        return reasons

    def report(self) -> dict[str, Any]:
        """Its sizes, for the command."""
        config = self.transformer.config
        table = sum(len(index) for index in self.indices)
        parameters = sum(p.numel() for p in self.transformer.parameters()) + table
        nonzero = sum(int(torch.count_nonzero(t)) for t in self.state_dict().values())
        return {
            **{key: self.header[key] for key in ("eps", "domain", "weight_bound", "rule")},
            "heads": list(config.heads),
            "embed": list(config.embed),
            "head_dims": list(config.head_dims),
            "widths": [table],
            "encoder_width": config.encoder_width,
            "beta": list(config.betas),
            "parameters": parameters,
            "nonzero": nonzero,
            "cells": len(self.grid.centres),
            "tuples": table,
            "depth": 1 + max(math.ceil(math.log2(max(len(index), 2))) for index in self.indices),
            "bound": self.certificate.bound,
            "parts": self.certificate.parts,
            "arithmetic": self.certificate.arithmetic,
            "inputs": self.certificate.claim.inputs,
            "promises": list(self.certificate.promises),
        }

    def save(self, path: str | Path) -> Path:
        """Write the Transformer, the tables of scores and the grid."""
        header = {**self.header, "config": self.transformer.config.to_json(), "per_axis": self.grid.per_axis}
        return files.write(path, "occupancy", self.state_dict(), header)


def build_occupancy(
    target: Target, T: int, eps: float, arch: Any = None, domain: Any = None, weight_bound: float | None = None
) -> OccupancyNetwork:
    """Grid from eps, heads from the grid; Refused with every reason and the size when it does not fit."""
    answer = fits(Question(target, T, eps, arch, weight_bound, domain))
    if isinstance(answer, Refusal):
        raise Refused(answer.reasons, answer.kind)
    return write_occupancy(answer.plan)


def write_occupancy(plan: OccupancyPlan) -> OccupancyNetwork:
    """The network of a plan, with its certificate."""
    certificate = Certificate(
        error_claim(plan.target.spelling, plan.eps, plan.T, plan.low.tolist(), plan.high.tolist(), shorter=True),
        plan.bound,
        "float64 with rounding allowance",
        (
            "IEEE float64, exp within 4 units in the last place",
            "the read-out is a minimum of affine functions, evaluated directly; its weights are not bounded by 1",
        ),
        tuple(
            f"score {i} has Lipschitz constant {term.score.lipschitz:g} in each token, as its author states"
            for i, term in enumerate(plan.target.terms, 1)
            if isinstance(term, Extremum) and isinstance(term.score, CallableScore)
        ),
        parts=plan.parts,
    )
    header = {
        "target": plan.target.spelling,
        "T": plan.T,
        "eps": plan.eps,
        "domain": [plan.low.tolist(), plan.high.tolist()],
        "weight_bound": None,
        "rule": "occupancy",
        "middle": list(plan.middle),
        "certificate": certificate.to_json(),
    }
    return OccupancyNetwork(_transformer(plan.grid, plan.beta, plan.target.dim), plan.target, plan.grid, header)


def tuples(term: Any, cells: int) -> np.ndarray:
    """All k-tuples of cells; multisets where the score is symmetric."""
    k = term.arity
    some = combinations_with_replacement if isinstance(term.score, NormOfSum) else _all_tuples
    flat = np.fromiter(chain.from_iterable(some(range(cells), k)), np.int32, k * count(term, cells))
    return flat.reshape(-1, k)


def _all_tuples(cells: range, k: int) -> Iterator[tuple[int, ...]]:
    return product(cells, repeat=k)


def _scores(term: Extremum, centres: np.ndarray, index: np.ndarray) -> Tensor:
    sign = 1.0 if term.kind == "min" else -1.0
    parts = [sign * term.score(centres[index[i : i + 500_000]]) for i in range(0, len(index), 500_000)]
    return torch.from_numpy(np.concatenate(parts))


def _transformer(grid: Grid, beta: float, d: int) -> Transformer:
    """Encoder: |x - c|_1 exactly, two ReLU units per grid line; head c has key -|x - c| and value |x - c|."""
    cells, n = len(grid.centres), grid.per_axis
    config = TransformerConfig(
        dim=d,
        heads=(cells,),
        head_dims=(1,),
        widths=(1,),
        scales=(beta,),
        readout=False,
        encoder="mlp",
        encoder_width=2 * d * n,
        encoder_activation="relu",
    )
    network = Transformer(config).double()
    assert network.encoder is not None
    assert network.cls_token is not None
    first, second = linear_maps(network.encoder)
    with torch.no_grad():
        for axis in range(d):
            lines = np.unique(grid.centres[:, axis])
            for i, line in enumerate(lines):
                unit = 2 * (axis * n + i)
                first.weight[unit, axis], first.bias[unit] = 1.0, -line
                first.weight[unit + 1, axis], first.bias[unit + 1] = -1.0, line
                at = torch.from_numpy(np.flatnonzero(grid.centres[:, axis] == line))
                second.weight[at, unit] = 1.0
                second.weight[at, unit + 1] = 1.0
        network.cls_token[0] = 1.0
        layer: Any = network.attentions[0]
        heads = torch.arange(cells)
        layer.query[:, 0, 0] = 1.0
        layer.key[heads, 0, heads] = -1.0
        layer.value[heads, 0, heads] = 1.0
        layer.output[heads, heads] = 1.0
    return network.requires_grad_(False)


def remade(spelling: str, kind: str) -> Target:
    """The target that a file names and its network is made again from; no code runs because a file names it."""
    if ".py" in spelling:
        raise InfoFlowError(
            f"expected a named target in the file of {kind}, which is made again from it, got code ({spelling!r}); "
            "in Python build the network and certify what build returns."
        )
    return parse(spelling)


def from_saved(tensors: dict[str, Tensor], header: dict[str, Any]) -> OccupancyNetwork:
    """The loader of kind "occupancy": the target is named in the header, shapes are checked against a fresh grid."""
    keys = {"target": str, "T": int, "eps": float, "domain": list, "per_axis": int, "middle": list, "config": dict}
    for key, kind in keys.items():
        if type(header.get(key)) is not kind:
            raise InfoFlowError(f"expected {key} in the header of an occupancy network, got something else.")
    target = remade(header["target"], "an occupancy network")
    eps = asked_of(header)
    assert eps is not None  # a float, as checked above
    network = build_occupancy(target, header["T"], eps, None, header["domain"], None)
    expect_config(TransformerConfig.from_json(header["config"]), network.transformer.config, "an occupancy network")
    if header["per_axis"] != network.grid.per_axis:
        raise InfoFlowError(f"expected {network.grid.per_axis} cells per axis for this eps, got {header['per_axis']}.")
    files.expect(tensors, {name: tuple(value.shape) for name, value in network.state_dict().items()})
    expect_float64(tensors.items())
    network.load_state_dict(tensors)
    if len(header["middle"]) != len(target.terms) or not all(map(is_finite, header["middle"])):
        raise InfoFlowError("expected one middle per term in the header of an occupancy network.")
    network.header["middle"] = header["middle"]  # the only number of the header that the network computes with
    return network


def _moved(score: CallableScore, others: np.ndarray, v: int, x: np.ndarray) -> Any:
    tokens = others.copy()
    tokens[:, v] = x
    return score(tokens)
