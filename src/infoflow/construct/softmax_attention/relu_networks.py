"""Theorem F.2 with a bound that proves something: two attention layers compute a one-hidden-layer ReLU network.

    f_r(X) = sum_c eta_rc ReLU(sum_i w_rci . x_i + t_rc)

Layer 1, head (r, c): entry (r, c) = sum_i Range_[-b1,b1](w_rci . x_i + t_rc/n). Layer 2, head r: sum_c eta_rc
Range_[0,b2](entry (r, c)). Range is 1-Lipschitz and layer 2 is within eps2 of it everywhere, so

    error <= |eta_r|_1 (eps2 + n eps1)

with eps1, eps2 the bounds of one truncated linear head. The paper's (G.64) multiplies by |W_K' W_Q|: it grows with p.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.certificates import Certificate, Claim, stated_limit
from infoflow.certificates.rules import UNIT
from infoflow.construct.softmax_attention.anchors import Anchors, check_finite
from infoflow.construct.softmax_attention.heads import SoftmaxHead
from infoflow.construct.softmax_attention.truncated_linear import TruncatedLinear, on_anchors
from infoflow.errors import InfoFlowError


@dataclass(frozen=True)
class ReluNetwork:
    """W is (outputs, neurons, n, d), t and eta are (outputs, neurons); domain [-B, B]^{d x n}."""

    W: Float[Tensor, "outputs neurons n d"]
    t: Float[Tensor, "outputs neurons"]
    eta: Float[Tensor, "outputs neurons"]
    B: float

    def __post_init__(self) -> None:
        if self.W.ndim != 4 or self.t.shape != self.W.shape[:2] or self.eta.shape != self.W.shape[:2]:
            raise InfoFlowError(
                f"expected W (outputs, neurons, n, d) with t and eta (outputs, neurons), got {tuple(self.W.shape)}, "
                f"{tuple(self.t.shape)}, {tuple(self.eta.shape)}."
            )
        for name in ("W", "t", "eta"):
            check_finite(name, getattr(self, name))

    @property
    def neurons(self) -> int:
        """Hidden units of one output."""
        return self.W.shape[1]

    def preactivations(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... outputs neurons"]:
        """sum_i w_i . x_i + t of every hidden unit, before the ReLU."""
        return torch.einsum("ocnd,...dn->...oc", self.W, X) + self.t

    def __call__(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... outputs"]:
        return (self.eta * torch.relu(self.preactivations(X))).sum(-1)

    @property
    def token_reach(self) -> float:
        """b1 >= |w_i . x_i + t/n| for every neuron and token."""
        n = self.W.shape[2]
        return float((self.W.abs().sum(-1) * self.B + self.t.abs()[..., None] / n).max()) * (1 + 1e-12) + 1e-300

    @property
    def reach(self) -> float:
        """b2 >= every pre-activation."""
        return float((self.W.abs().sum((-1, -2)) * self.B + self.t.abs()).max()) * (1 + 1e-12) + 1e-300


@dataclass(frozen=True)
class TwoLayerAttention:
    """outputs x N + outputs heads."""

    network: ReluNetwork
    p1: int
    p2: int
    eps0: float
    shape: tuple[int, int]  # of the output matrix, outputs = rows x columns

    @property
    def heads(self) -> int:
        """Heads of both layers: one for every hidden unit, one for every output."""
        return self.network.W.shape[0] * (self.network.neurons + 1)

    def first(self, r: int, c: int) -> TruncatedLinear:
        """The head of layer 1 that computes neuron c of output r."""
        W, n = self.network.W, self.network.W.shape[2]
        bias = (self.network.t[r, c] / n).expand(n)
        b1 = self.network.token_reach
        return on_anchors(W[r, c], bias, Anchors(-b1, b1, self.p1), self.eps0, n=n)

    def second(self, r: int) -> TruncatedLinear:
        """The head of layer 2 that takes the ReLU for output r."""
        outputs, neurons = self.network.t.shape
        row = torch.eye(outputs, dtype=torch.float64)[r]
        return on_anchors(row, 0.0, Anchors(0.0, self.network.reach, self.p2), self.eps0, n=neurons)

    @cached_property
    def certificate(self) -> Certificate:
        """Against the ReLU network; add the network's own error for a target."""
        n = self.network.W.shape[2]
        size = float(self.network.eta.abs().sum(1).max())
        eps1, eps2 = self.first(0, 0).certificate.bound, self.second(0).certificate.bound
        assert eps1 is not None
        assert eps2 is not None
        parts = {
            "layer 1": size * n * eps1,
            "layer 2": size * eps2,
            "rounding": 16 * UNIT * size * self.network.neurons * self.network.reach,
        }
        bound = sum(parts.values())
        inputs = f"every X with entries within {self.network.B:g}"
        claim = Claim("|heads - ReLU network|", stated_limit(bound), inputs)
        return Certificate(claim, bound, "float64 with rounding allowance", parts=parts)

    def fast(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... rows columns"]:
        """The values by the heads' closed forms."""
        if not bool((X.abs() <= self.network.B).all()):
            raise InfoFlowError(f"expected entries within [-{self.network.B:g}, {self.network.B:g}]; raise B.")
        tokens = torch.einsum("ocnd,...dn->...ocn", self.network.W, X) + self.network.t[..., None] / X.shape[-1]
        entries = self.first(0, 0).response(tokens).sum(-1)
        out = (self.network.eta * self.second(0).response(entries)).sum(-1)
        return out.reshape(*X.shape[:-2], *self.shape)

    __call__ = fast

    def explicit(self, X: Float[Tensor, "... d n"]) -> Float[Tensor, "... rows columns"]:
        """The same through the dense matrices of both layers: slow, to check `fast` against."""
        outputs, neurons = self.network.t.shape
        middle = X.new_zeros(*X.shape[:-2], outputs, neurons)
        for r in range(outputs):
            for c in range(neurons):
                one = self.first(r, c)
                head = one.head()
                W_V, W_O = torch.zeros(outputs, head.W_V.shape[1]), torch.zeros(one.anchors.p, neurons)
                W_V, W_O = W_V.to(X.dtype), W_O.to(X.dtype)
                W_V[r], W_O[: one.n, c] = head.W_V[0], 1
                middle = middle + SoftmaxHead(head.W_K, head.W_Q, W_V, W_O)(one.affine(X))
        out = X.new_zeros(*X.shape[:-2], *self.shape)
        for r in range(outputs):
            i, j = divmod(r, self.shape[1])
            two = self.second(r)
            head = two.head()
            W_V = torch.zeros(self.shape[0], head.W_V.shape[1], dtype=X.dtype)
            W_O = torch.zeros(two.anchors.p, self.shape[1], dtype=X.dtype)
            W_V[i], W_O[:neurons, j] = head.W_V[0], self.network.eta[r]
            out = out + SoftmaxHead(head.W_K, head.W_Q, W_V, W_O)(two.affine(middle))
        return out

    @property
    def explicit_rounding(self) -> float:
        """How far float64 may move `explicit` from `fast`."""
        size = float(self.network.eta.abs().sum(1).max())
        n = self.network.W.shape[2]
        inner = self.first(0, 0).explicit_rounding
        return size * (self.second(0).explicit_rounding + n * inner * (1 + 4 * self.second(0).c))

    def attack(self, seed: int = 0, seconds: float = 5.0) -> float:
        """Largest distance from the ReLU network at random points, corners and points of small pre-activation."""
        generator = torch.Generator().manual_seed(seed)
        d, n, B = self.network.W.shape[3], self.network.W.shape[2], self.network.B
        count = max(16, min(4000, int(seconds * 2e6 / (self.network.t.numel() * n))))
        X = (2 * torch.rand(count, d, n, generator=generator, dtype=torch.float64) - 1) * B
        X = torch.cat([X, X.sign() * B, X * 1e-3])
        exact = self.network(X).reshape(len(X), *self.shape)
        return float((self.fast(X) - exact).abs().max())


def two_layer_attention(
    network: ReluNetwork, *, p1: int, p2: int, shape: tuple[int, int], eps0: float | None = None
) -> TwoLayerAttention:
    """`shape` is that of the output matrix; eps0 defaults to 1/(2 max(p1, p2)), so softmax and anchors err alike."""
    outputs, neurons = network.t.shape
    if shape[0] * shape[1] != outputs:
        raise InfoFlowError(f"expected an output shape with {outputs} entries, got {shape}; correct it.")
    if p2 < neurons or p1 < network.W.shape[2]:
        raise InfoFlowError(
            f"expected p1 >= n = {network.W.shape[2]} and p2 >= {neurons} neurons, got p1={p1}, p2={p2}; raise them."
        )
    return TwoLayerAttention(network, p1, p2, 1 / (2 * max(p1, p2)) if eps0 is None else eps0, shape)
