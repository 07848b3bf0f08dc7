"""One head that remembers everything (Theorem 2 of the head-count slides): n = T d, and all work in the read-out.

P(x, s) = e_s (x) x in R^{Td}, W_Q = W_K = 0, W_V = W_O = I, c_1 = 0: the CLS holds concat(x)/T. P must be jointly
nonlinear in (x, s), since additive codes with linear values lose the order; a ReLU encoder of (x, one-hot p_s) does
it: relu(x_j + p_s' - 1) is x_j when s = s' and 0 otherwise, for x in [0,1].

The read-out is a ReLU network with five affine layers: hats for the features f_i, levels
s_j(z) = relu(j - Nz) - relu(j - 1 - Nz), then relu(1 - sum_t s_j(z_t)), whose mean over j = 1..N lies in
(min - 1/N, min], then the outer sum.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.construct.separable import Feature, features
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig
from infoflow.nn.transformer import Linear
from infoflow.targets.target import Target

MOST_NUMBERS = 2**27  # 1 GiB of float64


@dataclass(frozen=True, eq=False)
class MemoryHead:
    """X (B, T, d) -> (B,): attention remembers, the read-out computes; `bound` is proved for X in the domain."""

    attention: Transformer
    readout: tuple[tuple[Tensor, Tensor], ...]  # (weight, bias) of the five affine layers
    domain: tuple[float, float]
    T: int
    d: int
    levels: int  # N
    knots: int
    features: int  # D
    bound: float

    def remember(self, X: Float[Tensor, "B T d"]) -> Float[Tensor, "B Td"]:
        """The CLS state: concat of (x - low)/(high - low), over T."""
        return self.attention.represent(self._with_positions(X))[..., 0, :]

    def recall(self, state: Float[Tensor, "B Td"]) -> Float[Tensor, "B T d"]:
        """Every token back from the state."""
        low, high = self.domain
        return low + (high - low) * self.T * state.unflatten(-1, (self.T, self.d))

    def __call__(self, X: Float[Tensor, "B T d"]) -> Float[Tensor, " B"]:
        y = self.remember(X)
        for number, (weight, bias) in enumerate(self.readout):
            y = y @ weight.T + bias
            y = torch.relu(y) if number < len(self.readout) - 1 else y
        return y[..., 0]

    def _with_positions(self, X: Float[Tensor, "B T d"]) -> Float[Tensor, "B T features"]:
        low, high = self.domain
        one_hot = torch.eye(self.T, dtype=X.dtype).expand(*X.shape[:-2], -1, -1)
        return torch.cat([(X - low) / (high - low), one_hot], -1)

    @property
    def parameters(self) -> int:
        """The read-out as five dense affine layers."""
        return sum(weight.numel() + bias.numel() for weight, bias in self.readout)

    @property
    def parameters_merged(self) -> int:
        """Weights that have a place in the construction, hats feeding levels directly: eps^-(1 + gamma), as on the
        slides."""
        return self._shared + self.features * self.T * (self.levels + 1) * (self.d * self.knots + 1)

    @property
    def parameters_bottleneck(self) -> int:
        """The same with the D T feature values as a linear bottleneck between hats and levels: eps^-max(1, gamma)."""
        values = self.features * self.T
        return self._shared + values * (self.d * self.knots + 1) + values * (self.levels + 1) * 2

    @property
    def _shared(self) -> int:
        """Hats with a weight and a bias each, levels into counts, the mean, the sum."""
        D, N, T = self.features, self.levels, self.T
        return 2 * T * self.d * self.knots + D * N * (2 * T + 1) + D * (N + 1) + D + 1


def memory_head(target: Target, T: int, eps: float) -> MemoryHead:
    """Build it for a target of separable features; half of eps for the levels, half for the hats.

    Levels: sum_i |w_i| span_i / (2N) <= eps/2 (centred). Hats: interpolation of g with knots h apart errs by at most
    h^2/8 sup|g''|, so sum_i |w_i| curvature_i h^2/8 <= eps/2. (span_i: range of the interpolated feature.)
    """
    if not 0 < eps < math.inf:
        raise InfoFlowError(f"expected eps > 0, got {eps!r}.")
    terms, constant = features(target, T)
    low, high = target.domain
    bend = sum(abs(f.weight) * f.curvature(low, high) for f in terms)
    knots = max(1, math.ceil((high - low) * math.sqrt(bend / (4 * eps))))  # intervals per coordinate
    grid = np.linspace(low, high, knots + 1)
    ranges = [_range(f, grid) for f in terms]
    weight = sum(abs(f.weight) * (top - bottom) for f, (bottom, top) in zip(terms, ranges, strict=True))
    levels = max(1, math.ceil(weight / eps))
    D, values = len(terms), len(terms) * T * (levels + 1)
    if values * max(T * target.dim * knots, D * levels) > MOST_NUMBERS:
        raise InfoFlowError(f"expected a read-out that fits memory, eps={eps:g} asks for {values} level units a layer.")
    step = (high - low) / knots
    bound = weight / (2 * levels) + bend * step**2 / 8
    layers = _readout(terms, constant, ranges, grid, levels, T, target.dim)
    tensors = tuple((torch.from_numpy(W), torch.from_numpy(b)) for W, b in layers)
    return MemoryHead(_attention(T, target.dim), tensors, target.domain, T, target.dim, levels, knots, D, bound)


def _attention(T: int, d: int) -> Transformer:
    """The head alone: relu(x_j + p_s - 1) on T d units, uniform attention, identity values."""
    n = T * d
    config = TransformerConfig(
        dim=d + T,
        heads=(1,),
        head_dims=(n,),
        widths=(1,),
        readout=False,
        encoder="mlp",
        encoder_width=n,
        encoder_activation="relu",
    )
    model = Transformer(config).double().requires_grad_(False)
    assert model.encoder is not None
    first, second = model.encoder.maps
    assert isinstance(first, Linear)
    assert isinstance(second, Linear)
    first.weight[:, :d] = torch.eye(d, dtype=torch.float64).repeat(T, 1)
    first.weight[:, d:] = torch.eye(T, dtype=torch.float64).repeat_interleave(d, 0)
    first.bias.fill_(-1.0)
    second.weight.copy_(torch.eye(n))
    layer = model.attentions[0]
    layer.get_parameter("value")[0].copy_(torch.eye(n))
    layer.get_parameter("output").copy_(torch.eye(n))
    return model


def _range(feature: Feature, grid: Float[np.ndarray, " knots"]) -> tuple[float, float]:
    """Exact range of the interpolated feature: each part is extremal at a knot."""
    values = [part(grid[:, None])[:, 0] for part in feature.parts]
    bottom, top = float(sum(v.min() for v in values)), float(sum(v.max() for v in values))
    return bottom, top if top > bottom else bottom + 1.0


def _readout(
    terms: list[Feature],
    constant: float,
    ranges: list[tuple[float, float]],
    grid: Float[np.ndarray, " knots"],
    N: int,
    T: int,
    d: int,
) -> list[tuple[np.ndarray, np.ndarray]]:
    D, K = len(terms), grid.size - 1
    unit = (grid - grid[0]) / (grid[-1] - grid[0])
    hats = (np.kron(np.eye(T * d), np.full((K, 1), float(T))), np.tile(-unit[:-1], T * d))  # relu(x - knot)
    z = np.zeros((D * T, T * d * K))  # feature values in [0,1] from the hats
    offset = np.zeros(D * T)
    for i, (feature, (bottom, top)) in enumerate(zip(terms, ranges, strict=True)):
        slopes, start = _hat_weights(feature, grid, top - bottom)
        for t in range(T):
            z[i * T + t, t * d * K : (t + 1) * d * K] = slopes
            offset[i * T + t] = (start - bottom) / (top - bottom)
    rise = np.kron(np.eye(D * T), np.full((N + 1, 1), -float(N)))  # relu(j - N z), j = 0..N
    level_bias = np.tile(np.arange(N + 1.0), D * T) + rise @ offset
    count = np.zeros((D * N, D * T * (N + 1)))
    mean = np.zeros((D, D * N))
    for i, feature in enumerate(terms):
        mean[i, i * N : (i + 1) * N] = 1 / N
        for t in feature.positions:
            base = (i * T + t) * (N + 1)
            for j in range(1, N + 1):
                count[i * N + j - 1, base + j], count[i * N + j - 1, base + j - 1] = -1.0, 1.0
    outer = np.array([[f.weight * (top - bottom) for f, (bottom, top) in zip(terms, ranges, strict=True)]])
    shift = constant + sum(f.weight * bottom for f, (bottom, _) in zip(terms, ranges, strict=True))
    return [
        hats,
        (rise @ z, level_bias),
        (count, np.ones(D * N)),
        (mean, np.full(D, 1 / (2 * N))),  # centred: the mean lies in (min - 1/N, min]
        (outer, np.array([shift])),
    ]


def _hat_weights(feature: Feature, grid: Float[np.ndarray, " knots"], span: float) -> tuple[np.ndarray, float]:
    """Weights of relu(x_j - knot_k), d K of them, of the interpolant over span, and its value at the low corner."""
    K = grid.size - 1
    weights, start = [], 0.0
    for part in feature.parts:
        values = part(grid[:, None])[:, 0]
        slopes = np.diff(values) * K / span  # per unit of the rescaled coordinate
        weights.append(np.diff(slopes, prepend=0.0))
        start += float(values[0])
    return np.concatenate(weights), start
