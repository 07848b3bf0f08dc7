"""Closed forms of the papers that nothing else needs, as printed and as they should read."""

from fractions import Fraction


def printed_47(T: int, h1: int, h2: int) -> int:
    """InfoFlow (47): what two layers with max-position retrieval are said to compare at most, dimension 2."""
    return T * (h1 + 1) ** 2 - T + h1 * T * (T - 1) + h1**2 + (h1 + 1) ** 2 * (h2 + 1) ** 2 - 2 + 2 * (T - 1)


def repaired_47(T: int, h1: int, h2: int) -> int:
    """The same with (h1 + h2)(T - 1) for 2(T - 1), and the CLS set of size (h1+1)(h2+1) - 1:

    T ((h1+1)^2 - 1) + h1 T (T-1) + h1^2 - 1 + ((h1+1)(h2+1) - 1)^2 - 1 + (h1+h2)(T-1).
    """
    inside = T * ((h1 + 1) ** 2 - 1) + h1**2 - 1 + ((h1 + 1) * (h2 + 1) - 1) ** 2 - 1
    return inside + h1 * T * (T - 1) + (h1 + h2) * (T - 1)


def informal_theorem_1(T: int, heads: int, head_dim: int) -> Fraction:
    """InfoFlow Theorem 1 as stated informally: (T - 2H)/(H(n+1)+1) - 1."""
    return Fraction(T - 2 * heads, heads * (head_dim + 1) + 1) - 1


def printed_triangle(T: int, layers: int, embed: int) -> float:
    """InfoFlow Section 6.2: the exponent T^(2/3)/(6 L E) - 1, without d and with 6L for its cube root."""
    return float(T ** (2 / 3) / (6 * layers * embed) - 1)


def corollary_1_margin(D1: int, D2: int, head_dim: int) -> Fraction:
    """Head count, Corollary 1: the exponent k that D1 heads face at the shortest T the corollary admits, D1 < D2.

    A target with representations of dimensions D1 < D2 could be approximated with eps^-gamma parameters (the first, h =
    D1 heads) and not with fewer than eps^-k (the second): a contradiction exactly when k > gamma.
    """
    T = 50 * (D1**2 + D2**2)
    return (Fraction(T, 4) - D1 - D2 + 1) / ((head_dim + 1) * D1 + 1) - 1
