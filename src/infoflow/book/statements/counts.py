"""Remark E.1, counted: heads, dense parameters and non-zeros, from the built object and by formula.

The paper counts O(1) parameters per head and dn g^{2dn} in all. With a shared A the vectors w, t sit in W_Q (d + n
numbers), and W_O is p x g^{dn}: with p = g^{dn}, as stated, layer 1 has 2d g^{dn} (5(d+n+2) + p g^{dn}) dense entries.
"""

from dataclasses import dataclass

from infoflow.construct.softmax_attention.grid import GridApproximator
from infoflow.errors import InfoFlowError


@dataclass(frozen=True)
class Counts:
    """Heads, dense weights and nonzero weights of a construction."""

    heads: int
    dense: int
    nonzero: int


def counted(net: GridApproximator) -> Counts:
    """Layer 1 of the built network, matrix by matrix."""
    if net.variant == "quadratic":
        raise InfoFlowError("expected a network with attention heads, got the quadratic variant; it has none.")
    heads = net.first_layer()
    return Counts(len(heads), sum(head.parameters for head in heads), sum(head.nonzeros for head in heads))


def formula(d: int, n: int, g: int, p: int, paper_heads: bool) -> Counts:
    """Layer 1 by formula; non-zeros are an upper bound (a bias t_k may vanish).

    Per head: W_Q holds w (1), t (n), ones (n); W_K 2; W_V 1; W_O n entries for one cell, or n g^{dn-1} for one level.
    """
    cells = g ** (d * n)
    heads = 2 * d * (cells if paper_heads else g)
    read = n if paper_heads else n * cells // g
    return Counts(heads, heads * (5 * (d + n + 2) + p * cells), heads * (1 + 2 * n + 2 + 1 + read))


def claimed(d: int, n: int, g: int) -> int:
    """The paper's order: dn g^{2dn} + (dn)^2."""
    return int(d * n * g ** (2 * d * n) + (d * n) ** 2)


def head_formula(d: int, n: int, g: int, outputs: int) -> dict[str, int]:
    """2dg + outputs and the paper's 2d g^{dn} + outputs, for the two-layer network."""
    return {"factored": 2 * d * g + outputs, "paper": 2 * d * g ** (d * n) + outputs}
