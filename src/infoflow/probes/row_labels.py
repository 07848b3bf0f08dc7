"""Head labels for networks with a CLS: from the rows where a head looks, and with blurred maxima told from ties.

`modes.head_modes` counts the tokens' rows. A head whose tokens see all keys alike while the CLS does not works for the
CLS: its label comes from the CLS' row. And a maximum over scores that lie close is spread over several keys, as a top-k
head is, but its logits z_1 >= z_2 >= ... fall in steps of one size, while k keys that tie have no step in front of the
k-th. With g_j = z_j - z_{j+1},

    graded = the share of rows with g_1 >= STEP (g_1 + ... + g_4)     most rows of a maximum, few where keys tie

and a content head (label top, mixed or global) whose logits vary (mean of g_1 + ... + g_4 at least VARY) with graded at
least GRADED is a `max`. Both numbers were chosen on planted networks of seed 1, which no score is measured on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from infoflow.probes.modes import HeadMode, head_modes
from infoflow.probes.record import AnyRecording, Consumer
from infoflow.probes.tap import Step

GRADED, STEP = 0.5, 0.05
VARY = 0.5
FLAT_ROWS, UNEVEN = 0.95, 0.9  # the tokens' global score at least, the CLS' below: the CLS' row counts
STEPS = 4


@dataclass
class ClsRows:
    """A recording of the CLS' rows alone."""

    whole: AnyRecording

    @property
    def heads(self) -> tuple[int, ...]:
        return self.whole.heads

    @property
    def documents(self) -> int:
        return self.whole.documents

    def feed(self, *consumers: Consumer) -> None:
        def cut(consumer: Consumer) -> Callable[[Step], None]:
            return lambda step: consumer(_last_row(step))

        self.whole.feed(*map(cut, consumers))


def _last_row(step: Step) -> Step:
    visible = step.visible
    if visible is not None and visible.shape[-2] > 1:
        visible = visible[..., -1:, :]
    after, q, weights = step.after[:, -1:], step.q[:, :, -1:], step.weights[:, :, -1:]
    return replace(step, after=after, q=q, weights=weights, visible=visible, asked=None)


class Graded:
    """Consumer: per head the share of rows with a first step, and the mean of g_1 + ... + g_4."""

    def __init__(self, heads: tuple[int, ...]) -> None:
        self.sums = [torch.zeros(3, h, dtype=torch.float64) for h in heads]

    def __call__(self, step: Step) -> None:
        scores, K = step.scores.double(), step.weights.shape[-1]
        many = min(STEPS + 1, K)
        best = scores.topk(many, dim=-1).values
        gaps = best[..., :-1] - best[..., 1:]
        total = gaps.sum(-1)
        seen = torch.isfinite(total) & step.counted()[:, None]
        share = (seen & (gaps[..., 0] >= STEP * total) & (total > 1e-9)).double()
        rows = (share, torch.where(seen, total, 0.0), seen.double())
        self.sums[step.layer] += torch.stack([row.sum((0, 2)) for row in rows]).cpu()

    def of(self, layer: int, head: int) -> tuple[float, float]:
        share, total, count = self.sums[layer][:, head].tolist()
        return share / max(count, 1), total / max(count, 1)


def row_labels(
    recording: AnyRecording, by_tokens: list[HeadMode] | None = None, intervals: bool = True
) -> list[HeadMode]:
    """The labels of `head_modes` (`by_tokens` where they are known), with the rules above."""
    cls_rows = ClsRows(recording)
    by_tokens = head_modes(recording, intervals=intervals) if by_tokens is None else by_tokens
    by_cls = head_modes(cls_rows, intervals=intervals)  # type: ignore[arg-type]
    graded = Graded(recording.heads), Graded(recording.heads)
    recording.feed(graded[0])
    cls_rows.feed(graded[1])
    found = []
    for tokens, cls in zip(by_tokens, by_cls, strict=True):
        flat = tokens.scores["global"] >= FLAT_ROWS and cls.scores["global"] < UNEVEN
        mode, steps = (cls, graded[1]) if flat else (tokens, graded[0])
        share, total = steps.of(mode.layer, mode.head)
        if mode.label in ("top", "mixed", "global") and share >= GRADED and total >= VARY:
            mode = replace(mode, label="max")
        found.append(mode)
    return found


def layered(modes: list[HeadMode], layers: int) -> list[list[str]]:
    """Labels as a list per layer."""
    return [[mode.label for mode in modes if mode.layer == l] for l in range(layers)]
