"""Lemma I.1: attention computes X -> A X B exactly, B positive; signed B with two heads.

Z = [X 0; I_n 0; 0 1] with a padding token. With s_i the column sums of B, M = max s_i:

    W_V = 3M [A 0],  W_Q = [0 I_n T 1],  W_K = [0 ln(B') ln(3M 1 - s')]

gives the first n columns exactly and a padding column of at most 3 M n |AX| exp(-T n ln 2). A zero in B is ln 0: NaN.
Signed B: (B+ + c) - (B- + c) for any c > 0 (the paper's B+ - B- has zeros).
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.certificates import Certificate, Claim
from infoflow.certificates.rules import UNIT
from infoflow.construct.softmax_attention.anchors import check_finite
from infoflow.construct.softmax_attention.heads import SoftmaxHead, attend
from infoflow.errors import InfoFlowError


def padded(X: Float[Tensor, "... d n"]) -> Float[Tensor, "... rows n_1"]:
    """Z = [X 0; I_{n+1}]."""
    n = X.shape[-1]
    with_zero = torch.cat([X, X.new_zeros(*X.shape[:-1], 1)], -1)
    eye = torch.eye(n + 1, dtype=X.dtype).expand(*X.shape[:-2], n + 1, n + 1)
    return torch.cat([with_zero, eye], -2)


def positive_head(A: Float[Tensor, "out d"], B: Float[Tensor, "n n"], T: float, sign: float = 1.0) -> SoftmaxHead:
    """The head that computes A X B for a positive B."""
    d, n = A.shape[1], len(B)
    sums = B.sum(0)
    M = float(sums.max())
    W_V = torch.zeros(len(A), d + n + 1, dtype=torch.float64)
    W_V[:, :d] = sign * 3 * M * A
    W_Q, W_K = torch.zeros(n, d + n + 1, dtype=torch.float64), torch.zeros(n, d + n + 1, dtype=torch.float64)
    W_Q[:, d : d + n], W_Q[:, -1] = torch.eye(n, dtype=torch.float64), T
    W_K[:, d : d + n], W_K[:, -1] = torch.log(B.mT), torch.log(3 * M - sums)
    return SoftmaxHead(W_K, W_Q, W_V)


@dataclass(frozen=True)
class ExactProduct:
    """A X B for any B as a difference of products with positive matrices."""

    A: Float[Tensor, "out d"]
    B: Float[Tensor, "n n"]
    radius: float  # sup |X| entry by entry
    T: float
    eps: float  # what was asked

    @property
    def parts(self) -> list[tuple[float, Float[Tensor, "n n"]]]:
        """Signs and positive matrices whose signed sum is B."""
        if bool((self.B > 0).all()):
            return [(1.0, self.B)]
        c = max(float(self.B.abs().max()), 1.0)
        return [(1.0, self.B.clamp(min=0) + c), (-1.0, (-self.B).clamp(min=0) + c)]

    @property
    def heads(self) -> list[SoftmaxHead]:
        """One for each part."""
        return [positive_head(self.A, part, self.T, sign) for sign, part in self.parts]

    @property
    def size(self) -> float:
        """>= |AX| entry by entry."""
        return float(self.A.abs().sum(1).max()) * self.radius

    @property
    def rounding(self) -> float:
        """How far float64 may be off."""
        total, n = 0.0, len(self.B)
        for _, part in self.parts:
            M = float(part.sum(0).max())
            logs = max(abs(math.log(float(part.min()))), abs(math.log(3 * M)))
            total += 3 * M * self.size * UNIT * (16 + 4 * logs + 4 * n)
        return total

    @cached_property
    def certificate(self) -> Certificate:
        """The padding column's weight and rounding, added up."""
        n = len(self.B)
        largest = sum(float(part.sum(0).max()) for _, part in self.parts)
        padding = 3 * largest * n * self.size * math.exp(-self.T * n * math.log(2))
        parts = {"padding column": padding, "rounding": self.rounding}
        claim = Claim("|heads - A X B|", self.eps, f"every X with entries within {self.radius:g}")
        return Certificate(claim, sum(parts.values()), "float64 with rounding allowance", parts=parts)

    @cached_property
    def mixing(self) -> Float[Tensor, "n n_1"]:
        """The attention weights do not depend on X: sum of +- 3M times their first n rows."""
        Z = padded(torch.zeros(self.A.shape[1], len(self.B), dtype=torch.float64))
        total = torch.zeros(len(self.B), len(self.B) + 1, dtype=torch.float64)
        for (sign, part), head in zip(self.parts, self.heads, strict=True):
            total += sign * 3 * float(part.sum(0).max()) * head.weights(Z).mT[:-1]
        return total

    def fast(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... out n_1"]:
        """A X times what the softmaxes mix, without the heads."""
        self._check(X)
        return self.A @ X @ self.mixing

    __call__ = fast

    def explicit(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... out n_1"]:
        """The values through the heads."""
        self._check(X)
        return attend(self.heads, padded(X))

    def target(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... out n_1"]:
        """A X B, and a zero for the padding column."""
        product = self.A @ X @ self.B
        return torch.cat([product, product.new_zeros(*product.shape[:-1], 1)], -1)

    def attack(self, seed: int = 0, seconds: float = 5.0) -> float:
        """Random inputs and all sign patterns' worst kind: entries at +-radius."""
        generator = torch.Generator().manual_seed(seed)
        X = torch.randn(256, self.A.shape[1], len(self.B), generator=generator, dtype=torch.float64)
        X = torch.cat([X.clamp(-1, 1), X.sign(), torch.ones_like(X[:1])]) * self.radius
        return float((self.explicit(X) - self.target(X)).abs().max())

    def _check(self, X: Tensor) -> None:
        if X.ndim < 2 or tuple(X.shape[-2:]) != (self.A.shape[1], len(self.B)):
            raise InfoFlowError(
                f"expected X of shape ({self.A.shape[1]}, {len(self.B)}), got {tuple(X.shape)}; tokens are columns."
            )
        if not bool((X.abs() <= self.radius).all()):
            raise InfoFlowError(f"expected entries within {self.radius:g}; rebuild with a larger radius.")


def exact_product(A: Tensor, B: Tensor, *, eps: float | None = None, radius: float = 1.0) -> ExactProduct:
    """T >= ln(n/delta)/(n ln 2) with delta = eps'/(3 M n |AX|), for every head; eps' is eps less the rounding of
    float64. None asks for twice that rounding."""
    left, right = torch.as_tensor(A, dtype=torch.float64), torch.as_tensor(B, dtype=torch.float64)
    if left.ndim != 2 or right.ndim != 2 or right.shape[0] != right.shape[1]:
        raise InfoFlowError(f"expected a matrix A and a square B, got {tuple(left.shape)} and {tuple(right.shape)}.")
    check_finite("A", left)
    check_finite("B", right)
    if (eps is not None and not 0 < eps < math.inf) or not 0 < radius < math.inf:
        raise InfoFlowError(f"expected positive eps and radius, got {eps} and {radius}; correct them.")
    n = len(right)
    probe = ExactProduct(left, right, radius, 1.0, math.inf)
    probe = replace(probe, eps=eps or max(2 * probe.rounding, 1e-300))
    left_over = probe.eps * (1 - 1e-9) - probe.rounding
    if left_over <= 0:
        raise InfoFlowError(f"expected eps above the rounding of float64, {probe.rounding:.3g} here, got {eps:g}.")
    M = max(float(part.sum(0).max()) for _, part in probe.parts)
    delta = left_over / (3 * M * n * max(probe.size, 1e-300)) / len(probe.parts)
    return replace(probe, T=max(1.0, math.log(n / delta) / (n * math.log(2))))
