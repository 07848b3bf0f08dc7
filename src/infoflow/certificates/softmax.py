"""How far a softmax average stays below the maximum, with the sharp constant.

For every score vector rho of length T and every beta > 0

    0 <= max(rho) - sum_s p_s rho_s <= W((T-1)/e) / beta,      p = softmax(beta rho),

W the Lambert function, and the constant is attained: one score at the top, T-1 scores (1+W)/beta below it. Proof: put
u_s = beta (max - rho_s); stationarity of sum u e^-u / sum e^-u gives u_s = 1 + w for all s but one, w e^w = (T-1)/e.
"""

import math


def lambert_w(y: float) -> float:
    """W(y) for y >= 0, rounded upwards: Newton for w e^w = y converges from above because w e^w is convex."""
    if y <= 0.0:
        return 0.0
    w = math.log1p(y)  # log(1+y) >= W(y)
    for _ in range(50):
        step = (w - y * math.exp(-w)) / (1.0 + w)
        if step <= 1e-15 * w:
            break
        w -= step
    return w * (1.0 + 1e-14)


def softmax_gap(T: int, beta: float = 1.0) -> float:
    """The largest value of max(rho) - soft(rho) over score vectors of length T."""
    return lambert_w((T - 1) / math.e) / beta


def worst_scores(T: int, beta: float) -> list[float]:
    """The score vector that attains the gap."""
    w = lambert_w((T - 1) / math.e)
    return [0.0] + [-(1.0 + w) / beta] * (T - 1)
