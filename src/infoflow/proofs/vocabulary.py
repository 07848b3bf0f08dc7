"""certify over a table of token vectors: sup |network - target| over the V^T sequences of a finite vocabulary.

A network that takes vectors is one that takes token numbers once its tokens come from a table: token v has the scores
q_k' x_v and the vectors w_k x_v (`tabled.py`). Targets are those with one winner: the largest or least of any function
of the token (max of K), and what is read at the winner (argmax, recall by one fixed question). Sequences with the same
winner have the same target, so groups by their largest tokens serve here as they do for accuracy, and no sequence is
listed. Float64 loses what `Tabled.slack` and the two errors of `Reduced` allow for.
"""

import time
from itertools import combinations_with_replacement, islice
from math import comb
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from infoflow import arguments, cost
from infoflow.certificates import Certificate, Claim, stated_limit
from infoflow.certificates.attack import Attack
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer
from infoflow.proofs.accuracy import expect_room, largest_error
from infoflow.proofs.reduce import ARITHMETIC, ASSUMPTIONS, STEEPEST, Reduced, reduce
from infoflow.proofs.tabled import Tabled
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.target import Target
from infoflow.targets.terms import Extremum, KthLargest, ValueAtExtremum

MOST_LISTED = 200_000  # multisets that are all run through the network; of more, so many are drawn
CHUNK = 4096
MOST_TOKENS = 4096
LARGEST_TOKEN = 1e30  # scores of larger ones are unknown to float64, and their products leave it


def certify_vocabulary(
    network: Transformer,
    target: Target,
    T: int,
    vocabulary: Any,
    seconds: float = 10.0,
    seed: int = 0,
    eps: float | None = None,
) -> Certificate:
    """The proved largest error over all sequences of T rows of `vocabulary` (V, d), and the largest error seen."""
    begin = time.monotonic()
    table = np.asarray(arguments.array("the vocabulary", vocabulary), dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != target.dim or not 1 <= len(table) <= MOST_TOKENS:
        raise InfoFlowError(
            f"expected a vocabulary of 1 to {MOST_TOKENS} tokens with {target.dim} numbers each, got {table.shape}."
        )
    if np.abs(table).max() > LARGEST_TOKEN:
        raise InfoFlowError(f"expected token vectors of at most {LARGEST_TOKEN:g}, got {np.abs(table).max():g}.")
    reduced = reduce(network)
    if reduced.dim != target.dim or len(reduced.constant) != target.outputs:
        raise InfoFlowError(f"expected a network from {target.dim} numbers to {target.outputs}, got another.")
    target.check_length(T)
    expect_room(len(table), T)
    cost.memory(3 * 8 * CHUNK * T * target.dim, f"{CHUNK} sequences of T={T} tokens", "T")
    rank, truth = winners(target, table)
    found = [
        largest_error(tabled_by(reduced, table, o), rank, truth[:, o], T, seconds / target.outputs)
        for o in range(target.outputs)
    ]
    rounding = off_by(reduced, table, T)
    most = max(each[0] for each in found) + rounding
    bound = most if np.isfinite(most) else None
    reasons = () if bound is not None else ("its scores are so large that float64 does not know them",)
    seen = attacked(network, target, T, table, seed)
    over = f"all {len(table)}^{T} sequences of the vocabulary"
    name = f"|network - {target.spelling or 'the given target'}|"
    certificate = Certificate(
        Claim(name, stated_limit(bound) if eps is None else eps, over),
        bound,
        ARITHMETIC,
        ASSUMPTIONS,
        reasons=reasons,
        parts={} if bound is None else {"largest over all groups": bound - rounding, "rounding": rounding},
        measured={"groups": float(sum(each[2] for each in found)), "sequences run": float(seen.tried)},
        seconds=time.monotonic() - begin,
        worst=seen.worst.tolist(),
    )
    return certificate.with_attack(seen.error)


def winners(target: Target, table: Float[np.ndarray, "V d"]) -> tuple[np.ndarray, np.ndarray]:
    """(what the winner has most of (V,), the target where token v wins (V, outputs)), or why there is no winner."""
    if not isinstance(target.outer, Polynomial) or target.outer.degree > 1 or len(target.terms) != 1:
        raise InfoFlowError(
            "expected a target with one extremum and an affine outer map over a vocabulary, got another."
        )
    (term,) = target.terms
    inner = term.extremum if isinstance(term, ValueAtExtremum) else term
    if isinstance(inner, KthLargest) and inner.k == 1:
        rank = table @ inner.direction
    elif isinstance(inner, Extremum) and inner.arity == 1 and inner.sets is None:
        rank = np.asarray(inner.score(table[:, None]), dtype=np.float64).reshape(len(table))
        rank = rank if inner.kind == "max" else -rank
    else:
        raise InfoFlowError("expected an extremum over single tokens at all positions, got another term.")
    read = isinstance(term, ValueAtExtremum)
    values = np.asarray(term.value(table[:, None])) if read else np.asarray(inner.value(table[:, None]))
    weight, constant = target.outer.affine()
    truth = values.reshape(len(table), -1) @ weight.T + constant
    order = np.argsort(rank, kind="stable")
    tied = np.diff(rank[order]) <= 1e-12 * (1.0 + np.abs(rank[order[1:]]))
    if read and (tied & (np.abs(np.diff(truth[order], axis=0)).max(1) > 1e-12)).any():
        raise InfoFlowError(
            "expected one winner of every sequence, but two tokens of the vocabulary have equal scores."
        )
    return rank, truth


def tabled_by(reduced: Reduced, table: Float[np.ndarray, "V d"], output: int) -> Tabled:
    """What the network makes of each row of the table, for one of its outputs."""
    d = reduced.dim
    vectors = [table @ reduced.weight[:, k * d : (k + 1) * d].T for k in range(reduced.heads)]
    return Tabled(
        reduced.queries @ table.T,
        np.stack(vectors),
        reduced.bias,
        reduced.output[output : output + 1],
        reduced.constant[output : output + 1],
        reduced.activation,
    )


def off_by(reduced: Reduced, table: Float[np.ndarray, "V d"], T: int) -> float:
    """What the stored products may differ by from those computed here, carried to the output.

    A score that is off by at most s changes a softmax average by at most tanh(s) <= s of the spread of its tokens
    (`reachable.py` with rho = 4 s: the ratio of both laws varies by e^(4 s) at most).
    """
    spread = table.max(0) - table.min(0)
    s = (reduced.query_error @ np.abs(table).max(0))[:, None] * spread  # (h, d)
    units = np.abs(reduced.weight) @ s.ravel()
    moved = np.abs(reduced.output) @ (STEEPEST[reduced.activation] * units)
    return float((reduced.rounding(float(np.abs(table).max()), T) + moved).max())


def attacked(network: Transformer, target: Target, T: int, table: np.ndarray, seed: int) -> Attack:
    """The network's own largest error over all multisets, or over as many that are drawn."""
    V = len(table)
    exact = Transformer(network.config).double()
    exact.load_state_dict(network.state_dict())
    best = Attack(0.0, table[np.zeros(T, dtype=np.int64)], 0)
    for chunk in _sequences(V, T, seed):
        X = torch.from_numpy(table[chunk])
        with torch.no_grad():
            off = (exact(X) - target(X)).reshape(len(X), -1).abs().amax(1)
        counted = torch.where(target.slack(X) >= 0, off, 0.0) if target.condition else off
        at = int(counted.argmax())
        better = best if float(counted[at]) <= best.error else Attack(float(counted[at]), table[chunk[at]], 0)
        best = better._replace(tried=best.tried + len(chunk))
    return best


def _sequences(V: int, T: int, seed: int) -> Any:
    """Rows of token numbers in pieces: every multiset, or as many draws (half of them with few different tokens)."""
    if comb(V + T - 1, T) <= MOST_LISTED:
        bags = combinations_with_replacement(range(V), T)
        while piece := list(islice(bags, CHUNK)):
            yield np.array(piece)
        return
    rng = np.random.default_rng(seed)
    for i in range(max(1, MOST_LISTED // (CHUNK * max(1, T // 8)))):
        few: Int[np.ndarray, "n T"] = rng.integers(V, size=(CHUNK, 1 + i % 3))
        pick = rng.integers(few.shape[1], size=(CHUNK, T))
        yield np.take_along_axis(few, pick, 1) if i % 2 else rng.integers(V, size=(CHUNK, T))
