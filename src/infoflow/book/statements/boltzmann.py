"""The Boltzmann operator and what is true of it (Lemmas 1, 4, 5, 6, 7 of the rank-1 paper, and their sharp forms).

    boltz(a) = sum_i a_i p_i,   p = softmax(a)
    d boltz / d a_i       = p_i (1 + a_i - boltz)                          (83), because log p_i + S(p) = a_i - boltz
    d^2 boltz / d a_i^2   = p_i ((1 - 2 p_i)(1 + a_i - boltz) + 1)         (97)

`log` is natural. Each lemma is a `Statement`: hypothesis, left and right side, so that anyone can try to break it.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow.certificates.rules import lambert_w
from infoflow.errors import InfoFlowError

GapBound = Literal["paper", "proof", "sharp", "masked"]


@dataclass(frozen=True)
class Statement:
    """`left > right` is claimed whenever `hypothesis` holds."""

    name: str
    hypothesis: bool
    left: float
    right: float

    @property
    def holds(self) -> bool:
        """The inequality, where its hypothesis is met."""
        return not self.hypothesis or self.left > self.right


def softmax(a: Float[ndarray, "... n"]) -> Float[ndarray, "... n"]:
    """Shifted by the maximum; -inf (a masked key) has weight 0."""
    weights = np.exp(a - a.max(-1, keepdims=True))
    made: ndarray = weights / weights.sum(-1, keepdims=True)
    return made


def boltz(a: Float[ndarray, "... n"]) -> Float[ndarray, " ..."]:
    """sum_i a_i softmax(a)_i; a masked entry (-inf) contributes 0, as 0 * (-inf) = 0 in (133)."""
    made: ndarray = (np.where(np.isneginf(a), 0.0, a) * softmax(a)).sum(-1)
    return made


def boltz_grad(a: Float[ndarray, "... n"]) -> Float[ndarray, "... n"]:
    """Decreasing in a_i exactly when a_i < boltz(a) - 1."""
    made: ndarray = softmax(a) * (1 + a - boltz(a)[..., None])
    return made


def boltz_hess(a: Float[ndarray, "... n"]) -> Float[ndarray, "... n"]:
    """The diagonal of the Hessian."""
    p = softmax(a)
    made: ndarray = p * ((1 - 2 * p) * (1 + a - boltz(a)[..., None]) + 1)
    return made


def largest_drop(n: int) -> float:
    """max_a (max_i a_i - boltz(a)) = W0((n - 1)/e), attained at (0, -t, .., -t) with t = 1 + W0.

    At (0, -t, .., -t) the drop is (n-1) t e^-t / (1 + (n-1) e^-t); its derivative vanishes where
    (t - 1) e^(t-1) = (n-1)/e. It replaces the entropy bound log n in (84) and (95).
    """
    return lambert_w((n - 1) / math.e)


def monotonicity(a: Float[ndarray, " n"], i: int) -> Statement:
    """Lemma 4: a_i < max a - log n - 1 implies d boltz / d a_i < 0; a weight that underflows counts as negative."""
    return Statement("Lemma 4", bool(a[i] < a.max() - math.log(len(a)) - 1), -float(boltz_grad(a)[i]), -math.ulp(0.0))


def concavity(a: Float[ndarray, " n"], i: int) -> Statement:
    """Lemma 5: a_i < max a - log n - 3 implies d^2 boltz / d a_i^2 < 0."""
    return Statement("Lemma 5", bool(a[i] < a.max() - math.log(len(a)) - 3), -float(boltz_hess(a)[i]), -math.ulp(0.0))


def last_entry(a: Float[ndarray, " n"], b: Float[ndarray, " n"], delta: float) -> Statement:
    """Lemma 6, (103): a and b differ in the last entry, max_{i<n} a_i - delta > a_n > b_n, delta > log n + 3 imply

    boltz(b) - boltz(a) > (a_n - b_n)(delta + a_n - b_n - log n - 1) softmax(b)_n.
    """
    n = len(a)
    same = n >= 2 and bool((a[:-1] == b[:-1]).all())
    hypothesis = same and delta > math.log(n) + 3 and bool(a[:-1].max() - delta > a[-1] > b[-1])
    step = float(a[-1] - b[-1])
    right = step * (delta + step - math.log(n) - 1) * float(softmax(b)[-1])
    return Statement("Lemma 6", hypothesis, float(boltz(b) - boltz(a)), right)


def separation(a: Float[ndarray, " n"], b: Float[ndarray, " k"], kind: GapBound = "paper") -> Statement:
    """Lemmas 1 and 7: |boltz(a) - boltz(b)| against `gap_bound`. a and b are sorted here; equal multisets are no
    pair."""
    a, b = np.sort(a)[::-1], np.sort(b)[::-1]
    delta = separation_of(a, b)
    n = max(len(a), len(b))
    needed = math.log(n) + 2 if kind == "sharp" else 2 * math.log(n) + 3
    hypothesis = not np.array_equal(a, b) and delta > needed
    right = gap_bound(a, b, kind) if hypothesis else 0.0
    return Statement(f"Lemma 7 ({kind})", hypothesis, abs(boltz_difference(a, b)), right)


def separation_of(a: Float[ndarray, " n"], b: Float[ndarray, " k"]) -> float:
    """The smallest distance between different values, 0 where a vector repeats one."""
    if len(np.unique(a)) < len(a) or len(np.unique(b)) < len(b):
        return 0.0
    values = np.unique(np.concatenate([a, b]))
    return float(np.diff(values).min()) if len(values) > 1 else math.inf


def first_difference(a: Float[ndarray, " n"], b: Float[ndarray, " k"]) -> int:
    """k such that the k largest entries agree and the next ones do not; min(len) when one is a prefix of the other."""
    m = min(len(a), len(b))
    differs = np.flatnonzero(a[:m] != b[:m])
    return int(differs[0]) if len(differs) else m


def gap_bound(a: Float[ndarray, " n"], b: Float[ndarray, " k"], kind: GapBound = "paper") -> float:
    """A lower bound on |boltz(a) - boltz(b)| for decreasing, delta-separated a != b, first difference after k entries.

    With x > y the two entries there (y = -inf when one vector ends), r > every |entry|, L = log n:
      paper    (L^2) e^{-2r}, needs delta > 2 L + 3                 (16); 0 at n = 1, false for prefixes if n >= 21
      proof    (L^2 + 5 L + 15/2) e^{-2r}, needs delta > 2 L + 3    what (126) gives before constants are dropped
      sharp    0.9 delta e^{-(a_1 - x)} for delta >= 2 L + 3, 0.7 delta e^{-(a_1 - x)} for delta >= L + 2
      masked   0.9 (2 L + 3) e^{-2r}, needs delta >= 2 L + 3        also when one vector is a prefix of the other

    Sharp, for k >= 1 (E = e^-delta, t = a_1 - x >= delta, B = boltz of the common part >= a_1 - delta E/(1-E)^2):
    boltz(a) <= B - (B - x) e^x/(xi + e^x), boltz(b) >= B - (n-k)(B - y) e^y/xi with y <= x - delta, so the gap is at
    least delta e^-t ((1 - E/(1-E)^2)(1 - E) - 2 (n-1) E), which is >= 0.95 delta e^-t at delta = 2 L + 3 and >= 0.72
    at L + 2.
    """
    n, k = max(len(a), len(b)), first_difference(a, b)
    L, r = math.log(n), float(max(np.abs(a).max(), np.abs(b).max()))
    if kind == "paper":
        return L**2 * math.exp(-2 * r)
    if kind == "proof":
        return (L**2 + 5 * L + 7.5) * math.exp(-2 * r)
    if kind == "masked":
        return 0.9 * (2 * L + 3) * math.exp(-2 * r)
    delta = separation_of(a, b)
    if delta < L + 2:
        raise InfoFlowError(f"expected entries {L + 2:.4g} apart (log n + 2), got {delta:.4g}; scale the vectors.")
    x = max(a[k] if k < len(a) else -math.inf, b[k] if k < len(b) else -math.inf)
    return (0.9 if delta >= 2 * L + 3 else 0.7) * delta * math.exp(-(max(a[0], b[0]) - x))


def boltz_difference(a: Float[ndarray, " n"], b: Float[ndarray, " k"]) -> float:
    """boltz(a) - boltz(b) without cancellation: sum_{j<l} (v_j - v_l) w_j w_l (A_j B_l - A_l B_j) / (Z_A Z_B).

    v are the distinct values, A_j, B_j their multiplicities, w_j = e^{v_j}; common parts cancel as integers.
    """
    values, place = np.unique(np.concatenate([a, b]), return_inverse=True)
    A = np.bincount(place[: len(a)], minlength=len(values)).astype(float)
    B = np.bincount(place[len(a) :], minlength=len(values)).astype(float)
    w = np.exp(values - values.max())
    za, zb = float(A @ w), float(B @ w)
    if za == 0.0 or zb == 0.0:  # the two live on scales e^745 apart: nothing cancels
        return float(boltz(a) - boltz(b))
    minors = np.outer(A, B) - np.outer(B, A)
    terms = (values[:, None] - values[None, :]) * np.outer(w, w) * minors
    return float(np.triu(terms, 1).sum() / (za * zb))
