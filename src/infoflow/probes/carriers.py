"""Which mode of propagation carries the content: the framework's three, by intervention.

With attention frozen a token is drawn again, and only the heads of one mode may carry the change on: all others fetch
what they fetched for the document. What then reaches the output is the effect along ways that use heads of this mode
alone;

    share(mode) = sum over sources of that effect / the same with all heads,    the position read left out as a source.

Ways that change from one mode to another count for none, so shares need not add up to 1.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from infoflow.probes.effects import Stage
from infoflow.probes.modes import HeadMode

MODES = {
    "max-position": ("max", "top", "induction", "duplicate"),
    "specific position": ("position", "self", "previous", "next", "sink"),
    "global": ("global",),
    "mixed": ("mixed",),
}


def carried(
    stage: Stage, heads: Sequence[HeadMode], read_at: int | None, content: Float[np.ndarray, " T"] | None = None
) -> dict[str, float]:
    """mode -> share of the content effect that its heads carry by themselves; "heads:" + mode is its share of heads.

    `content` are the effects with all heads, where they are known already."""
    sources = [s for s in stage.sources if s != read_at]
    groups = [[s] for s in sources]
    everything = float(stage.joint(groups, frozen=True)[0].sum() if content is None else content[sources].sum())
    found = {}
    for mode, labels in MODES.items():
        chosen = [torch.zeros(weights.shape[1], dtype=torch.bool) for weights in stage.base.weights]
        for head in heads:
            chosen[head.layer][head.head] = head.label in labels
        moved = [mask.to(stage.base.weights[0].device) for mask in chosen]
        alone = float(stage.joint(groups, frozen=True, carriers=moved)[0].sum()) if any(m.any() for m in moved) else 0.0
        found[mode] = alone / everything if everything else float("nan")
        found[f"heads: {mode}"] = float(np.mean([head.label in labels for head in heads]))
    return found
