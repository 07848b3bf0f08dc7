"""The Number of Comparison of a model, the smallest information set it implies, and the cost law, in exact arithmetic.

Everything is a closed form in T (never a loop over positions) with integers and fractions. The counts and exponents of
the InfoFlow paper (arXiv:2605.17930v1) are heuristics: they estimate, they do not bound.
"""

from fractions import Fraction
from typing import Literal

Mode = Literal["max", "global", "specific", "skip"]


def token_capacity(heads: tuple[int, ...], T: int) -> tuple[int, ...]:
    """|I(t, l)| <= min(T, prod_{j<=l} (1 + h_j)) for l = 1..L under max-position retrieval."""
    sizes, product = [], 1
    for h in heads:
        product = min(T, product * (1 + h))
        sizes.append(product)
    return tuple(sizes)


def cls_capacity(heads: tuple[int, ...], T: int) -> tuple[int, ...]:
    """|I(T+1, l)| <= min(T, prod_{j<=l} (1 + h_j) - 1) for l = 1..L under max-position retrieval."""
    sizes, product = [], 1
    for h in heads:
        product *= 1 + h
        sizes.append(min(T, product - 1))
    return tuple(sizes)


def attention_count(heads: tuple[int, ...], T: int) -> int:
    """(T - 1) (T sum_{l<L} h_l + sum_l h_l): what softmax compares, T - 1 per head and query."""
    return (T - 1) * (T * sum(heads[:-1]) + sum(heads))


def internal_count(size: int, dimension: int) -> int:
    """max(0, |I|^b1 - 1): what a feed-forward block compares inside one set; an empty set compares nothing."""
    return int(max(0, size**dimension - 1))


def model_count(
    T: int,
    heads: tuple[int, ...],
    token_sizes: tuple[int, ...],
    cls_sizes: tuple[int, ...],
    dimension: int,
    internal_trees: int = 1,
) -> int:
    """Equation (5): sum_{l<L} T [D_1 max(0, a_l^b1 - 1) + h_l (T-1)] + sum_{l<=L} [D_1 max(0, c_l^b1 - 1) + h_l (T-1)].

    `token_sizes` holds a_1..a_{L-1} (an L-th entry is not read: only the CLS moves in the last layer), `cls_sizes`
    c_1..c_L. `internal_trees` is D_1, the trees one feed-forward block runs inside a set: 1 in the paper.
    """
    tokens = sum(internal_count(size, dimension) for size in token_sizes[: len(heads) - 1])
    cls = sum(internal_count(size, dimension) for size in cls_sizes[: len(heads)])
    return attention_count(heads, T) + internal_trees * (T * tokens + cls)


def capacity_count(T: int, heads: tuple[int, ...], dimension: int, internal_trees: int = 1) -> int:
    """(5) at the largest sets max-position retrieval can reach."""
    return model_count(T, heads, token_capacity(heads, T), cls_capacity(heads, T), dimension, internal_trees)


def smallest_set(required: int, T: int, heads: tuple[int, ...], dimension: int, internal_trees: int = 1) -> int:
    """The least M = max |I(t, l)| whose count reaches `required`: 1 when attention alone does, otherwise the least M
    with M^b1 >= 1 + ceil((required - base) / c), base = `attention_count`, c = D_1 (T (L-1) + L). Above T: infeasible.
    """
    missing = required - attention_count(heads, T)
    if missing <= 0:
        return 1
    slots = internal_trees * (T * (len(heads) - 1) + len(heads))
    return ceil_root(1 - (-missing // slots), dimension)


def ceil_root(value: int, degree: int) -> int:
    """The least integer m >= 0 with m^degree >= value, by bisection on integers."""
    if value <= 0:
        return 0
    low, high = 0, 1 << (-(-value.bit_length() // degree))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if middle**degree >= value else (middle, high)
    return high


def cost(size: int, d: int, embed: int) -> Fraction:
    """max(0, |I| d / E - 1), the exponent of max-position retrieval: eps^-cost parameters."""
    return max(Fraction(0), Fraction(size * d, embed) - 1)


def mode_cost(mode: Mode, T: int, d: int, embed: int, size: int = 0, positions: int = 0, source: int = 0) -> Fraction:
    """The cost law of Section 5.2, floored at 0. max: |I| d / E - 1; global: T d / E - 1;
    specific: |I'| max_s |I(s, l)| d / E - 1; a position that skips the layer pays nothing."""
    if mode == "skip":
        return Fraction(0)
    stored = {"max": size, "global": T, "specific": positions * source}[mode]
    return cost(stored, d, embed)


def sizes_at(
    tau: Fraction, T: int, d: int, heads: tuple[int, ...], embed: tuple[int, ...], within_heads: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Set sizes of the tokens and of the CLS that cost at most tau: m_l = min(T, floor(E_l (1 + tau) / d)) positions in
    layer l; `within_heads` adds what max-position retrieval can reach with these heads."""
    sizes = tuple(min(T, int(Fraction(total, d) * (1 + tau))) for total in embed)
    if not within_heads:
        return sizes, sizes
    tokens, cls = token_capacity(heads, T), cls_capacity(heads, T)
    return tuple(map(min, sizes, tokens)), tuple(map(min, sizes, cls))


def count_at(
    tau: Fraction,
    T: int,
    d: int,
    heads: tuple[int, ...],
    embed: tuple[int, ...],
    dimension: int,
    within_heads: bool = False,
) -> int:
    """(5) at the sets of `sizes_at`."""
    return model_count(T, heads, *sizes_at(tau, T, d, heads, embed, within_heads), dimension)


def counting_exponent(
    required: int,
    T: int,
    d: int,
    heads: tuple[int, ...],
    embed: tuple[int, ...],
    dimension: int,
    within_heads: bool = False,
) -> Fraction | None:
    """The least tau >= 0 at which `count_at` reaches `required`; None when no sets do.

    Some set always holds a position, so tau is at least d / max E_l - 1. For equal E_l the result is
    max(0, M d / E - 1) with M = `smallest_set`. The count only changes where E_l (1 + tau) / d is an integer for some
    l, and it never falls: one bisection per layer over k in 1..T finds the least k d / E_l - 1.
    """

    def reaches(tau: Fraction) -> bool:
        return count_at(tau, T, d, heads, embed, dimension, within_heads) >= required

    floor = max(Fraction(0), Fraction(d, max(embed)) - 1)
    if reaches(floor):
        return floor
    best: Fraction | None = None
    for total in dict.fromkeys(embed):
        low, high = 0, T  # breakpoints k d / total - 1; the count at `low` does not reach, at `high` it may
        if not reaches(Fraction(high * d, total) - 1):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            tau = Fraction(middle * d, total) - 1
            low, high = (low, middle) if tau >= floor and reaches(tau) else (middle, high)
        found = Fraction(high * d, total) - 1
        best = found if best is None or found < best else best
    return best


def one_layer_count(heads: int, T: int) -> int:
    """h T - 1: (5) for one layer, dimension 1 and h <= T heads (the paper's text says h (T - 1))."""
    return model_count(T, (heads,), (), (min(T, heads),), 1)
