"""How far a winner's value can lie above a softmax average, for every sequence of a box: the numbers G.

Let tokens lie in a box with sides `widths`, let k tokens win (the k largest a' x), and let a head average with weights
e^(q' x). For a direction r and m = sum_t p_t x(t)

    r' x* - r' m = sum_t p_t r' (x* - x(t)) <= G = sup over delta of  r' delta n e^(-q' delta) / (1 + n e^(-q' delta)),

delta = x* - y over the differences of two tokens, n = losers / winners. Proof: the left side is at most lambda when
sum_t e^(q' x(t)) (r' x* - r' x(t) - lambda) <= 0. Each summand depends on its own token alone, so the worst losers all
coincide, and the worst winners coincide with x* (another winner only adds weight to a summand that is not positive).

The fraction falls in v = q' delta, so for each u = r' delta only the least v counts: the lower hull of a zonotope in
the plane, a convex chain of edges v = alpha + beta u. On one edge u / (1 + e^(alpha + beta u) / n) rises up to
u = (1 + y) / beta, y e^y = n e^(-1-alpha) (Lambert's function), where it is y / beta, and falls beyond; with beta <= 0
it rises throughout. So G is the largest of finitely many closed forms, for any T and d. Rounding: alpha is lowered and
the result raised by more than the errors of the sums (`SLACK` per unit of what is summed). An edge may be far shorter
than a unit in the last place of u and still change v by all of 2 |q_j| width_j, so u and v are added up apart.
"""

import math

import numpy as np
from jaxtyping import Float

SLACK = 1e-12
FLAT = 1e-100  # share of r below which an entry is left out: its edge is too steep for float64, its own gap is added
LINES = 65  # supporting lines of the hull where a margin cuts the zonotope

Vector = Float[np.ndarray, " d"]


def gap(r: Vector, q: Vector, ratio: float, widths: Vector, query_error: Vector | float = 0.0) -> float:
    """G for direction r, query q and n = ratio, rounded upwards; `query_error` bounds the error of q entry by entry."""
    if ratio <= 0.0:
        return 0.0
    slack = query_slack(q, widths, query_error)
    flat = np.abs(r) <= FLAT * np.abs(r).max(initial=0.0)
    rest, r = float(np.abs(r[flat]) @ widths[flat]), np.where(flat, 0.0, r)
    with np.errstate(over="ignore", invalid="ignore"):
        reach = float(np.abs(r) @ widths)
        v = -float((np.sign(r) * q)[~flat] @ widths[~flat]) - float(np.abs(q)[flat] @ widths[flat])
    u = -reach
    if not (math.isfinite(reach) and math.isfinite(v)):
        return math.inf
    best = 0.0
    for j in sorted(np.flatnonzero(~flat), key=lambda i: q[i] / r[i]):
        slope, side = float(q[j] / r[j]), 2.0 * float(widths[j])
        next_u = u + abs(float(r[j])) * side
        if next_u > 0.0:
            alpha = v - slope * u - slack - SLACK * abs(slope) * reach  # u is known to a few units of `reach`
            best = max(best, on_edge(max(u, 0.0), next_u, alpha, slope, ratio))
        u, v = next_u, v + float(np.sign(r[j]) * q[j]) * side  # not slope (next_u - u): a short edge is lost in u
    return best + rest + SLACK * reach


def gap_with_margin(
    r: Vector, a: Vector, margin: float, q: Vector, ratio: float, widths: Vector, query_error: Vector | float = 0.0
) -> float:
    """G over the delta with a' delta >= margin: the winner leads by the margin; -inf where no two tokens do.

    For every beta and mu >= 0 the least q' delta at r' delta = u is at least

        beta u + mu margin - sum_j |q - beta r - mu a|_j widths_j,

    a line below the hull; the largest of its values over finitely many (beta, mu) is a chain below the hull.
    """
    if float(np.abs(a) @ widths) < margin:
        return -math.inf
    if ratio <= 0.0:
        return 0.0
    reach = float(np.abs(r) @ widths) * (1.0 + SLACK)
    slack = query_slack(q, widths, query_error)
    ends = np.linspace(0.0, reach, LINES)
    best = 0.0
    for low, high in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        beta, mu = _support(r, a, margin, q, widths, 0.5 * (low + high))
        level = mu * margin - float(np.abs(q - beta * r - mu * a) @ widths)
        size = SLACK * (abs(mu * margin) + float((np.abs(q) + np.abs(beta * r) + np.abs(mu * a)) @ widths))
        best = max(best, on_edge(low, high, level - slack - size, beta, ratio))
    return best


def _support(r: Vector, a: Vector, margin: float, q: Vector, widths: Vector, u: float) -> tuple[float, float]:
    """(beta, mu) of the steepest supporting line at u: the dual of min q' delta; any answer is sound."""
    from scipy.optimize import linprog

    box = [(-w, w) for w in widths.tolist()]
    found = linprog(q, A_ub=-a[None], b_ub=[-margin], A_eq=r[None], b_eq=[u], bounds=box, method="highs")
    if found.status != 0:
        return 0.0, 0.0
    return float(found.eqlin.marginals[0]), max(0.0, -float(found.ineqlin.marginals[0]))


def on_edge(low: float, high: float, alpha: float, beta: float, ratio: float) -> float:
    """sup over [low, high] of u / (1 + e^(alpha + beta u) / ratio), low >= 0, rounded upwards; at most `high`, also
    where the edge is no line of numbers."""
    if not (math.isfinite(alpha) and math.isfinite(beta)):
        return high

    def value(u: float) -> float:
        return u / (1.0 + math.exp(min(alpha + beta * u - math.log(ratio), 700.0)))

    if beta <= 0.0:
        return max(value(high), 0.0) * (1.0 + SLACK)
    y = lambert_of_exp(math.log(ratio) - 1.0 - alpha)
    top = (1.0 + y) / beta
    if top <= low * (1.0 - SLACK):
        return value(low) * (1.0 + SLACK)
    if top >= high * (1.0 + SLACK):
        return value(high) * (1.0 + SLACK)
    return y / beta * (1.0 + SLACK)


def lambert_of_exp(x: float) -> float:
    """W(e^x), rounded upwards: the root of y + log y = x, by Newton's steps."""
    if x < -700.0:
        return math.exp(-700.0)
    y = math.exp(x) if x < 0.0 else max(1.0, x)
    for _ in range(60):
        step = (y + math.log(y) - x) / (1.0 + 1.0 / y)
        y = y - step if y - step > 0.0 else 0.5 * y
        if abs(step) <= 1e-15 * y:
            break
    return y * (1.0 + 1e-13)


def query_slack(q: Vector, widths: Vector, query_error: Vector | float) -> float:
    """|q' delta| is off by this at most: the error of q, and of the sums."""
    wrong = np.broadcast_to(np.asarray(query_error, dtype=np.float64), q.shape)
    return float(wrong @ widths) + SLACK * float(np.abs(q) @ widths)
