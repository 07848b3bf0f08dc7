"""Which maximum of eq. (6) the heads of a network follow.

A head of the first layer follows a maximum at token t when it looks hardest at the best partner of t in
x(s)' A_i x(t), on a fixed side; a head of the second layer when the CLS looks hardest at the first or the second token
of the best pair.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.nn import Transformer
from infoflow.probes.record import batched, record
from infoflow.probes.tap import Step
from infoflow.targets import Extremum, Target


def followed(network: Transformer, target: Target, X: Float[Tensor, "B T d"]) -> tuple[list[float], list[float]]:
    """For every maximum the share of tokens (layer 1) and of sequences (layer 2) at which the head that follows it best
    does so."""
    looked: dict[int, list[Tensor]] = {0: [], 1: []}

    def keep(step: Step) -> None:
        looked[step.layer].append(step.weights.argmax(-1))

    record(network, batched([X], 200)).feed(keep)
    S, T = scores(target, X), X.shape[1]
    first, second = torch.cat(looked[0])[..., :T], torch.cat(looked[1])  # (B, h, T), and (B, h, 1) of the CLS alone
    partners = (S.argmax(2), S.argmax(3))  # the best left token of each t, the best right token of each s
    pair = S.flatten(2).argmax(-1)
    ends = ((pair // T).unsqueeze(-1), (pair % T).unsqueeze(-1))
    return (
        [max(_share(first, side[:, i]) for side in partners) for i in range(S.shape[1])],
        [max(_share(second, side[:, i]) for side in ends) for i in range(S.shape[1])],
    )


def scores(target: Target, X: Float[Tensor, "B T d"]) -> Float[Tensor, "B D T T"]:
    """x(s)' A_i x(t) for every term of the target."""
    left, right = np.broadcast_arrays(X.numpy()[:, :, None], X.numpy()[:, None])
    pairs = np.stack([left, right], -2)  # (B, s, t, 2, d)
    return torch.stack([torch.from_numpy(term.score(pairs)) for term in target.terms if isinstance(term, Extremum)], 1)


def _share(looked: Int[Tensor, "B h Q"], wanted: Int[Tensor, "B Q"]) -> float:
    """The largest share over heads."""
    return float((looked == wanted.unsqueeze(1)).double().mean((0, 2)).max())
