"""The two single heads as things one can save, load and certify: the one that remembers and the one of exponentials.

The head that remembers (Theorem 2 of the head-count slides) has n = T d, and all work is in the read-out.
P(x, s) = e_s (x) x in R^{Td}, W_Q = W_K = 0, W_V = W_O = I, c_1 = 0: the CLS holds concat(x)/T. P must be jointly
nonlinear in (x, s), since additive codes with linear values lose the order; a ReLU encoder of (x, one-hot p_s) does
it: relu(x_j + p_s' - 1) is x_j when s = s' and 0 otherwise, for x in [0,1].

The read-out is a ReLU network with five affine layers: hats for the features f_i, levels
s_j(z) = relu(j - Nz) - relu(j - 1 - Nz), then relu(1 - sum_t s_j(z_t)), whose mean over j = 1..N lies in
(min - 1/N, min], then the outer sum.
"""

import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow import arguments
from infoflow.arguments import shown
from infoflow.certificates import Certificate, asked_of, error_claim
from infoflow.certificates.attack import starts
from infoflow.certificates.certificate import expect_float64
from infoflow.compiler.occupancy import remade
from infoflow.construct.single_head_plans import ExponentialHead, MemoryPlan, exponential_head, hat_weights, plan_memory
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig, files
from infoflow.nn.transformer import Linear
from infoflow.targets.target import Target

KINDS = ("memory_head", "exponential_head")
SAMPLE = 800  # sequences in a round of the attack
LONGEST = 2**21  # numbers in them; the largest of their temporaries has a few times as many


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
    parts: dict[str, float]  # the summands of the bound

    @property
    def bound(self) -> float:
        """The error, summed over its parts."""
        return sum(self.parts.values())

    def remember(self, X: Float[Tensor, "B T d"]) -> Float[Tensor, "B Td"]:
        """The CLS state: concat of (x - low)/(high - low), over T."""
        return self.attention.represent(self._with_positions(X))[..., 0, :]

    def recall(self, state: Float[Tensor, "B Td"]) -> Float[Tensor, "B T d"]:
        """Every token back from the state."""
        low, high = self.domain
        made: Tensor = low + (high - low) * self.T * state.unflatten(-1, (self.T, self.d))
        return made

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
    """Build it for a target of separable features; Refused with the reason where it has others."""
    return write_memory(plan_memory(target, T, eps))


def write_memory(plan: MemoryPlan) -> MemoryHead:
    """The uniform head and the five affine layers of its read-out, as a plan says."""
    d, D = plan.target.dim, len(plan.terms)
    tensors = tuple((torch.from_numpy(W), torch.from_numpy(b)) for W, b in _readout(plan))
    attention = _attention(plan.T, d)
    return MemoryHead(attention, tensors, plan.target.domain, plan.T, d, plan.levels, plan.knots, D, plan.parts)


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


def _readout(plan: MemoryPlan) -> list[tuple[np.ndarray, np.ndarray]]:
    terms, ranges, grid = plan.terms, plan.ranges, plan.grid
    N, T, d = plan.levels, plan.T, plan.target.dim
    D, K = len(terms), grid.size - 1
    unit = (grid - grid[0]) / (grid[-1] - grid[0])
    hats = (np.kron(np.eye(T * d), np.full((K, 1), float(T))), np.tile(-unit[:-1], T * d))  # relu(x - knot)
    z = np.zeros((D * T, T * d * K))  # feature values in [0,1] from the hats
    offset = np.zeros(D * T)
    for i, (feature, (bottom, top)) in enumerate(zip(terms, ranges, strict=True)):
        slopes, start = hat_weights(feature, grid, top - bottom)
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
    shift = plan.constant + sum(f.weight * bottom for f, (bottom, _) in zip(terms, ranges, strict=True))
    return [
        hats,
        (rise @ z, level_bias),
        (count, np.ones(D * N)),
        (mean, np.full(D, 1 / (2 * N))),  # centred: the mean lies in (min - 1/N, min]
        (outer, np.array([shift])),
    ]


@dataclass(frozen=True, eq=False)
class SingleHead:
    """X (B, T, d) -> (B,) by one head; `certificate` states the bound the construction proves over the domain."""

    kind: str
    head: MemoryHead | ExponentialHead
    target: Target
    eps: float
    reasons: tuple[str, ...] = ()  # what a file holds that the construction does not

    def __call__(self, X: Float[Tensor, "B T d"]) -> Float[Tensor, " B"]:
        if isinstance(self.head, MemoryHead):
            return self.head(X)
        return torch.from_numpy(self.head(X.numpy()))

    @property
    def certificate(self) -> Certificate:
        """The head's bound as a claim about its target."""
        d, (low, high) = self.target.dim, self.target.domain
        return Certificate(
            error_claim(self.target.spelling, self.eps, self.head.T, [low] * d, [high] * d),
            self.head.bound,
            "float64 with rounding allowance",
            ("IEEE float64, exp and tanh within 4 units in the last place", "sums in any order"),
            reasons=self.reasons,
            parts=self.head.parts,
        )

    def attack(self, seed: int = 0, seconds: float = 1.0) -> float | None:
        """The largest error on random, corner, tied and clustered inputs; None where one sequence is too long."""
        generator, end, worst = np.random.default_rng(seed), time.monotonic() + seconds, 0.0
        low, high = self.target.domain
        numbers = self.head.T * self.target.dim
        if numbers > LONGEST:
            return None
        for round_number in itertools.count():
            rows = max(1, min(SAMPLE, LONGEST // numbers))
            X = low + (high - low) * starts(generator, rows, self.head.T, self.target.dim, round_number)
            y = self(torch.from_numpy(X)).numpy()
            worst = max(worst, float(np.nan_to_num(np.abs(y - self.target(X)), nan=np.inf).max()))
            if time.monotonic() >= end:
                break
        return worst

    def tensors(self) -> dict[str, Tensor]:
        """What the file holds, by name."""
        if isinstance(self.head, MemoryHead):
            names = ("weight", "bias")
            layers = enumerate(self.head.readout)
            return {f"readout.{i}.{name}": t for i, pair in layers for name, t in zip(names, pair, strict=True)}
        return {"scales": torch.tensor([self.head.beta, self.head.steepness], dtype=torch.float64)}

    def report(self) -> dict[str, Any]:
        """What `infoflow build TARGET` prints; parameters are those of the read-out, the head has none."""
        low, high = self.target.domain
        sizes = [t.numel() for t in self.tensors().values()]
        if isinstance(self.head, MemoryHead):
            embed, width = self.head.T * self.head.d, max(len(bias) for _, bias in self.head.readout[:-1])
            nonzero = sum(int(torch.count_nonzero(t)) for t in self.tensors().values())
        else:
            embed, width = self.head.head_dim, self.head.head_dim * self.head.units
            sizes = [3 * width + 1]  # a weight and a bias into each unit, a weight out of it, the last bias
            nonzero = sizes[0]
        return {
            "eps": self.eps,
            "domain": [[low] * self.target.dim, [high] * self.target.dim],
            "weight_bound": None,
            "rule": self.kind,
            "heads": [1],
            "embed": [embed],
            "head_dims": [embed],
            "widths": [width],
            "encoder_width": 0,
            "beta": [0.0],
            "parameters": sum(sizes),
            "nonzero": nonzero,
            "bound": self.certificate.bound,
            "parts": self.head.parts,
            "arithmetic": self.certificate.arithmetic,
            "inputs": self.certificate.claim.inputs,
            "promises": list(self.certificate.promises),
        }

    def save(self, path: str | Path) -> Path:
        """Write the tensors and the target's spelling; `load` makes the head again."""
        if not self.target.spelling:
            raise InfoFlowError("expected a target with a spelling, this one has none; name it to save its network.")
        header = {"target": self.target.spelling, "T": self.head.T, "eps": self.eps}
        if isinstance(self.head, ExponentialHead):
            header["units"] = self.head.units
        return files.write(path, self.kind, self.tensors(), header | {"certificate": self.certificate.to_json()})


def single_head(kind: str, target: Target, T: int, eps: float, units: int | None = None) -> SingleHead:
    """Build one of the two kinds for a target; Refused with the reason where it has other features."""
    arguments.integer("T", T)
    target.check_length(T)
    arguments.eps(eps)
    head = memory_head(target, T, eps) if kind == "memory_head" else exponential_head(target, T, eps, units)
    return SingleHead(kind, head, target, eps)


def write_single_head(kind: str, plan: MemoryPlan | ExponentialHead, target: Target, eps: float) -> SingleHead:
    """What `construct.builders` planned; the head of exponentials is its own plan."""
    head = write_memory(plan) if isinstance(plan, MemoryPlan) else plan
    return SingleHead(kind, head, target, float(eps))


def load_memory(tensors: dict[str, Any], header: dict[str, Any]) -> SingleHead:
    """The loader of kind "memory_head"."""
    return _loaded("memory_head", tensors, header)


def load_exponential(tensors: dict[str, Any], header: dict[str, Any]) -> SingleHead:
    """The loader of kind "exponential_head"."""
    return _loaded("exponential_head", tensors, header)


def _loaded(kind: str, tensors: dict[str, Any], header: dict[str, Any]) -> SingleHead:
    """Made again from target, T and eps; tensors that differ are named and the certificate does not hold."""
    target, T, units, eps = header.get("target"), header.get("T"), header.get("units"), asked_of(header)
    if not isinstance(target, str) or type(T) is not int or eps is None:
        raise InfoFlowError(f"expected target, T and eps in the header of a {kind}, got something else.")
    if units is not None and type(units) is not int:
        raise InfoFlowError(f"expected a whole number of units in the header of a {kind}, got {shown(units)}.")
    asked = remade(target, f"a {kind}")
    first = tensors.get("readout.0.weight")  # Td columns: what is made again is no larger than what the file holds
    if kind == "memory_head" and (first is None or first.ndim != 2 or first.shape[1] != T * asked.dim):
        raise InfoFlowError(f"expected readout.0.weight with T d = {T * asked.dim} columns, found none; it is damaged.")
    made = single_head(kind, asked, T, eps, units)
    wanted = made.tensors()
    files.expect(tensors, {name: tuple(t.shape) for name, t in wanted.items()})
    expect_float64(tensors.items())
    wrong = tuple(f"{n} differs from the construction" for n, t in wanted.items() if not torch.equal(tensors[n], t))
    return SingleHead(kind, made.head, made.target, made.eps, wrong)
