"""The rank-1 head as numbers: s_k = sum_j softmax_j(q_k p_j) p_j over the visible keys, id_k = x_k + a s_k.

    W_K = u v^T, W_Q = u' (beta v')^T, W_V = u'' v^T, W_O = a y^T   with u.u' = 1 and y.u'' = 1

The head size s and the vectors u, u', u'', y do not matter: only beta = u.u' does. They are powers of two here, so the
four stored matrices have rank exactly 1 and define exactly the function above with p = V v, q = V (beta v').
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from infoflow.construct.rank_one.contexts import Contexts

BLOCK = 1 << 21  # entries of one block of logits


@dataclass(frozen=True)
class RankOneHead:
    """Key direction v, query direction w = beta v' (stored, so what is certified), output vector a."""

    key: Float[ndarray, " d"]
    query: Float[ndarray, " d"]
    output: Float[ndarray, " d"]
    size: int = 1

    def matrices(self) -> dict[str, ndarray]:
        """W_K, W_Q, W_V (s, d) and W_O (d, s), each of rank exactly 1 as stored."""
        share = dyadic_shares(self.size)
        u = 0.5 ** (np.arange(self.size) % 4)
        return {
            "W_K": np.outer(u, self.key),
            "W_Q": np.outer(share / u, self.query),
            "W_V": np.outer(u, self.key),
            "W_O": np.outer(self.output, share / u),
        }


def dyadic_shares(size: int) -> Float[ndarray, " s"]:
    """1/2, 1/4, .., 2^-(s-1), 2^-(s-1): powers of two that sum to exactly 1 (halves repeat beyond 2^-60)."""
    shares = [1.0]
    while len(shares) < size:
        at = max(range(len(shares)), key=lambda i: (shares[i], i))
        shares[at : at + 1] = [shares[at] / 2, shares[at] / 2]
    return np.array(shares)


def attention_average(contexts: Contexts, p: Float[ndarray, " m"], q: Float[ndarray, " m"]) -> Float[ndarray, " M"]:
    """s = sum_j softmax_j(q_i p_j) p_j of every class: what its token receives from the head."""
    s = np.empty(contexts.size)
    for part, averages in average_blocks(contexts, p, q):
        s[part] = averages
    return s


def average_blocks(
    contexts: Contexts, p: Float[ndarray, " m"], q: Float[ndarray, " m"], block: int = BLOCK
) -> Iterator[tuple[slice, Float[ndarray, " k"]]]:
    """s of some classes after the other; each logit is shifted by the largest of its row, q_k p_j - max_j q_k p_j =
    q_k (p_j - p_ext)."""
    n = contexts.members.shape[1]
    padded = bool((contexts.members[:, 0] < 0).any())
    values = p[contexts.members]  # padding reads p[-1], replaced below
    if padded:
        values = np.where(contexts.members < 0, values[:, -1:], values)
    highest, lowest = values.max(1), values.min(1)
    step = max(block // n, 1)
    for start in range(0, contexts.size, step):
        part = slice(start, min(start + step, contexts.size))
        rows, queries = contexts.set_of[part], q[contexts.query[part]]
        keys = values[rows]
        weights = keys - np.where(queries >= 0, highest[rows], lowest[rows])[:, None]
        weights *= queries[:, None]
        np.exp(weights, out=weights)
        if padded:
            weights[contexts.members[rows] < 0] = 0.0
        total = weights.sum(1)
        weights *= keys
        yield part, weights.sum(1) / total


def attention_jacobian(
    contexts: Contexts, key: Float[ndarray, " d"], query: Float[ndarray, " d"], classes: Int[ndarray, " k"]
) -> tuple[Float[ndarray, "k d"], Float[ndarray, "k d"]]:
    """d s / d key = sum_j a_j (1 + q (p_j - s)) x_j and d s / d query = (sum_j a_j (p_j - s)^2) x, a the attention."""
    vocabulary = contexts.vocabulary
    p, q = vocabulary @ key, vocabulary @ query
    by_key, variance = np.empty((len(classes), len(key))), np.empty(len(classes))
    step = max(BLOCK // (contexts.members.shape[1] * len(key)), 1)
    for start in range(0, len(classes), step):
        part = classes[start : start + step]
        members, queries = contexts.members[contexts.set_of[part]], q[contexts.query[part]][:, None]
        logits = np.where(members < 0, -np.inf, queries * p[members])
        a = np.exp(logits - logits.max(1, keepdims=True))
        a /= a.sum(1, keepdims=True)
        away = p[members] - (a * p[members]).sum(1, keepdims=True)
        variance[start : start + step] = (a * away**2).sum(1)
        by_key[start : start + step] = np.einsum("kn,knd->kd", a * (1 + queries * away), vocabulary[members])
    return by_key, variance[:, None] * vocabulary[contexts.query[classes]]
