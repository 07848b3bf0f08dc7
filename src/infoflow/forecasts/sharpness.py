"""How sharp a read must be: the error that softmax at a given temperature leaves when it follows the right score.

For each term with token scores s(t) (in units of their deviation), values v(t) and winner t*, a head that follows s at
inverse temperature b returns sum_t softmax_t(b s) v(t). Its error, up to a constant that the read-out can add, is

    E |read - v(t*) - mean|^2 / E |v(t*) - mean|^2,

averaged over the terms. It falls like a power of 1/b for maxima of densities and exponentially for positions; training
lets b grow with its steps, so this says how long sharpening takes, without a step of training.
"""

from math import log10

import numpy as np

from infoflow.forecasts.states import messages
from infoflow.targets import KthLargest, PositionSum, Target, Term, ValueAtExtremum

SEQUENCES, SEED = 500, 5
LEAST = 1e-5  # softer reads than this are no obstacle


def soft_error(target: Target, T: int, inverse: float) -> float:
    """log10 of the error of reads at this inverse temperature, between log10 LEAST and 0."""
    X = target.sample(SEQUENCES, T, seed=SEED)
    found = [_soft(scores, values, inverse) for term in target.terms for scores, values in [_read(term, X)]]
    return log10(min(max(float(np.mean(found)), LEAST), 1.0))


def _read(term: Term, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores (N, T) and values (N, T, m) of the tokens; of a function of the whole sequence nothing is known."""
    known = messages(term, X)
    if known is None:
        scores = np.random.default_rng(SEED).standard_normal(X.shape[:2])
        return scores, scores[..., None]
    if isinstance(term, ValueAtExtremum):
        return known.total, term.read(np.roll(X, -term.shift, axis=1))
    if isinstance(term, KthLargest):
        return known.total, (X @ term.direction)[..., None]
    return known.total, X if isinstance(term, PositionSum) else known.total[..., None]


def _soft(scores: np.ndarray, values: np.ndarray, inverse: float) -> float:
    scores = (scores - scores.max(1, keepdims=True)) / max(scores.std(), 1e-9)
    best = (scores >= -1e-9)[..., None]
    wanted = (values * best).sum(1) / best.sum(1)
    weights = np.exp(inverse * scores)[..., None]
    missed = (weights * values).sum(1) / weights.sum(1) - wanted
    return float((missed - missed.mean(0)).var(0).sum() / max((wanted - wanted.mean(0)).var(0).sum(), 1e-12))
