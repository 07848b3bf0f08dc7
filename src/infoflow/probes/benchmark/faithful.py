"""The metrics of MIB (arXiv 2504.13151) on heads: how well a ranking's best k heads stand for the whole network.

Heads outside the circuit carry what they wrote on another input. With MSE_k the error of the k best heads against the
whole network, faithfulness is f_k = 1 - MSE_k / MSE_0; over k = 0..n,

    CPR   mean of f_k, larger is better (circuit performance ratio)
    CMD   mean of |1 - f_k|, smaller is better (circuit-model distance)
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.probes.benchmark.engine import Engine, Pass
from infoflow.probes.benchmark.truth import Node


@torch.no_grad()
def mib(
    engine: Engine, clean: Pass, other: Pass, X: Tensor, scores: Any, known: dict[frozenset[Node], float]
) -> dict[str, float]:
    """CPR and CMD of the heads ranked by `scores` (a number for every head, one list per layer); `known` are errors of
    circuits that other rankings have asked for. All circuits run together, each as one more group of documents."""
    ranked = sorted(engine.nodes(), key=lambda node: -scores[node[0]][node[1]])
    circuits = [frozenset(ranked[:k]) for k in range(len(ranked) + 1)]
    new = [circuit for circuit in circuits if circuit not in known]
    if new:
        run = engine.run(X.repeat(len(new), 1, 1), partial(_kept, new, other))
        off = (run.output.view(len(new), len(X), -1) - clean.output).square().sum(-1).mean(1)
        known.update(zip(new, off.tolist(), strict=True))
    errors = np.array([known[circuit] for circuit in circuits])
    faithful = 1 - errors / max(errors[0], 1e-30)
    return {"cpr": float(faithful.mean()), "cmd": float(np.abs(1 - faithful).mean())}


def _kept(circuits: list[frozenset[Node]], other: Pass, l: int, c: Tensor) -> Tensor:
    outside = torch.tensor([[(l, i) not in circuit for i in range(c.shape[1])] for circuit in circuits])
    each = c.view(len(circuits), -1, *c.shape[1:])
    return torch.where(outside[:, None, :, None, None], other.contributions[l], each).flatten(0, 1)
