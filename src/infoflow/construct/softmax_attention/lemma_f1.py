"""Lemma F.1: how large the inverse temperature beta of a softmax must be to stand for a maximum.

Unique maximum, gap = x_(1) - x_(2):  |softmax(beta x) - e_1|_inf <= eps  when  beta >= ln((n-1)/eps) / gap.
Two leaders, gamma = x_(1) - x_(3):   |softmax(beta x) - (s e_1 + (1-s) e_2)|_inf <= eps, s = 1/(1 + exp(-beta delta)),
                                      when  beta >= ln((n-2)/eps) / gamma.
Both are attained (all runners-up tied); the l1 distance is at most 2 eps. A head that reads values V errs by at most
(max V - min V) eps, not by max|V| eps.
"""

import math

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow.errors import InfoFlowError


def beta_unique(gap: float, n: int, eps: float) -> float:
    """The inverse temperature for one leader among n scores; 0 when there is nobody to suppress (n = 1)."""
    return _beta(gap, n - 1, eps, "the gap x_(1) - x_(2)")


def beta_pair(gamma: float, n: int, eps: float) -> float:
    """The inverse temperature for two leaders; 0 when n = 2 (every split of the two is the lemma's own vector)."""
    return _beta(gamma, n - 2, eps, "the gap x_(1) - x_(3)")


def error_unique(scores: Float[ndarray, " n"], beta: float) -> float:
    """|softmax(beta x) - e_1|_inf = S/(1+S), S = sum_{j>1} exp(-beta (x_(1) - x_j)); the l1 distance is twice this."""
    rest = np.exp(-beta * (scores.max() - np.delete(scores, scores.argmax()))).sum()
    return float(rest / (1 + rest))


def error_pair(scores: Float[ndarray, " n"], beta: float) -> float:
    """|softmax(beta x) - s e_1 - (1-s) e_2|_inf, exactly.

    With E = exp(-beta delta) and S the mass of the others, the leader loses S/((1+E)(1+E+S)) and each other entry
    holds its own share of S/(1+E+S).
    """
    ordered = np.sort(scores)[::-1]
    weights = np.exp(-beta * (ordered[0] - ordered))
    pair, total = weights[:2].sum(), weights.sum()
    lost = (weights[0] / pair) * (1 - pair / total)
    return float(max(lost, weights[2:].max(initial=0.0) / total))


def _beta(gap: float, others: int, eps: float, name: str) -> float:
    if others < 0:
        raise InfoFlowError(f"expected at least as many scores as leaders, got {others} others; give more scores.")
    if not 0 < eps < math.inf:
        raise InfoFlowError(f"expected a positive error eps, got {eps}; choose eps > 0.")
    if others == 0:
        return 0.0
    if not gap > 0:
        raise InfoFlowError(
            f"expected {name} to be positive, got {gap}; tied leaders need beta_pair, or no beta separates them."
        )
    return max(0.0, (math.log(others) - math.log(eps)) / gap)  # others may be beyond floats
