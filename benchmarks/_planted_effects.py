"""Which heads matter and which feed which, by interchange interventions: head by head and edge by edge.

The effect of a change D of the output is E|D|^2 / (2 Var(y)), a Sobol index. A head's: it carries what it wrote on
another input. An edge's (A to B): B alone sees A's contribution from the other input, through residual stream and
feed-forward blocks; all other heads, and B's residual stream, stay as they were. B may be the read-out.
"""

import torch
from torch import Tensor

from infoflow.probes.benchmark.engine import Engine, Pass, spread
from infoflow.probes.benchmark.truth import OUT, Edge, Node


def two_runs(engine: Engine, X: Tensor) -> tuple[Pass, Pass]:
    """One half of the documents, and the other half to take contributions from."""
    half = len(X) // 2
    return engine.run(X[:half]), engine.run(X[half : 2 * half])


def effect(D: Tensor, clean: Pass) -> float:
    return float(D.double().square().sum(-1).mean()) / (2 * max(spread(clean.output), 1e-30))


@torch.no_grad()
def head_effects(engine: Engine, clean: Pass, other: Pass) -> dict[Node, float]:
    return {node: effect(engine.swapped(clean, other, node) - clean.output, clean) for node in engine.nodes()}


@torch.no_grad()
def edge_effects(engine: Engine, clean: Pass, other: Pass) -> dict[Edge, float]:
    """Every sender once: its variant of the stream goes up with all other heads held, and each receiver looks at it."""
    found: dict[Edge, float] = {}
    for l, i in engine.nodes():
        c = clean.contributions[l].clone()
        c[:, i] = other.contributions[l][:, i]
        x = engine.behind(l, clean.streams[l], c.sum(1))
        for m in range(l + 1, engine.layers):
            seen, _ = engine.attend(m, x)
            for j in range(engine.heads[m]):
                mixed = clean.contributions[m].clone()
                mixed[:, j] = seen[:, j]
                found[(l, i), (m, j)] = effect(engine.finish(m, clean.streams[m], mixed) - clean.output, clean)
            x = engine.behind(m, x, clean.contributions[m].sum(1))
        found[(l, i), OUT] = effect(x - clean.output, clean)
    return found
