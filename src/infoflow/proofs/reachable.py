"""Linear inequalities that the h softmax averages of one sequence satisfy together.

Convexity. m_k is the gradient of the convex function A(q) = log sum_t e^(q' x(t)) at q_k, so numbers A_k exist with

    A_l >= A_k + (q_l - q_k)' m_k      for all k, l        (the m_k are cyclically monotone).

Two heads, one winner. For every direction v, v' m_k <= max_t v' x(t) <= v' m_l + G(v, q_l) (`gaps.py`), and the same
for -v with the heads exchanged.

Two heads that nearly agree. The weights of heads k and l have a ratio e^((q_k - q_l)' x), whose logarithm varies by at
most rho = sum_j |q_k - q_l|_j width_j over the box. Two laws with such a ratio differ by at most tanh(rho / 4) in total
variation, so v' (m_k - m_l) <= tanh(rho / 4) sum_j |v_j| width_j. (At T = 1 both are the token itself.)

Proof of the tanh. Let the ratio dP/dQ take values in [x, x e^rho] with mean one under Q. P(A) - Q(A) is largest for a
law on the two ends; with mass s at the upper one, TV = s (1 - s) (e^rho - 1) / (1 + s (e^rho - 1)), largest at
s = 1 / (1 + e^(rho/2)), where it is (e^(rho/2) - 1) / (e^(rho/2) + 1) = tanh(rho / 4).
"""

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from jaxtyping import Float

from infoflow.proofs.gaps import gap
from infoflow.proofs.inequalities import Bracketed
from infoflow.proofs.reduce import Reduced


@dataclass(frozen=True, eq=False)
class Cuts:
    """rows (m, A) <= limits: h d columns for the averages, h for the numbers A_k."""

    rows: Float[np.ndarray, "cuts columns"]
    limits: Float[np.ndarray, " cuts"]


def cuts(reduced: Reduced, bracketed: Bracketed, T: int, low: np.ndarray, high: np.ndarray) -> Cuts:
    h, d, widths = reduced.heads, reduced.dim, high - low
    largest = np.maximum(np.abs(low), np.abs(high))
    rows, limits = [], []
    directions = _directions(reduced, bracketed)
    G = np.array(
        [[_gap(v, reduced, k, T, widths) for k in range(h)] for v in (*directions, *(-v for v in directions))]
    ).reshape(2, len(directions), h)
    for k, l in permutations(range(h), 2):
        step = reduced.queries[l] - reduced.queries[k]
        wrong = reduced.query_error[l] + reduced.query_error[k]
        convex = np.zeros(h * d + h)
        convex[k * d : (k + 1) * d], convex[h * d + k], convex[h * d + l] = step, 1.0, -1.0
        rows.append(convex)
        limits.append(float((wrong + 1e-15 * np.abs(step)) @ largest))
        rho = float((np.abs(step) + wrong) @ widths)
        share = 0.0 if T == 1 else math.tanh(0.25 * rho) * (1.0 + 1e-12)
        for i, v in enumerate(directions):
            row = np.zeros(h * d + h)
            row[k * d : (k + 1) * d], row[l * d : (l + 1) * d] = v, -v
            limit = min(share * float(np.abs(v) @ widths), G[0, i, l], G[1, i, k])
            if limit < float(np.abs(v) @ widths):
                rows.append(row)
                limits.append(limit)
    return Cuts(np.array(rows).reshape(-1, h * d + h), np.array(limits))


def _gap(v: np.ndarray, reduced: Reduced, k: int, T: int, widths: np.ndarray) -> float:
    return gap(v, reduced.queries[k], T - 1.0, widths, reduced.query_error[k])


def _directions(reduced: Reduced, bracketed: Bracketed) -> list[np.ndarray]:
    """Both signs of the target's directions, of the coordinates and of the queries, each once."""
    found: list[np.ndarray] = []
    d = reduced.dim
    wanted = [*(value.upper[0][0, :d] for value in bracketed.values), *np.eye(d), *reduced.queries]
    for v in wanted:
        size = float(np.abs(v).max(initial=0.0))
        for w in (v / size, -v / size) if size > 0.0 else ():
            if not any(np.allclose(w, old, rtol=0.0, atol=1e-9) for old in found):
                found.append(w)
    return found
