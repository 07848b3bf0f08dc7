"""The pigeonhole step behind the one-layer lower bounds, with every constant derived for the Section 3 model.

The model: one layer, H heads of dimension n, E = H n, embeddings of Euclidean norm at most 1, all weights at most B, a
read-out with one hidden layer of width p and a 1-Lipschitz activation, no layer norm. The inverse temperature is free
and no precision is assumed. Head i forms A_i = sum_t lambda_i v_i / sum_t lambda_i with |v_i| <= V = B sqrt(E) in every
coordinate; the read-out sees c + W_O (A_1..A_H), so that

    |readout - readout'| <= p B^3 E^2 max |A - A'|.                                                                (a)

The sequences: m positions are free, position j takes one of N points of its own block, blocks are ordered, and two
different points move the target by at least s eps (s > 2). The other positions are fixed and, for every head, one of
them carries a weight no free position can exceed; divide the weights of the head by it. With a position code the weight
of a token depends on where it stands, so these are chosen greedily: for head 1 the heaviest pair of position and token
over all positions, for head i over the positions that are left. Tokens fixed for earlier heads may be heavier still,
which only makes denominators larger. The sums over the free positions of lambda v (n numbers in [-m V, m V]) and of
lambda (one in [0, m]) make H (n + 1) numbers. Cut the range of each value sum into c cells and of each weight sum into
ceil(c / 2): as soon as (c^n ceil(c/2))^H < N^m two sequences share all cells. Positions where the two agree may be
refilled with anything that moves no extremum: the differences stay. Denominators are at least 1, so |A - A'| <= 2 m V /
c + V 2 m / c, and with (a) and a model within eps of the target, (s - 2) eps <= the difference of the outputs, that is

    p >= (s - 2) eps c / (4 m E^(5/2) B^4),     c = floor(N^(m / (H (n + 1)))).                                   (b)

(c = floor(.) is allowed: ceil(c/2) < c for c >= 2, so (c^n ceil(c/2))^H < c^(H (n+1)) <= N^m; c = 1 needs N^m > 1.)
"""

from math import exp, floor, inf, log, log1p

STEPS = (2.05, 2.1, 2.2, 2.35, 2.6, 3.0, 4.0)  # s in s eps; any s > 2 is valid, the best one is kept
LARGEST = 1e300  # a lower bound above this is reported as this: still true, and still a number


def log_width(
    span: float,
    free: int,
    heads: int,
    head_dim: int,
    eps: float,
    weight_bound: float = 1.0,
    steps: tuple[float, ...] = STEPS,
) -> float:
    """Natural logarithm of the best (b) over m <= `free` and s, -inf when no grid has two points.

    `span` is how far the target can be moved by the grid: m N s eps <= span.
    """
    best = -inf
    embed, numbers = heads * head_dim, heads * (head_dim + 1)
    for s in steps:
        points = min(span / (s * eps), LARGEST)  # m N <= points; a smaller grid is a grid, too
        for N, m in _grids(points, free):
            log_x = m / numbers * log(N)
            if log_x <= log(2):
                continue  # c = 1: the bound is far below one neuron
            log_c = log_x + log1p(-exp(-log_x)) - 1e-9  # floor(x) >= x - 1, and an allowance for rounding
            constant = log(4 * m) + 2.5 * log(embed) + 4 * log(weight_bound)
            best = max(best, log(s - 2) + log(eps) + log_c - constant)
    return best


def _grids(points: float, free: int) -> list[tuple[int, int]]:
    """(N, m) worth trying: m log N is largest where N is near e, or where all free positions are used."""
    found = []
    full = floor(points / free) if free > 0 else 0
    for N in (2, 3, 4, full, full + 1):
        m = min(free, floor(points / N)) if N >= 2 else 0
        if m >= 1:
            found.append((N, m))
    return found


def width_of(log_value: float) -> float | None:
    """The width as a number: None at or below 1 (no statement), never above `LARGEST`."""
    if log_value <= 0:
        return None
    return LARGEST if log_value > log(LARGEST) else exp(log_value)
