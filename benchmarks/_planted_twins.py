"""Trained twins: the architecture of a construction, trained on its target; does training find the same heads?

A job of the construction is one head at one query per document: the CLS for a read, for a message the token that the
receiving head attends to. A trained head does the job to the degree that it puts its largest weight on the same token
at the same query (`agreement`, a share of documents). Where the construction's head divides its mass between keys (both
ends of the best pair of a symmetric score attain it; a sum of positions has several), each of them is right: those with
at least TIED of its largest weight. Heads of a layer are matched to its jobs one to one so that the sum of agreements
is largest; a job counts as found from FOUND on. The same is done with untrained weights.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.architecture import Architecture
from infoflow.nn import States, Transformer
from infoflow.probes.benchmark.catalogue import TargetGroup, groups
from infoflow.probes.benchmark.compiled import TIED, Compiled, compiled
from infoflow.probes.benchmark.truth import OUT, Node
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run

FOUND = 0.8
DOCUMENTS = 256
RECIPE = Recipe(
    samples=8192, validation=1024, batch=128, epochs=None, steps=1500, lr=3e-3, query_key_rate=5.0, activation="tanh",
    evaluate_every=8,
)  # fmt: skip


@dataclass(frozen=True)
class Twin:
    group: TargetGroup
    built: Compiled
    run: Run


def twins(count: int, T: int = 8, layers: int = 3) -> list[Twin]:
    """One per target and head vector, families in turn, small ones first; no masks."""
    fit = [g for g in groups() if g.T == T and len(g.heads) <= layers and not g.causal]
    names = list(dict.fromkeys(g.name for g in fit))
    piles = {name: [g for g in fit if g.name == name] for name in names}
    chosen: list[TargetGroup] = []
    while len(chosen) < count and any(piles.values()):
        chosen += [piles[name].pop(0) for name in names if piles[name]]
    return [_twin(group) for group in chosen[:count]]


def _twin(group: TargetGroup) -> Twin:
    built = compiled(group.spelling(0), group.T, 0.1, group.heads, group.causal, group.placed)
    c = built.network.config
    arch = Architecture(group.heads, embed=c.embed, width=c.widths, positions=c.positions)
    encoder = {"encoder": "mlp", "encoder_width": c.encoder_width} if c.encoder == "mlp" else {}
    return Twin(group, built, Run(built.target, arch, group.T, 0, RECIPE.with_(**encoder)))


def compare(twin: Twin, trained: Transformer) -> dict[str, Any]:
    """Agreement of every job with its match, trained and untrained."""
    X = torch.from_numpy(twin.built.target.sample(DOCUMENTS, twin.group.T, seed=11))
    jobs = _asked(twin.built, X)
    fresh = Transformer(trained.config)
    fresh.initialise(torch.Generator().manual_seed(12))
    return {
        "target": twin.group.spelling(0),
        "family": twin.group.name,
        "heads": list(twin.group.heads),
        "jobs": [
            {"layer": node[0] + 1, "job": twin.built.truth.heads[node].job, "trained": after, "untrained": before}
            for (node, after), (_, before) in zip(_matched(trained, X, jobs), _matched(fresh, X, jobs), strict=True)
        ],
    }


@torch.no_grad()
def _attended(network: Transformer, X: Tensor) -> list[Tensor]:
    states = States()
    network(X.to(next(network.parameters()).dtype), states=states)
    return states.weights


def _asked(built: Compiled, X: Tensor) -> dict[Node, tuple[Int[Tensor, " B"], Bool[Tensor, "B T"]]]:
    """Per head of the construction the query (-1: the CLS) and the keys it attends to there, for every document."""
    weights = _attended(built.network, X)
    rows = torch.arange(len(X))
    found: dict[Node, tuple[Tensor, Tensor]] = {}

    def follow(node: Node, query: Tensor) -> None:
        mass = weights[node[0]][rows, node[1], query]
        found[node] = (query, mass >= TIED * mass.amax(-1, keepdim=True))
        for feeder, receiver in built.truth.edges:
            if receiver == node:
                follow(feeder, mass.argmax(-1))

    for feeder, receiver in built.truth.edges:
        if receiver == OUT:
            follow(feeder, torch.full((len(X),), -1))
    return found


def _matched(network: Transformer, X: Tensor, jobs: dict[Node, tuple[Tensor, Tensor]]) -> list[tuple[Node, float]]:
    from scipy.optimize import linear_sum_assignment

    weights, rows = _attended(network, X), torch.arange(len(X))
    found = []
    for l, pattern in enumerate(weights):
        nodes = sorted(node for node in jobs if node[0] == l)
        table: Float[np.ndarray, "jobs heads"] = np.array(
            [
                [
                    float(jobs[n][1][rows, pattern[rows, h, jobs[n][0]].argmax(-1)].double().mean())
                    for h in range(pattern.shape[1])
                ]
                for n in nodes
            ]
        ).reshape(len(nodes), pattern.shape[1])
        for j, h in zip(*linear_sum_assignment(-table), strict=True):
            found.append((nodes[j], round(float(table[j, h]), 4)))
    return sorted(found)
