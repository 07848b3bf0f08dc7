"""A target's values as the largest of finitely many forms (`forms.py`), for short sequences.

max over tuples (t_1..t_k) of a score is the largest of at most T^k pieces, each a polynomial of the tokens (a minimum:
the negative of the largest negative). A sum over fixed positions is one piece.
"""

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from infoflow.proofs.forms import AffineForm, constant, stacked
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import NormOfSum, TreeScore
from infoflow.targets.target import Target
from infoflow.targets.terms import Extremum, KthLargest, PositionSum, Term

MOST_PIECES = 64
MOST_LISTED = 100_000  # tuples, with repetitions, that are listed to count those without: T may be absurd


@dataclass(frozen=True, eq=False)
class Pieces:
    """One value of the target is sign times the largest of these forms (boxes, pieces)."""

    forms: AffineForm
    sign: float


def uncovered(target: Target, T: int) -> str | None:
    """Why the target is no sum of largest pieces; None when it is."""
    if not isinstance(target.outer, Polynomial) or target.outer.degree > 1:
        return "its outer map is not a weighted sum"
    for number, term in enumerate(target.terms, 1):
        if isinstance(term, PositionSum) or (isinstance(term, KthLargest) and term.k == 1):
            continue
        if not isinstance(term, Extremum):
            return f"term {number} is no extremum"
        if not isinstance(term.score, TreeScore | NormOfSum):
            return f"term {number} has a score that is not known as a polynomial"
        most = prod(map(len, term.ranges(T)))
        if most > MOST_LISTED or len(tuples(term, T)) > MOST_PIECES:
            return f"term {number} compares up to {most:.6g} tuples, more than {MOST_PIECES}"
    return None


def symmetric(target: Target) -> bool:
    """Whether the order of the tokens does not matter."""
    return all(isinstance(term, KthLargest) or getattr(term, "sets", 0) is None for term in target.terms)


def tuples(term: Extremum, T: int) -> list[tuple[int, ...]]:
    every = product(*term.ranges(T))
    return [t for t in every if not term.distinct or len(set(t)) == len(t)]


def values(target: Target, tokens: AffineForm) -> list[Pieces]:
    """Every value of the target's terms at tokens (boxes, T, d), in the order of the outer map's columns."""
    return [found for term in target.terms for found in _values(term, tokens)]


def _values(term: Term, tokens: AffineForm) -> list[Pieces]:
    if isinstance(term, PositionSum):
        total = tokens[:, term.positions[0]]
        for position in term.positions[1:]:
            total = total + tokens[:, position]
        return [Pieces(total[:, j : j + 1], 1.0) for j in range(term.dim)]
    if isinstance(term, KthLargest):
        return [Pieces(tokens.mapped(term.direction[None])[:, :, 0], 1.0)]
    assert isinstance(term, Extremum)
    sign = 1.0 if term.kind == "max" else -1.0
    pieces = [score_form(term.score, [tokens[:, t] for t in at]) for at in tuples(term, tokens.c.shape[1])]
    return [Pieces(stacked(pieces, -1).times(sign), sign)]


def score_form(score: object, at: list[AffineForm]) -> AffineForm:
    """The score of k tokens (boxes, d) each, as (boxes,)."""
    if isinstance(score, NormOfSum):
        total = at[0]
        for x in at[1:]:
            total = total + x
        return (total * total).sum()
    assert isinstance(score, TreeScore)
    parts = [polynomial_form(u, x)[:, 0] for u, x in zip(score.unary, at, strict=True) if u is not None]
    parts += [(polynomial_form(e.left, at[e.v]) * polynomial_form(e.right, at[e.w])).sum() for e in score.edges]
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found


def polynomial_form(p: Polynomial, x: AffineForm) -> AffineForm:
    """p(x) for x (boxes, d), as (boxes, outputs)."""
    n, count = len(x.a), len(x.c)
    monomials = []
    for exponent in p.exponents.tolist():
        factors = [x[:, i] for i, power in enumerate(exponent) for _ in range(power)]
        found = constant(np.ones(count), n) if not factors else factors[0]
        for factor in factors[1:]:
            found = found * factor
        monomials.append(found)
    return stacked(monomials, -1).mapped(p.coefficients)
