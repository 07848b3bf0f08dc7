"""How sharp attention must become: every extremum replaced by softmax averages, without any network.

    soft(t) = sum_s p_s (score(t, s) + soft(s)),   p = softmax(beta (score(t, s) + soft(s)))

edge by edge up the tree of a score, then over the root, as attention layers do it (minima with the sign turned); scores
without a tree average over all their tuples at once. NMSE is the mean squared error over inputs from the target's
sampler, after the best scale and offset (a read-out has both for free), divided by the target's variance.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from infoflow.errors import InfoFlowError
from infoflow.targets import Extremum, PositionSum, Target, Term, TreeScore, tree_form

LEVELS = (1e-2, 1e-3, 1e-4)
MOST_TUPLES = 1 << 20  # enumerated tuples of one input
LARGEST_BETA = 2.0**40  # beta beyond which the search gives up
WORK = 1 << 24  # scores held at once


@dataclass(frozen=True)
class Temperature:
    """`beta[i]` is the least inverse temperature found with NMSE at most `nmse_at[i]` (None: not below 2^40);
    `logit_std[i]` is beta times the standard deviation of the scores, what training has to reach."""

    beta: tuple[float | None, ...]
    logit_std: tuple[float | None, ...]
    nmse_at: tuple[float, ...]
    score_std: float
    nmse_at_beta_1: float
    samples: int


def temperature(target: Target, T: int, samples: int = 128, seed: int = 0) -> Temperature:
    """Search beta by doubling and bisection on one fixed sample."""
    samples = min(samples, _affordable(target, T))
    X = np.asarray(target.sample(samples, T, seed=seed))
    truth = np.asarray(target(X)).reshape(samples, -1)
    if not truth.var(axis=0).all():
        raise InfoFlowError("expected a target that varies over its samples, got a constant one.")

    averages = [_averages(term, X) for term in target.terms]

    def nmse(beta: float) -> float:
        values = np.concatenate([average(beta) for average in averages], axis=-1)
        return affine_nmse(np.asarray(target.outer(values)).reshape(samples, -1), truth)

    std = float(np.mean([_score_std(term, X) for term in target.terms if isinstance(term, Extremum)] or [0.0]))
    betas: list[float | None] = []
    low: float | None = 0.0
    for level in LEVELS:
        low = None if low is None else _least(nmse, level, low, 0.25 / std if std > 0 else 1.0)
        betas.append(low)
    logits = tuple(None if beta is None else beta * std for beta in betas)
    return Temperature(tuple(betas), logits, LEVELS, std, nmse(1.0), samples)


def affine_nmse(soft: Float[np.ndarray, "B outputs"], truth: Float[np.ndarray, "B outputs"]) -> float:
    """Mean over the outputs of the least mean squared error of a soft + b, over the variance: 1 - correlation^2."""
    soft, truth = soft - soft.mean(axis=0), truth - truth.mean(axis=0)
    power = (soft**2).sum(axis=0)
    scale = (soft * truth).sum(axis=0) / np.where(power > 0, power, 1.0)
    return float((((scale * soft - truth) ** 2).sum(axis=0) / (truth**2).sum(axis=0)).mean())


def _affordable(target: Target, T: int) -> int:
    """How many inputs may be sampled; refuses targets that no softmax average tends to or that enumerate too much."""
    most = WORK
    for term in target.terms:
        if not isinstance(term, (Extremum, PositionSum)):
            raise InfoFlowError(
                "expected extrema for --temperature, got a k-th largest value or a value read at an extremum."
            )
        if isinstance(term, Extremum) and not _by_tree(term):
            if T**term.arity > MOST_TUPLES:
                raise InfoFlowError(f"expected T^{term.arity} <= {MOST_TUPLES} tuples for --temperature, got T={T}.")
            most = min(most, max(32, WORK // T**term.arity))
    return most


def _least(nmse: Callable[[float], float], level: float, low: float, step: float) -> float | None:
    """The least beta >= low, to half a percent, where NMSE is at most `level`, taking it to fall with beta."""
    if nmse(low) <= level:
        return low
    high = max(2 * low, step)
    while nmse(high) > level:
        low, high = high, 2 * high
        if high > LARGEST_BETA:
            return None
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (low, middle) if nmse(middle) <= level else (middle, high)
    return high


def _averages(term: Term, X: Float[np.ndarray, "B T d"]) -> Callable[[float], Float[np.ndarray, "B values"]]:
    """The softmax average of a term as a function of beta."""
    if isinstance(term, PositionSum):
        exact = np.asarray(term.value(X[:, list(term.positions)]))
        return lambda beta: exact
    assert isinstance(term, Extremum)
    sign = 1.0 if term.kind == "max" else -1.0
    tree = tree_form(term.score)
    if tree is not None and _by_tree(term):
        rows = max(1, WORK // X.shape[1] ** 2)
        parts = [X[low : low + rows] for low in range(0, len(X), rows)]
        return lambda beta: sign * np.concatenate([_tree_average(term, tree, x, sign, beta) for x in parts])[:, None]
    tuples = _tuples(term, X.shape[1])
    scores = np.array([sign * np.asarray(term.score(tokens[tuples])) for tokens in X])
    return lambda beta: sign * _average(scores, np.zeros(len(tuples)), beta)[:, None]


def _by_tree(term: Extremum) -> bool:
    return tree_form(term.score) is not None and not term.distinct


def _tree_average(term: Extremum, tree: TreeScore, X: np.ndarray, sign: float, beta: float) -> np.ndarray:
    allowed = _allowed(term, X.shape[1])

    def gather(vertex: int, parent: int | None) -> np.ndarray:
        """(B, T): the score of the part below, with this vertex at every position."""
        unary = tree.unary[vertex]
        total = np.zeros(X.shape[:2]) if unary is None else sign * np.asarray(unary(X))[..., 0]
        for edge in tree.edges:
            child = edge.w if edge.v == vertex else edge.v
            if vertex in (edge.v, edge.w) and child != parent:
                turned = edge.toward(vertex)
                score = sign * np.asarray(turned.left(X)) @ np.swapaxes(np.asarray(turned.right(X)), 1, 2)
                total = total + _average(score + gather(child, vertex)[:, None, :], allowed[child], beta)
        return total

    return _average(gather(0, None), allowed[0], beta)


def _average(score: np.ndarray, allowed: np.ndarray, beta: float) -> np.ndarray:
    """Softmax average over the last axis."""
    logits = beta * score + allowed
    weight = np.exp(logits - logits.max(axis=-1, keepdims=True))
    average: np.ndarray = (weight * score).sum(axis=-1) / weight.sum(axis=-1)
    return average


def _tuples(term: Extremum, T: int) -> np.ndarray:
    grids = np.meshgrid(*term.choices(T), indexing="ij")
    tuples = np.stack([grid.ravel() for grid in grids], axis=1)
    if term.distinct:
        ordered = np.sort(tuples, axis=1)
        tuples = tuples[(ordered[:, 1:] != ordered[:, :-1]).all(axis=1)]
    return tuples


def _allowed(term: Extremum, T: int) -> list[np.ndarray]:
    """0 where a vertex may stand, -inf elsewhere."""
    masks = [np.full(T, -np.inf) for _ in range(term.arity)]
    for mask, positions in zip(masks, term.choices(T), strict=True):
        mask[positions] = 0.0
    return masks


def _score_std(term: Extremum, X: np.ndarray, draws: int = 1 << 16) -> float:
    """Standard deviation of the score over random tuples of the sampled inputs."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(X), draws)
    columns = [choice[rng.integers(0, len(choice), draws)] for choice in term.choices(X.shape[1])]
    return float(np.std(np.asarray(term.score(X[rows[:, None], np.stack(columns, axis=1)]))))
