"""Theorem I.2 repaired: softmax attention alone, token-wise maps only, computes ReLU networks with biases.

    out_i = sum_k a_ik ReLU(S_ki),   S_ki = sum_j w_ikj . x_j + bias_ik,   a_ik in {-1, +1}

Z = [X 0; I_{n+1}]. Three layers:
1. n gated copy heads (head j: column j reads itself, other columns read the padding token) and one identity head; row
   (i, k) gets w_ikj . x_j + bias_ik/n in column j. Biases travel in the positional rows (the paper has none).
2. Head i: column i averages the tokens (value n times the rows of block i), other columns read padding; identity head.
   The paper applies Lemma I.1 to a 0/1 matrix here: ln 0.
3. Heads (k, sign): scores beta (C_s diag(S_k) - 1 + [C_s 1_n]); a token of the other sign reads padding. The paper has
   I_n for C_s, so that token ties with padding and the output is sum_k a_k |S_k|/2.
Layers 1 and 2 merge into n^2 + 1 heads (i, j), so two layers suffice.

Copies are exact to n exp(-60), below a unit of float64. |x sigmoid(beta x) - ReLU(x)| <= 0.27847/beta, and the keys at
score -beta add 3n exp(-beta) max|S| per neuron:   error <= N (0.27847/beta + 3 n exp(-beta) max|S|).
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.book.statements.exact_products import padded
from infoflow.certificates import Certificate, Claim, stated_limit
from infoflow.certificates.rules import UNIT
from infoflow.construct.softmax_attention.anchors import check_finite
from infoflow.construct.softmax_attention.heads import SoftmaxHead, attend
from infoflow.errors import InfoFlowError

SHARP = 60.0  # score of a copy: exp(-60) is below a unit of float64
GAP = 0.27847  # sup of x (1 - sigmoid(x)), 0.278464...


@dataclass(frozen=True)
class ReluAttention:
    """w is (n, N, n, d): token i, neuron k, token j; bias and signs are (n, N)."""

    w: Float[Tensor, "n N n d"]
    bias: Float[Tensor, "n N"]
    signs: Float[Tensor, "n N"]
    beta: float
    radius: float
    layers: int  # 3, or 2 with layers 1 and 2 merged

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(d, n, N)."""
        return self.w.shape[3], self.w.shape[0], self.w.shape[1]

    @property
    def heads(self) -> tuple[int, ...]:
        """Of every layer."""
        _, n, N = self.sizes
        return (n + 1, n + 1, 2 * N) if self.layers == 3 else (n * n + 1, 2 * N)

    @property
    def largest(self) -> float:
        """max |S|."""
        return float((self.w.abs().sum((2, 3)) * self.radius + self.bias.abs()).max())

    @cached_property
    def certificate(self) -> Certificate:
        """Sigmoid for step, other keys and rounding, added up."""
        _, n, N = self.sizes
        parts = {
            "sigmoid for step": N * GAP / self.beta,
            "other keys": 3 * n * N * math.exp(-self.beta) * self.largest,
            "rounding": 64 * UNIT * N * n * (1 + self.largest) * (1 + self.beta),
        }
        bound = sum(parts.values())
        inputs = f"every X with entries within {self.radius:g}"
        claim = Claim("|heads - ReLU network|", stated_limit(bound), inputs)
        return Certificate(claim, bound, "float64 with rounding allowance", parts=parts)

    def preactivations(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... N n"]:
        """What the ReLUs see."""
        return (torch.einsum("ikjd,...dj->...ik", self.w, X) + self.bias).mT

    def target(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... n"]:
        """The ReLU network itself."""
        return (self.signs.mT * torch.relu(self.preactivations(X))).sum(-2)

    def fast(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... n"]:
        """Layer 3's softmaxes in closed form: own key beta S, padding 0, the others -beta."""
        self._check(X)
        n = self.sizes[1]
        S = self.preactivations(X)
        low = math.exp(-self.beta)
        total = S.sum(-1, keepdim=True)
        top = torch.clamp(self.beta * S, min=0)  # shift, so that nothing overflows
        own, padding = torch.exp(self.beta * S - top), torch.exp(-top)
        matched = (S * own + (total - S) * low * padding) / (own + padding * (1 + (n - 1) * low))
        other = total * low / (1 + n * low)
        return (self.signs.mT * (matched - other)).sum(-2)

    __call__ = fast

    def first_layer(self) -> list[SoftmaxHead]:
        """Heads that gather w.x of every neuron."""
        d, n, N = self.sizes
        heads = []
        for j in range(n):
            W_V = torch.zeros(n * N + n + 1, d + n + 1, dtype=torch.float64)
            W_V[: n * N, :d] = self.w[:, :, j].reshape(n * N, d)
            W_V[: n * N, d + j] = self.bias.reshape(n * N) / n
            heads.append(_gated(d, n, columns=[j], key=j, W_V=W_V))
        return [*heads, _identity(d, n, n * N)]

    def second_layer(self) -> list[SoftmaxHead]:
        """Heads that sum them with the bias."""
        _, n, N = self.sizes
        rows = n * N
        heads = []
        for i in range(n):
            W_V = torch.zeros(rows + n + 1, rows + n + 1, dtype=torch.float64)
            for k in range(N):
                W_V[k * n + i, i * N + k] = n
            W_Q, W_K = torch.zeros(1, rows + n + 1).double(), torch.zeros(1, rows + n + 1).double()
            W_Q[0, rows:] = 1
            W_Q[0, rows + i] = -1
            W_K[0, -1] = SHARP
            heads.append(SoftmaxHead(W_K, W_Q, W_V))
        return [*heads, _identity(rows, n, rows)]

    def merged_layer(self) -> list[SoftmaxHead]:
        """SoftmaxHead (i, j): column i reads token j, all others read padding."""
        d, n, N = self.sizes
        heads = []
        for i in range(n):
            for j in range(n):
                W_V = torch.zeros(n * N + n + 1, d + n + 1, dtype=torch.float64)
                rows = torch.arange(N) * n + i
                W_V[rows, :d] = self.w[i, :, j]
                W_V[rows, d + j] = self.bias[i] / n
                heads.append(_gated(d, n, columns=[i], key=j, W_V=W_V))
        return [*heads, _identity(d, n, n * N)]

    def last_layer(self, printed: bool = False) -> list[SoftmaxHead]:
        """`printed` puts the paper's I_n in place of C_s."""
        _, n, N = self.sizes
        eye = torch.eye(n, dtype=torch.float64)
        W_K = torch.zeros(n, n * N + n + 1, dtype=torch.float64)
        W_K[:, n * N : n * N + n] = eye
        heads = []
        for k in range(N):
            for sign in (1.0, -1.0):
                C = torch.diag((self.signs[:, k] == sign).double())
                W_Q = torch.zeros(n, n * N + n + 1, dtype=torch.float64)
                W_Q[:, k * n : (k + 1) * n] = C
                W_Q[:, n * N :] = -1
                W_Q[:, n * N : n * N + n] += eye if printed else C
                W_Q[:, -1] += 1
                W_V = torch.zeros(1, n * N + n + 1, dtype=torch.float64)
                W_V[0, k * n : (k + 1) * n] = sign
                heads.append(SoftmaxHead(W_K, self.beta * W_Q, W_V))
        return heads

    def explicit(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... n"]:
        """The values through every layer."""
        self._check(X)
        Z = padded(X)
        first = [self.first_layer(), self.second_layer()] if self.layers == 3 else [self.merged_layer()]
        for layer in [*first, self.last_layer()]:
            Z = attend(layer, Z)
        return Z[..., 0, :-1]

    def attack(self, seed: int = 0, seconds: float = 5.0) -> float:
        """The largest error found on drawn inputs."""
        generator = torch.Generator().manual_seed(seed)
        d, n, _ = self.sizes
        count = max(16, min(4000, int(seconds * 1e7 / self.w.numel())))
        X = (2 * torch.rand(count, d, n, generator=generator, dtype=torch.float64) - 1) * self.radius
        X = torch.cat([X, X.sign() * self.radius, X / self.beta, torch.zeros_like(X[:1])])
        return float((self.fast(X) - self.target(X)).abs().max())

    def _check(self, X: Tensor) -> None:
        d, n, _ = self.sizes
        if X.ndim < 2 or tuple(X.shape[-2:]) != (d, n):
            raise InfoFlowError(f"expected X of shape ({d}, {n}), got {tuple(X.shape)}; tokens are columns.")
        if not bool((X.abs() <= self.radius).all()):
            raise InfoFlowError(f"expected entries within {self.radius:g}; rebuild with a larger radius.")


def _gated(d: int, n: int, columns: list[int], key: int, W_V: Tensor) -> SoftmaxHead:
    """Queries of `columns` score SHARP on token `key`; all other queries score it on padding."""
    W_Q, W_K = torch.zeros(2, d + n + 1, dtype=torch.float64), torch.zeros(2, d + n + 1, dtype=torch.float64)
    W_Q[1, d:] = SHARP
    for column in columns:
        W_Q[0, d + column], W_Q[1, d + column] = SHARP, 0
    W_K[0, d + key], W_K[1, -1] = 1, 1
    return SoftmaxHead(W_K, W_Q, W_V)


def _identity(rows_before: int, n: int, rows_after: int) -> SoftmaxHead:
    """Carries I_{n+1} to the next layer."""
    select = torch.zeros(n + 1, rows_before + n + 1, dtype=torch.float64)
    select[:, rows_before:] = torch.eye(n + 1, dtype=torch.float64)
    W_V = torch.zeros(rows_after + n + 1, rows_before + n + 1, dtype=torch.float64)
    W_V[rows_after:] = select
    return SoftmaxHead(select, SHARP * select, W_V)


def relu_attention(
    w: Tensor, bias: Tensor, signs: Tensor, *, beta: float = 500.0, radius: float = 1.0, layers: int = 3
) -> ReluAttention:
    """Build it from the weights of a ReLU network, in two or three layers."""
    weights, shift, outer = (torch.as_tensor(value, dtype=torch.float64) for value in (w, bias, signs))
    if weights.ndim != 4 or weights.shape[0] != weights.shape[2] or shift.shape != weights.shape[:2]:
        raise InfoFlowError(
            f"expected w of shape (n, N, n, d) and bias (n, N), got {tuple(weights.shape)} and {tuple(shift.shape)}."
        )
    if outer.shape != shift.shape or not bool((outer.abs() == 1).all()):
        raise InfoFlowError("expected signs -1 or +1, one per token and neuron; absorb |a| into w and bias.")
    check_finite("w", weights)
    check_finite("bias", shift)
    if layers not in (2, 3):
        raise InfoFlowError(f"expected 2 or 3 layers, got {layers}; two when layers 1 and 2 are merged.")
    if not (0 < beta < math.inf and 0 < radius < math.inf):
        raise InfoFlowError(f"expected positive beta and radius, got {beta} and {radius}; correct them.")
    return ReluAttention(weights, shift, outer, beta, radius, layers)
