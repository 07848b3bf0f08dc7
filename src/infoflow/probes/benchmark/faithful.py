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
def mib(engine: Engine, clean: Pass, other: Pass, X: Tensor, scores: Any) -> dict[str, float]:
    """CPR and CMD of the heads ranked by `scores` (a number for every head, one list per layer)."""
    ranked = sorted(engine.nodes(), key=lambda node: -scores[node[0]][node[1]])
    errors = []
    for k in range(len(ranked) + 1):
        run = engine.run(X, partial(_kept, set(ranked[:k]), other))
        errors.append(float((run.output - clean.output).square().sum(-1).mean()))
    faithful = 1 - np.array(errors) / max(errors[0], 1e-30)
    return {"cpr": float(faithful.mean()), "cmd": float(np.abs(1 - faithful).mean())}


def _kept(circuit: set[Node], other: Pass, l: int, c: Tensor) -> Tensor:
    outside = [i for i in range(c.shape[1]) if (l, i) not in circuit]
    c = c.clone()
    c[:, outside] = other.contributions[l][:, outside]
    return c
