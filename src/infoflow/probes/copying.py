"""Copying heads (name movers), by an intervention: does the model now say the token that the head was made to see?

For a head at the last position of a document let s be the key it looks at hardest, and a the token there. A fresh token
b is put at s and the value that this head would fetch from s is computed (attention frozen); then this value alone is
put in place, at the last position of this head alone. The head copies when the output follows:

    score = mean over documents and draws of  [(y_b - y_a) with the value of b  -  (y_b - y_a) as it was] / (2 sd(y)),

y the logits and sd their standard deviation over the vocabulary. Positive: the head says what it sees (copying).
Negative: it says everything else (copy suppression). A head is called copying when the whole 95% bootstrap interval
over documents lies above 0 and the score is at least BOUND; suppressing, when both hold below; else neither.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from infoflow.errors import InfoFlowError
from infoflow.probes.adapters import heads_of
from infoflow.probes.effects import Stage
from infoflow.probes.intervals import ratio_interval
from infoflow.probes.law import Law, Variances, apart, tokens_of
from infoflow.probes.record import Batch, as_batches
from infoflow.probes.rerun import Rerun, logits_at
from infoflow.progress import Progress

BOUND = 0.05  # standard deviations of the logits
DRAWS = 4


@dataclass(frozen=True)
class HeadCopying:
    """One head: its score with its interval over documents, and the word for it."""

    layer: int  # 0-based
    head: int
    score: float
    low: float
    high: float

    @property
    def label(self) -> str | None:
        if self.score >= BOUND and self.low > 0:
            return "copying"
        return "suppressing" if self.score <= -BOUND and self.high < 0 else None

    def to_json(self) -> dict[str, Any]:
        place = {"layer": self.layer + 1, "head": self.head + 1}
        return {**place, "score": self.score, "interval": [self.low, self.high], "label": self.label}


def copying(model: nn.Module, inputs: Any, draws: int = DRAWS, seed: int = 0) -> list[HeadCopying]:
    """Every head of a language model on documents of token numbers."""
    documents, heads = apart(as_batches(inputs)), heads_of(model)
    if len(documents) < 2:
        raise InfoFlowError(f"expected at least 2 documents for an interval, got {len(documents)}; give more.")
    law = Law(documents, seed=seed)
    rows = []
    with Progress("copying heads", len(documents)) as bar:
        for number, document in enumerate(documents):
            rows.append(_document(model, document, law.draws(document, draws, number), heads))
            bar.update(number + 1)
    scores = np.array(rows)  # (documents, heads)
    places = [(l, i) for l, h in enumerate(heads) for i in range(h)]
    return [
        HeadCopying(l, i, *ratio_interval(scores[:, column], np.ones(len(scores))))
        for column, (l, i) in enumerate(places)
    ]


def _document(model: nn.Module, document: Batch, fresh: Tensor, heads: tuple[int, ...]) -> list[float]:
    with Rerun(model, document, _logits) as rerun:
        stage = Stage(rerun, document, fresh, Variances(1.0, [], 0))
        return [_head(stage, l, i) for l, h in enumerate(heads) for i in range(h)]


def _logits(output: Any) -> Tensor:
    """At the last position, whatever the model returns."""
    return output[:, -1].double() if isinstance(output, Tensor) else logits_at(-1)(output)


def _head(stage: Stage, layer: int, head: int) -> float:
    """The mean over draws for one head of one document."""
    weights = stage.base.weights[layer][0, head, -1]
    s = int(weights.argmax())
    a, b = int(tokens_of(stage.document)[1][0, s]), stage.draws[:, s].long()
    N = len(b)
    ran = stage.rerun.run(stage.variants([[s]] * N, list(range(N))), frozen=stage.base.weights)
    moved = weights[s] * (ran.v[layer][:, head, s] - stage.base.v[layer][0, head, s])  # (N, n)
    fixed = [values.expand(N, *values.shape[1:]).clone() for values in stage.base.values]
    fixed[layer][:, head, -1] += moved
    carriers = [torch.ones(w.shape[1], dtype=torch.bool, device=w.device) for w in stage.base.weights]
    carriers[layer][head] = False
    same = stage.variants([[]] * N, [0] * N)
    logits = stage.rerun.run(same, frozen=stage.base.weights, carriers=(carriers, fixed)).output
    before, scale = stage.base.output[0], stage.base.output[0].std()
    change = (logits.gather(1, b[:, None])[:, 0] - logits[:, a]) - (before[b] - before[a])
    kept = b != a  # a token that was drawn as itself says nothing
    return float((change[kept] / (2 * scale)).mean()) if bool(kept.any()) else 0.0
