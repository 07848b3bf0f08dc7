"""Theorem 2 as weights: one head with rank-1 matrices that gives every (token, context) its own id.

    id_k = x_k + a s_k,   |a| = eps / (4 max|p|)

(the theorem's eps / (4 r_max) is smaller: |s| never exceeds max|p| <= r_max). Different tokens stay eps/2 apart because
|a s| <= eps/4; same tokens in different contexts are |a| times the certified gap of s apart.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from infoflow import arguments
from infoflow.certificates import stated_limit
from infoflow.certificates.rules import UNIT
from infoflow.construct.rank_one import scales
from infoflow.construct.rank_one.certificate import GapCertificate, certify_gap, projected, rounding_bound
from infoflow.construct.rank_one.contexts import Contexts, Mask, read_contexts
from infoflow.construct.rank_one.head import RankOneHead, attention_average
from infoflow.construct.rank_one.separation import Separation, same_token_gap, separation
from infoflow.errors import InfoFlowError

if TYPE_CHECKING:
    from infoflow.nn import Transformer

Scale = Literal["auto", "sufficient", "paper"]


@dataclass(frozen=True)
class ContextMap:
    """The head, its certificate, and the data it was made for."""

    contexts: Contexts
    head: RankOneHead
    scale: str
    apart: Separation
    averages: Float[ndarray, " M"]  # s of every class, as float64 computes it
    certificate: GapCertificate

    @classmethod
    def fit(
        cls,
        sequences: Any,
        scale: Scale = "auto",
        head_size: int = 1,
        mask: Mask | Bool[ndarray, "n n"] = "none",
        merge: bool = False,
        draws: int | None = None,
        seed: int = 0,
    ) -> "ContextMap":
        """Weights for these sequences, with a certificate; proportional multisets are refused unless `merge`."""
        contexts = sequences if isinstance(sequences, Contexts) else read_contexts(sequences, mask)
        if not merge:
            contexts.refuse_proportional()
        arguments.integer("head_size", head_size)
        arguments.seed(seed)
        if draws is not None:
            arguments.integer("draws", draws)
        apart = separation(contexts.vocabulary)
        v, query = _choose(contexts, scale, apart, draws, seed)
        amplitude = min(apart.distance, 2 * apart.largest) / (4 * float(np.abs(contexts.vocabulary @ v).max()))
        head = RankOneHead(v, query, amplitude * v / np.linalg.norm(v), head_size)
        s = attention_average(contexts, contexts.vocabulary @ head.key, contexts.vocabulary @ head.query)
        pair = same_token_gap(contexts.query, s)
        certificate = certify_gap(contexts, head, s, pair.gap if pair else None)
        if not certificate.holds or (scale == "auto" and not certificate.float64):
            raise InfoFlowError(_too_many(contexts, s, pair.gap if pair else 0.0, rounding_bound(contexts, head)))
        return cls(contexts, head, scale, apart, s, certificate)

    @property
    def beta(self) -> float:
        """The scale of unit directions: u.u' in the paper's words."""
        return float(np.linalg.norm(self.head.key) * np.linalg.norm(self.head.query))

    @property
    def amplitude(self) -> float:
        """The norm of the head's output vector."""
        return float(np.linalg.norm(self.head.output))

    @property
    def log10_gap(self) -> float:
        """log10 of the certified distance between ids of different classes (Definition 2's delta)."""
        return ids_apart(self.contexts, self.head, self.certificate)

    @property
    def float64(self) -> bool:
        """Float64 execution keeps the ids apart: in some coordinate |a_i| gap exceeds twice the rounding of H_i."""
        if not self.certificate.float64 or math.isinf(self.certificate.gap):
            return self.certificate.float64
        a, x = np.abs(self.head.output), np.abs(self.contexts.vocabulary).max(0)
        rounding = 2 * UNIT * (x + 2 * a * float(np.abs(self.averages).max()))
        return bool((a * self.certificate.gap > 2 * rounding).any())

    @property
    def gap(self) -> float:
        """The smallest distance of two ids; 0 where float64 cannot hold it."""
        return 10.0**self.log10_gap if self.log10_gap > -300 else 0.0

    @property
    def relative_gap(self) -> float:
        """Measured in float64: smallest same-token gap of s over max|p|."""
        pair = same_token_gap(self.contexts.query, self.averages)
        largest = float(np.abs(self.contexts.vocabulary @ self.head.key).max())
        return (pair.gap if pair else math.inf) / largest

    def network(self) -> "Transformer":
        """The head as the project's Transformer: x + W_O (W_V x) softmax(..), no feed-forward block."""
        from infoflow.construct.rank_one.network import attention_network

        return attention_network(self.head, self.contexts)

    def save(self, path: str | Path) -> Path:
        """The network and its data: `infoflow certify` computes the certificate again from them."""
        from infoflow.construct.rank_one.saving import save_map

        limit = stated_limit(self.log10_gap, least=True)
        header = {"eps": limit, "certificate": self.certificate.to_json()}
        return save_map(self.network(), self.contexts, header, path)

    def stored(self) -> Any:
        """What `load` makes of the saved file: `certify` looks at the network itself."""
        from infoflow.construct.rank_one.saving import SavedMap

        return SavedMap(self.network(), self.contexts, {"eps": stated_limit(self.log10_gap, least=True)})

    def ids(self) -> Float[ndarray, "N n d"]:
        """x + a s at every place of the data, in float64; padding gets 0."""
        label = self.contexts.class_of
        x = self.contexts.vocabulary[self.contexts.tokens]
        ids = x + self.head.output * self.averages[label][..., None]
        return np.where((label >= 0)[..., None], ids, 0.0)

    def to_json(self) -> dict[str, Any]:
        """What the command prints of it."""
        return {
            "scale": self.scale,
            "contexts": self.contexts.size,
            "tokens": len(self.contexts.vocabulary),
            "merged": self.contexts.merged,
            "beta": self.beta,
            "gap": self.gap,
            "log10_gap": self.log10_gap,
            "relative_gap": self.relative_gap,
            "paper_log10_gap": scales.paper_gap(self.contexts, self.apart),
            "method": self.certificate.method,
            "bits": self.certificate.bits,
            "float64": self.float64,
        }


def ids_apart(contexts: Contexts, head: RankOneHead, averages: GapCertificate) -> float:
    """log10 of a distance that the ids x + a s of different contexts keep, in real arithmetic on the stored weights.

    One token: |a| |s - s'|. Two tokens: |x - x'| - |a||s| - |a||s'| >= |x - x'| - 2 |a| max|p|. Minus infinity where
    nothing is kept, infinity where there is nothing to keep apart.
    """
    amplitude = math.hypot(*head.output.tolist())  # a sum of squares would lose what is below 1e-154
    same = averages.log10_gap
    if math.isfinite(same):
        same = same + math.log10(amplitude) if amplitude > 0 else -math.inf
    if len(contexts.vocabulary) < 2:
        return same
    apart = separation(contexts.vocabulary)
    tokens = apart.distance - 2 * amplitude * projected(contexts, head.key, head.size)[0] - 1e-13 * apart.largest
    other = math.log10(tokens) if tokens > 0 else -math.inf
    least = min(same, other)
    return least - 1e-14 * (1 + abs(least)) if math.isfinite(least) else least


def _choose(contexts: Contexts, scale: str, apart: Separation, draws: int | None, seed: int) -> scales.Directions:
    """Key direction and query direction, beta in the second."""
    if scale == "auto":
        head = scales.auto_search(contexts, draws, seed)
        return head.key, head.query
    if scale == "sufficient":
        v, w = scales.sufficient_directions(contexts, seed)
        return v, scales.sufficient_scale(contexts, v, w) * w
    if scale == "paper":
        v, w = scales.paper_directions(contexts, seed)
        return v, scales.paper_scale(contexts, apart) * w
    raise InfoFlowError(f"expected scale auto, sufficient or paper, got {scale!r}.")


def _too_many(contexts: Contexts, s: Float[ndarray, " M"], gap: float, error: float) -> str:
    return (
        f"expected contexts that float64 can separate, got {contexts.size} with ids {gap:.2g} apart where rounding is "
        f"{error:.2g}; about {separable(contexts, s, error)} would fit: use fewer sequences, tokens farther apart, or "
        "more draws."
    )


def separable(contexts: Contexts, s: Float[ndarray, " M"], error: float) -> int:
    """How many classes can be kept so that those of one token are more than twice the error apart."""
    order = np.lexsort((s, contexts.query))
    count, token, last = 0, -1, 0.0
    for other, value in zip(contexts.query[order].tolist(), s[order].tolist(), strict=True):
        if other != token or value - last > 2 * error:
            count, token, last = count + 1, other, value
    return count
