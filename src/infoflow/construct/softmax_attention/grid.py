"""Lemmas 3.12, 3.13, Theorem 3.14, Corollary 3.15 repaired, and the quadratic score: continuous f on [-B, B]^{dn}.

Cells v of a g^N grid (N = dn) compete by a softmax; the winner's f(v) is read. Every score is a sum over coordinates:
the softmax over g^N cells is a product of N softmaxes over g levels and the table is contracted one axis at a time.

- two-layer (3.12, 3.14): layer 1 has heads (i, q, +-): w = +- g/(delta B) e_i, t_k = (1 -+ g v_q/B)/delta on [0, 1];
  its row R_v = sum_ik clip(..) + clip(..) lies in {N, .., 2N} off the shells. Layer 2 head (i, j) scores beta R_v R_v'
  and its W_O reads one column v' (any column will do, since R_v' >= N); the paper multiplies by 1_G, which gives G f.
- one-layer-softmax (3.13, 3.15): softmax(beta N R), then the table.
- quadratic: scores -tau |X - v|^2 = affine(X) + a constant; no attention layer, ties only between neighbours.

Bounds, K_j >= sup|df/dx_j|, h = 2B/g:
  quadratic, sup norm:  sum_j K_j h (1/2 + tail(c)), c = tau h^2     (E|x_j - v_j| <= h (1/2 + tail) in each coordinate)
  bumps, L_p norm:      (2B)^{N/p} (omega(B/g) + osc eps1) + osc ((2B)^N (1-(1-delta)^N))^{1/p}       (Minkowski)
provided layer 1 errs by r <= 1/8 on each R_v, so that the winner leads by 1 - 2r: beta = ln((G-1)/eps1)/((N-r)(1-2r)).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.certificates import Certificate, Claim, stated_limit
from infoflow.certificates.attack import steeper
from infoflow.certificates.rules import UNIT
from infoflow.construct.softmax_attention.anchors import Anchors, check_finite
from infoflow.construct.softmax_attention.bumps import centres, check_grid
from infoflow.construct.softmax_attention.expression import Expression
from infoflow.construct.softmax_attention.heads import SoftmaxHead, attend
from infoflow.construct.softmax_attention.lemma_f1 import beta_unique
from infoflow.construct.softmax_attention.modulus import UNKNOWN, Modulus, of_expression, of_lipschitz, on_tensors
from infoflow.construct.softmax_attention.slopes import PROVED, steepness
from infoflow.construct.softmax_attention.summed_range import range_head, shared_affine
from infoflow.construct.softmax_attention.window import overshoot, selected, tail
from infoflow.cost import spelled_bytes
from infoflow.errors import InfoFlowError, unknown

VARIANTS = ("two-layer", "one-layer-softmax", "quadratic")
LARGEST_TABLE = 30_000_000  # entries, 240 MB
LARGEST_EXPLICIT = 4096  # cells
LARGEST_INPUT = 10_000  # coordinates
CHUNK = 8_000_000  # entries of the largest temporary of a contraction
Function = Callable[[Float[Tensor, "batch d n"]], Tensor]


@dataclass(frozen=True)
class GridApproximator:
    """A function of a d x n input, looked up at the centres of a grid by softmax attention."""

    f: Function
    d: int
    n: int
    g: int
    B: float
    variant: str
    delta: float
    eps1: float
    c: float  # quadratic: tau h^2
    outputs: int  # 1 for a scalar f, dn for a d x n one
    modulus: Modulus
    lazy: bool
    paper_heads: bool
    p: int  # layer 1's anchors
    promised: float | None = None  # a Lipschitz constant the caller states and intervals do not prove
    expression: Expression | None = None  # f, where it is one
    lipschitz: float | None = None  # as the caller gave it

    @property
    def N(self) -> int:
        """Coordinates of an input."""
        return self.d * self.n

    @property
    def cells(self) -> int:
        """Cells of the grid: g^N."""
        return int(self.g**self.N)

    @property
    def width(self) -> float:
        """The side of a cell."""
        return 2 * self.B / self.g

    @property
    def volume(self) -> float:
        """(2B)^N, infinite beyond floats."""
        exponent = self.N * math.log(2 * self.B)
        return math.exp(exponent) if exponent < 700 else math.inf

    @property
    def anchors(self) -> Anchors:
        """Layer 1's anchors: only the values 0 and 1 matter off the shells, so max(n, 2) closed ones do."""
        return Anchors(0.0, 1.0, self.p, "closed")

    @property
    def first_c(self) -> float:
        """Layer 1's sharpness: keeps r = 2N spacing sum_m m exp(-c m^2) below 1/1000."""
        return math.log(4000 * self.N)

    @property
    def first_error(self) -> float:
        """r: how far R_v may be from its whole number off the shells."""
        return 2 * self.N * self.anchors.spacing * overshoot(self.first_c) + 64 * UNIT * self.N * self.g / self.delta

    @property
    def beta(self) -> float:
        """The inverse temperature that leaves at most eps1 of the weight outside the right cell."""
        r = self.first_error
        if self.g == 1:
            return 1.0  # one cell: nothing to suppress
        lead = (self.N if self.variant == "one-layer-softmax" else self.N - r) * (1 - 2 * r)
        return beta_unique(lead, self.cells, self.eps1)

    @property
    def heads(self) -> dict[str, int]:
        """`built`, and the two formulas for the two-layer network of this f (Remark E.1)."""
        second = self.outputs
        factored, paper = 2 * self.d * self.g, 2 * self.d * self.cells
        first = {"quadratic": 0}.get(self.variant, paper if self.paper_heads else factored)
        built = first + (second if self.variant == "two-layer" else 0)
        return {"built": built, "factored": factored + second, "paper": paper + second}

    def save(self, path: str | Path) -> Path:
        """The call that made it and its table; f must be an expression, whose text is kept."""
        from infoflow.construct.softmax_attention.saving import save_grid

        if self.expression is None:
            raise InfoFlowError("expected a function written as an expression to save a grid, got code; write it out.")
        return save_grid(self, self.expression.text, self.lipschitz, path)

    @cached_property
    def certificate(self) -> Certificate:
        """Of every entry of f. Quadratic: sup norm. Bumps: L_2 norm over the domain."""
        reason = None
        if not self.modulus.known:
            reason = "no modulus of continuity: f has no interval gradient and no Lipschitz constant was given"
        elif self.variant != "quadratic" and math.isinf(self.volume):
            reason = "the volume of the domain is beyond floats: no L2 norm; the quadratic variant has a sup norm"
        if reason is not None:
            claim = Claim("|network - f|", None, self._domain_words)
            return Certificate(claim, None, "float64 with rounding allowance", (reason,))
        omega, osc = self.modulus.total * self.B / self.g, self.modulus.oscillation
        if self.variant == "quadratic":
            share = self.width * (0.5 + tail(self.c))
            parts = {"cells": min(self.modulus.spread * share, osc)}
            norm = "sup norm"
        else:
            volume = self.volume
            shell = volume * -math.expm1(self.N * math.log1p(-self.delta))
            parts = {
                "cells": math.sqrt(volume) * omega,
                "softmax": math.sqrt(volume) * osc * self.eps1,
                "shells": osc * math.sqrt(shell),
            }
            norm = "L2 norm"
        parts["rounding"] = 64 * UNIT * self.N * (osc + self._largest) * (1 + self.g)
        bound = sum(parts.values())
        claim = Claim(f"|network - f| in the {norm}", stated_limit(bound), self._domain_words)
        promises = () if self.promised is None else (f"f has Lipschitz constant {self.promised:g} in the sup norm",)
        assumptions = ("f as float64 computes it",)
        return Certificate(claim, bound, "float64 with rounding allowance", assumptions, promises, parts=parts)

    @property
    def _domain_words(self) -> str:
        name = f" of f = {self.expression.text}" if self.expression is not None else ""
        return f"every entry{name} on [-{self.B:g}, {self.B:g}]^({self.d} x {self.n})"

    def check(self, certificate: Certificate, seed: int = 0, seconds: float = 5.0) -> Certificate:
        """The attack on a promised Lipschitz constant: a steeper place of f falsifies the certificate."""
        if self.promised is None:
            return certificate
        if self.expression is not None:
            steep = steepness(self.expression, self.B, self.promised)
            found = None if isinstance(steep, str) else f"a slope of {steep.slope:.6g} at {steep.point}"
        else:
            X = self.sample(256, seed).flatten(1).numpy()
            found = steeper(self._rows, X, self.promised, np.random.default_rng(seed), (-self.B, self.B))
        return certificate if found is None else certificate.against(f"the Lipschitz constant is wrong: f has {found}")

    def _rows(self, X: Float[np.ndarray, "k N"]) -> Tensor:
        return self.f(torch.from_numpy(X).reshape(-1, self.d, self.n))

    @property
    def core_bound(self) -> float | None:
        """sup |net - f| off the shells (bump variants): omega(B/g) + osc eps1."""
        if not self.modulus.known:
            return None
        return self.modulus.total * self.B / self.g + self.modulus.oscillation * self.eps1

    @property
    def _largest(self) -> float:
        """|f|_inf over the centres; in lazy mode |f(0)| + osc, which is no less."""
        if not self.lazy:
            return float(self.table.abs().max())
        return float(self.f(torch.zeros(1, self.d, self.n, dtype=torch.float64)).abs().max()) + self.modulus.oscillation

    @cached_property
    def table(self) -> Float[Tensor, "outputs cells"]:
        """f at every centre, cells in lexicographic order of their levels (row-major over the d x n entries)."""
        if self.cells * self.outputs > LARGEST_TABLE:
            size = self.cells * self.outputs * 8
            needed = spelled_bytes(size) if size < 2**1000 else "more memory than there is"
            raise InfoFlowError(
                f"expected a table of at most {LARGEST_TABLE} numbers, got {self.g}^{self.N} cells x {self.outputs} "
                f"({needed}); lower d, n or g, or use lazy evaluation (lazy=True), which calls f near X only."
            )
        pieces = []
        for start in range(0, self.cells, 1 << 18):
            index = torch.arange(start, min(self.cells, start + (1 << 18)))
            pieces.append(self._values(self._levels(index)))
        values = torch.cat(pieces).reshape(self.cells, self.outputs).mT.contiguous()
        check_finite("the values of f", values)
        return values

    def _levels(self, index: Int[Tensor, " cells"]) -> Int[Tensor, "cells N"]:
        powers = torch.tensor([self.g ** (self.N - 1 - j) for j in range(self.N)])
        return (index[:, None] // powers) % self.g

    def _values(self, levels: Int[Tensor, "cells N"]) -> Float[Tensor, "cells outputs"]:
        points = centres(self.B, self.g)[levels].reshape(-1, self.d, self.n)
        return self.f(points).reshape(len(levels), self.outputs)

    def bumps(self, X: Float[Tensor, "batch d n"]) -> Float[Tensor, "batch N g"]:
        """r_j(q): what coordinate j adds to R_v when v_j is level q, through layer 1's softmax."""
        u = self.g * (X.reshape(-1, self.N, 1) - centres(self.B, self.g)) / self.B
        grid = self.anchors

        def response(z: Tensor) -> Tensor:
            return selected(z, lambda k: grid.spacing * k.to(z.dtype), 0.0, grid.spacing, self.first_c, 0, grid.p - 1)

        return response((1 + u) / self.delta) + response((1 - u) / self.delta)

    def coordinate_weights(self, X: Float[Tensor, "batch d n"]) -> Float[Tensor, "batch N g"]:
        """The N softmaxes whose product is the softmax over all cells."""
        if self.variant == "quadratic":
            distance = (X.reshape(-1, self.N, 1) - centres(self.B, self.g)) / self.width
            return torch.softmax(-self.c * distance**2, -1)
        rows = self.bumps(X)
        if self.variant == "one-layer-softmax":
            return torch.softmax(self.beta * self.N * rows, -1)
        query = rows[:, :, 0].sum(-1)  # R of the first cell, the column that W_O reads
        return torch.softmax(self.beta * query[:, None, None] * rows, -1)

    def fast(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, " ..."]:
        """The same values without the weight matrices, by the cells' own scores."""
        self._check(X)
        flat = X.reshape(-1, self.d, self.n)
        if self.lazy:
            out = self._nearby(flat)
        else:
            rows = max(1, CHUNK // max(1, self.cells * self.outputs // self.g))
            out = torch.cat([self._contract(self.coordinate_weights(part)) for part in flat.split(rows)])
        return out.reshape(X.shape[:-2] if self.outputs == 1 else X.shape)

    __call__ = fast

    def _contract(self, weights: Float[Tensor, "batch N g"]) -> Float[Tensor, "batch outputs"]:
        """sum over cells of table times the product of weights, one coordinate at a time from the last."""
        rest = self.table.reshape(-1, self.g) @ weights[:, -1].mT  # (outputs g^{N-1}) x batch
        for j in range(self.N - 2, -1, -1):
            rest = (rest.reshape(-1, self.g, len(weights)) * weights[:, j].mT).sum(1)
        return rest.reshape(self.outputs, len(weights)).mT

    def _nearby(self, X: Float[Tensor, "batch d n"]) -> Float[Tensor, "batch outputs"]:
        """The two leading levels of every coordinate while 2^N stays small, else the leading cell alone."""
        weights = self.coordinate_weights(X)
        keep = 2 if self.N <= 10 and self.g > 1 else 1
        top = weights.topk(keep, dim=-1)
        total = X.new_zeros(len(X), self.outputs)
        mass = X.new_zeros(len(X), 1)
        for choice in torch.cartesian_prod(*[torch.arange(keep)] * self.N).reshape(-1, self.N):
            pick = choice.expand(len(X), self.N)[..., None]
            share = top.values.gather(2, pick)[..., 0].prod(-1, keepdim=True)
            total += share * self._values(top.indices.gather(2, pick)[..., 0])
            mass += share
        return total / mass

    def first_layer(self) -> list[SoftmaxHead]:
        """Heads (i, q, +-) with W_O[k, v] = 1{v_ik = q}; the paper's heads (v, i, +-) with W_O = [1_n; 0] e_v'."""
        grid, levels = self.anchors, centres(self.B, self.g)
        cells = self._levels(torch.arange(self.cells)).reshape(-1, self.d, self.n)
        heads = []
        for i in range(self.d):
            for sign in (1.0, -1.0):
                w = torch.zeros(self.d, dtype=torch.float64)
                w[i] = sign * self.g / (self.delta * self.B)
                groups = range(self.cells) if self.paper_heads else range(self.g)
                for group in groups:
                    W_O = torch.zeros(grid.p, self.cells, dtype=torch.float64)
                    if self.paper_heads:
                        v = levels[cells[group, i]]
                        W_O[: self.n, group] = 1
                    else:
                        v = levels[group].expand(self.n)
                        W_O[: self.n] = (cells[:, i] == group).mT.to(torch.float64)
                    t = (1 - sign * self.g * v / self.B) / self.delta
                    heads.append(range_head(w, t, grid, self.first_c, W_O))
        return heads

    def second_layer(self) -> list[SoftmaxHead]:
        """One head per output: keys and queries sqrt(beta) R, value row f_o, W_O reads the first column."""
        score = torch.zeros(1, 1 + self.outputs, dtype=torch.float64)
        score[0, 0] = math.sqrt(self.beta)
        heads = []
        shape = (1, 1) if self.outputs == 1 else (self.d, self.n)
        for o in range(self.outputs):
            i, j = divmod(o, shape[1])
            W_V = torch.zeros(shape[0], 1 + self.outputs, dtype=torch.float64)
            W_V[i, 1 + o] = 1
            W_O = torch.zeros(self.cells, shape[1], dtype=torch.float64)
            W_O[0, j] = 1
            heads.append(SoftmaxHead(score, score, W_V, W_O))
        return heads

    def explicit(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, " ..."]:
        """Through the real matrices, for verification."""
        self._check(X)
        if self.cells > LARGEST_EXPLICIT:
            raise InfoFlowError(
                f"expected at most {LARGEST_EXPLICIT} cells for the explicit matrices, got {self.cells}; use fast."
            )
        if self.variant == "quadratic":
            v = centres(self.B, self.g)[self._levels(torch.arange(self.cells))]
            tau = self.c / self.width**2
            scores = 2 * tau * X.reshape(*X.shape[:-2], self.N) @ v.mT - tau * (v**2).sum(1)
            return self._shaped(torch.softmax(scores, -1) @ self.table.mT, X)
        rows = attend(self.first_layer(), shared_affine(X, self.anchors))
        if self.variant == "one-layer-softmax":
            return self._shaped(torch.softmax(self.beta * self.N * rows[..., 0, :], -1) @ self.table.mT, X)
        stacked = torch.cat([rows, self.table.expand(*X.shape[:-2], *self.table.shape)], -2)
        out = attend(self.second_layer(), stacked)
        return out[..., 0, 0] if self.outputs == 1 else out

    def _shaped(self, out: Tensor, X: Tensor) -> Tensor:
        return out[..., 0] if self.outputs == 1 else out.reshape(X.shape)

    @property
    def explicit_rounding(self) -> float:
        """Scores of size beta (2N)^2 or tau B^2 N, off by a few units, move the output by osc times that."""
        largest = 4 * self.N * max(self.c * self.g**2, self.beta * self.N * 4)
        inner = 0.0
        if self.variant != "quadratic":
            inner = 64 * self.N * self.first_c * self.anchors.p**2 * self.g / self.delta * self.beta * self.N
        return 16 * UNIT * (largest + inner) * 2 * float(self.table.abs().max())

    def error(self, X: Float[Tensor, "batch d n"]) -> Float[Tensor, " batch"]:
        """Largest entry of |net - f|."""
        gap = (self.fast(X) - self.f(X).reshape(X.shape if self.outputs > 1 else X.shape[:-2])).abs()
        return gap if self.outputs == 1 else gap.flatten(1).amax(1)

    def sample(self, count: int, seed: int) -> Float[Tensor, "count d n"]:
        """Inputs drawn uniformly from the box."""
        generator = torch.Generator().manual_seed(seed)
        return (2 * torch.rand(count, self.d, self.n, generator=generator, dtype=torch.float64) - 1) * self.B

    def l2(self, count: int = 4096, seed: int = 0) -> float:
        """Measured L2 distance (largest entry), by uniform samples."""
        return math.sqrt(self.volume) * float(self.error(self.sample(count, seed)).square().mean().sqrt())

    def sup(self, count: int = 4096, seed: int = 0) -> float:
        """Largest error found at random points, centres, faces, corners and just beside them."""
        X = self.sample(count, seed)
        step = self.width / 2
        snapped = (X / step).round() * step  # centres and faces
        corners = X.sign() * self.B
        tries = torch.cat([X, snapped, snapped * (1 - 1e-9), (snapped + 0.499 * step), corners]).clamp(-self.B, self.B)
        return float(self.error(tries).max())

    def attack(self, seed: int = 0, seconds: float = 5.0) -> float:
        """In the norm of the certificate: the largest error found (quadratic), the measured L2 distance (bumps)."""
        if not seconds > 0:
            raise InfoFlowError(f"expected a positive time for the attack, got {seconds}; give seconds > 0.")
        work = 2 ** min(self.N, 10) * self.N * self.g if self.lazy else self.cells * self.outputs
        count = max(16, min(4096, int(seconds * 20_000_000) // max(1, work)))
        return self.sup(count, seed) if self.variant == "quadratic" else self.l2(count, seed)

    def _check(self, X: Tensor) -> None:
        if X.ndim < 2 or tuple(X.shape[-2:]) != (self.d, self.n):
            raise InfoFlowError(f"expected X of shape ({self.d}, {self.n}), got {tuple(X.shape)}; tokens are columns.")
        if not bool((X.abs() <= self.B).all()):
            raise InfoFlowError(f"expected entries within [-{self.B:g}, {self.B:g}], got some outside; raise B.")


def grid_approximator(
    f: Function | Expression,
    d: int,
    n: int,
    g: int,
    variant: str = "two-layer",
    *,
    B: float = 1.0,
    delta: float = 0.05,
    eps1: float = 1e-3,
    c: float = 8.0,
    lipschitz: float | None = None,
    lazy: bool = False,
    paper_heads: bool = False,
    p: int | None = None,
) -> GridApproximator:
    """f takes (batch, d, n) tensors and returns (batch,) or (batch, d, n); `lipschitz` is with respect to the sup norm.

    2dg + dn heads by default, the paper's 2d g^{dn} + dn on request; outputs are identical.
    """
    if variant not in VARIANTS:
        raise unknown("variant", variant, list(VARIANTS))
    if d < 1 or n < 1:
        raise InfoFlowError(f"expected d >= 1 and n >= 1, got d={d}, n={n}; correct the shape.")
    if d * n > LARGEST_INPUT:
        raise InfoFlowError(f"expected at most {LARGEST_INPUT} coordinates, got {d} x {n}; reduce the input.")
    check_grid(B, g, delta)
    anchors = max(n, 2) if p is None else p
    if not max(n, 2) <= anchors <= 10**6:
        raise InfoFlowError(f"expected max(n, 2) <= p <= 10^6 anchors in layer 1, got {anchors}; correct p.")
    if not 0 < eps1 <= 0.5 or not 0 < c < math.inf:
        raise InfoFlowError(f"expected 0 < eps1 <= 1/2 and a positive c, got eps1={eps1}, c={c}; correct them.")
    if isinstance(f, Expression):
        expression = f
        if (expression.d, expression.n) != (d, n):
            raise InfoFlowError(f"expected an expression of a {d} x {n} input, got {expression.d} x {expression.n}.")
        modulus = of_expression(expression, B)
        function: Function = lambda X: on_tensors(expression, X)  # noqa: E731
        outputs = 1
    else:
        function, modulus = f, UNKNOWN
        shape = f(torch.zeros(1, d, n, dtype=torch.float64)).shape
        if shape not in ((1,), (1, d, n)):
            raise InfoFlowError(
                f"expected f to return (batch,) or (batch, {d}, {n}), got {tuple(shape)} for a batch of 1."
            )
        outputs = 1 if len(shape) == 1 else d * n
    promised, whole = None, f if isinstance(f, Expression) else None
    if lipschitz is not None:
        modulus = of_lipschitz(lipschitz, d * n, B)
        promised = None if whole is not None and steepness(whole, B, lipschitz) == PROVED else lipschitz
    net = GridApproximator(
        function,
        d,
        n,
        g,
        B,
        variant,
        delta,
        eps1,
        c,
        outputs,
        modulus,
        lazy,
        paper_heads,
        anchors,
        promised,
        whole,
        lipschitz,
    )
    if variant != "quadratic" and net.first_error > 1 / 8:
        raise InfoFlowError(f"expected layer 1 to err by at most 1/8, got {net.first_error:.3g}; raise delta.")
    if not lazy:
        _ = net.table  # a table too large, or a value that is no number, is refused now
    return net
