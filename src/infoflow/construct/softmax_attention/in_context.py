"""Theorem D.1 repaired: the truncated linear model whose w and t arrive with the input.

X has rows x (d), w (d, the same in every column), t. The head's weights do not depend on w or t:

    A(X) = M1 X [I_n 0] + M2 X e_1 [0, 1, .., p-1] + C

- bias "shared": key row ell_k = k(L_k + L_0) - 2 k t, with -2 in M2 (the paper prints -1, which halves the bias);
- bias "token": t_i is a query row against the key row -2 k, so every token has its own bias.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.certificates import Certificate
from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.heads import SoftmaxHead
from infoflow.construct.softmax_attention.truncated_linear import TruncatedLinear, on_anchors
from infoflow.errors import InfoFlowError, unknown


@dataclass(frozen=True)
class InContextTruncatedLinear:
    """Range_[a,b](w.x + t) where w and t stand in the tokens themselves."""

    d: int
    one: TruncatedLinear  # the response; its own w and t are not used
    bias: str
    bias_coefficient: float = -2.0

    @property
    def n(self) -> int:
        """The number of tokens, each with its own w and t."""
        return self.one.n

    @cached_property
    def certificate(self) -> Certificate:
        """That of the head with fixed weights, which it is for every w and t."""
        return self.one.certificate

    def affine(self, X: Float[Tensor, "... rows n"]) -> Float[Tensor, "... out p"]:
        """Rows x, t, 1 (queries) | k w, k, k(L_k + L_0) [+ coefficient k t] (keys) | L_k."""
        self._check(X)
        d, p, L = self.d, self.one.anchors.p, self.one.anchors.points()
        k = torch.arange(p, dtype=X.dtype)
        pad = X.new_zeros(*X.shape[:-2], d + 1, p - self.n)
        queries = torch.cat([torch.cat([X[..., :d, :], X[..., 2 * d :, :]], -2), pad], -1)
        ones = (torch.arange(p) < self.n).to(X.dtype).expand(*X.shape[:-2], 1, p)
        first = X[..., :1]  # X e_1
        keys = first[..., d : 2 * d, :] * k
        ell = (k * (L + L[0])).expand(*X.shape[:-2], 1, p)
        if self.bias == "shared":
            ell = ell + self.bias_coefficient * first[..., 2 * d :, :] * k
        constant = torch.stack([k, L]).expand(*X.shape[:-2], 2, p)
        return torch.cat([queries, ones, keys, ell, constant], -2)

    def head(self) -> SoftmaxHead:
        """The head's matrices."""
        d, rows = self.d, 2 * self.d + 5
        W_Q, W_K = torch.zeros(d + 2, rows, dtype=torch.float64), torch.zeros(d + 2, rows, dtype=torch.float64)
        W_Q[: d + 2, : d + 2] = -torch.eye(d + 2, dtype=torch.float64)
        W_K[:d, d + 2 : 2 * d + 2] = -2 * torch.eye(d, dtype=torch.float64)
        if self.bias == "token":
            W_K[d, 2 * d + 3] = -2
        W_K[d + 1, 2 * d + 2] = 1
        W_V = torch.zeros(1, rows, dtype=torch.float64)
        W_V[0, -1] = 1
        scale = self.one.beta * self.one.anchors.spacing / 2
        return SoftmaxHead(scale * W_K, W_Q, W_V, torch.eye(self.one.anchors.p, self.n, dtype=torch.float64))

    def explicit(self, X: Float[Tensor, "... rows n"]) -> Float[Tensor, "... n"]:
        """The same as `fast`, through the dense matrices of the head: slow, to check against."""
        return self.head()(self.affine(X))[..., 0, :]

    def preactivation(self, X: Float[Tensor, "... rows n"]) -> Float[Tensor, "... n"]:
        """w.x + t of every token, with w and t read from the input."""
        bias = X[..., 2 * self.d, :1] if self.bias == "shared" else X[..., 2 * self.d, :]
        return (X[..., : self.d, :] * X[..., self.d : 2 * self.d, :1]).sum(-2) + bias

    def fast(self, X: Float[Tensor, "... rows n"]) -> Float[Tensor, "... n"]:
        """The values by the closed form of the softmax average."""
        self._check(X)
        return self.one.response(self.preactivation(X))

    __call__ = fast

    def attack(self, seed: int = 0, seconds: float = 5.0) -> float:
        """The largest error found on the range and at the anchors' midpoints."""
        return self.one.attack(seed, seconds)

    def _check(self, X: Tensor) -> None:
        if X.ndim < 2 or tuple(X.shape[-2:]) != (2 * self.d + 1, self.n):
            raise InfoFlowError(
                f"expected X of shape ({2 * self.d + 1}, {self.n}): rows x, w, t; got {tuple(X.shape)}."
            )


def in_context_truncated_linear(
    d: int, n: int, anchors: Anchors, *, eps0: float = 0.01, bias: str = "token"
) -> InContextTruncatedLinear:
    """A head for w and t of the input: `bias` says whether t is shared or each token's own."""
    if bias not in ("shared", "token"):
        raise unknown("bias", bias, ["shared", "token"])
    one = on_anchors([0.0] * max(d, 1), 0.0, anchors, eps0, n)
    if d < 1:
        raise InfoFlowError(f"expected d >= 1, got {d}; correct it.")
    return InContextTruncatedLinear(d, one, bias)
