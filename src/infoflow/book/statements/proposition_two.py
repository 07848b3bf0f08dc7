"""Proposition 2 of the InfoFlow paper (arXiv:2605.17930v1) against an explicit network.

The target max_{t1,t2,t3} x1'A x2 + x3'B x2 compares triples. Proposition 2 counts comparisons and demands information
sets that grow with T; the built network with heads (2, 1) has one width for all T, and a proved error.

What is proved and what is not. The network half is a certificate for each T below. That the star has order 3 rests on
the argument of D.1, whose printed form has a gap (three trees of dimension 3 may return nine tokens and cover two tied
triples); with four disjoint tied triples instead, the triples that are no leaves contain no matching of size 3 and are
O(T^2) many, so Omega(T^3) leaves remain. The cause: a comparison tree cannot share inner maximisations, attention can.
So the count binds only scores that do not decompose over a tree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from infoflow.certificates.attack import Region, attack
from infoflow.construct.builders import build
from infoflow.flow.counting import smallest_set, token_capacity
from infoflow.targets.named import star


@dataclass(frozen=True)
class StarRow:
    """One length: the network's shape and errors beside the set size the count demands and what the heads can hold."""

    T: int
    heads: tuple[int, ...]
    embed: tuple[int, ...]
    widths: tuple[int, ...]
    beta: float
    bound: float
    attacked: float
    demanded: int  # least max |I| by counting, best unordered trees
    reachable: int  # largest |I(t, l)| these heads give a token before the last layer

    @property
    def contradicts(self) -> bool:
        """The count demands more than max-position retrieval can reach, and the network is within its bound all the
        same."""
        return self.demanded > self.reachable and self.attacked <= self.bound


def star_rows(
    eps: float = 0.05,
    lengths: tuple[int, ...] = (8, 128),
    d: int = 2,
    seed: int = 0,
    seconds: float = 2.0,
    build: Callable[..., Any] = build,
) -> list[StarRow]:
    """Build, bound and attack the star of three tokens at each length."""
    target = star(k=3, d=d, seed=seed)
    low, high = (np.full(d, edge) for edge in target.domain)
    rows = []
    for T in lengths:
        network = build(target, T, eps)
        config = network.config
        required = target.comparison(T).unordered_distinct
        assert required is not None
        rows.append(
            StarRow(
                T,
                config.heads,
                config.embed,
                config.widths,
                max(config.betas),
                network.header["certificate"]["bound"],
                attack(network, target, Region(T, low, high), seconds=seconds, seed=seed, batch=16).error,
                smallest_set(required, T, config.heads, dimension=3),
                token_capacity(config.heads, T)[-2],
            )
        )
    return rows
