"""What the head-count slides leave out, as code: each function computes the number that shows it."""

from typing import Any

import numpy as np

from infoflow.book.counterexamples.infoflow import unbounded_weights
from infoflow.book.entry import Finding
from infoflow.book.formulas import corollary_1_margin
from infoflow.construct.builders import build
from infoflow.construct.single_heads import memory_head
from infoflow.targets.named import d_retrieval
from infoflow.verdicts.bounds import head_count_exponent

__all__ = ["unbounded_weights"]


def exponent_against_gamma() -> Finding:
    """D = (1, 2), T = 250, n = 2: k = 14.1; Lipschitz features in d = 15 dimensions have gamma = 15 > k."""
    return Finding(
        "exponent k of the argument at gamma = 15 (needed: above 15)", float(corollary_1_margin(1, 2, 2)), "below", 15
    )


def negative_exponent() -> Finding:
    """T = 16, h = 1, D = 4, n = 2: the exponent is not positive, so nothing is said."""
    return Finding(
        "k at T = 16, D = 4, one head (a statement needs more than 0)",
        float(head_count_exponent(16, 1, 4, 2)),
        "at most",
        0,
    )


def dimension_one() -> Finding:
    """Heads of dimension 1 already serve: the constant CLS and one score a head."""
    network: Any = build(d_retrieval(D=2, d=2, seed=0), 8, 0.1)
    return Finding(
        "head dimension of the built network (printed: at least 2)",
        max(network.config.head_dims),
        "is",
        1,
    )


def additive_codes() -> Finding:
    """x + p(s) with linear values: exchanging two tokens changes nothing in a uniform average."""
    rng = np.random.default_rng(2)
    X, code = rng.uniform(0, 1, (4, 2)), rng.standard_normal((4, 2))
    gap = np.abs((X + code).mean(0) - (X[[1, 0, 2, 3]] + code).mean(0)).max()
    return Finding(
        "difference of the states of a sequence and its exchange (needed: above 0)", float(gap), "below", 1e-15
    )


def bottleneck() -> Finding:
    """A linear layer between hats and levels: eps^-max(1, gamma) numbers in place of eps^-(1 + gamma)."""
    head = memory_head(d_retrieval(D=2, d=1, seed=0), 8, 0.02)
    return Finding(
        "parameters with a bottleneck over those without (printed rate: 1)",
        head.parameters_bottleneck / head.parameters_merged,
        "below",
        0.5,
    )
