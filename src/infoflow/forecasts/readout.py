"""The read-out of the reduced problem: ridge regression on what is seen and on GELU features of it, in closed form; and
what a read-out that learns its features makes of the mean token.

A trained feed-forward block bends in the directions that matter, random features bend in all of them. What tells the
directions that matter is the mean outer product of the answer's gradient, G = E grad f grad f' (f the answer so far):
features drawn with covariance G instead of the identity are those a trained block would have (recursive feature
machines, arXiv 2212.13881). No step of descent is made: fit, look at G, draw again, fit again.
"""

import torch
from torch import Tensor

LEAST = 1e-6  # deviation of numbers of size one in float32 that are not constant
FEATURES, ROUNDS, PENALTY = 160, 3, 1e-5  # of the mean token: features, how often they are drawn, the ridge


class ReadOut:
    """`count` GELU features of `size` standardised numbers."""

    def __init__(self, size: int, count: int, generator: torch.Generator) -> None:
        self.size, self.count, self.generator = size, count, generator
        self.directions = self._plain(count)
        self.offsets = normal((count,), generator, 1)

    def _plain(self, count: int) -> Tensor:
        return normal((self.size, count), self.generator, self.size)

    def features(self, seen: Tensor) -> Tensor:
        """(..., size) -> (..., 1 + size + count)."""
        bent = torch.nn.functional.gelu(seen @ self.directions + self.offsets)
        return torch.cat([torch.ones_like(seen[..., :1]), seen, bent], -1)

    def learn(self, root: Tensor) -> None:
        """Draw half of the directions again, with covariance root root'."""
        half = self.count // 2
        steep = root @ normal((self.size, self.count - half), self.generator, 1)
        self.directions = torch.cat([self._plain(half), steep], -1)

    def steepest(self, seen: Tensor, answer: Tensor) -> Tensor:
        """(size, size): a root of G, of trace one, its columns from the least to the most; `answer` (features, o) is
        that of `features`."""
        slopes = _slope(seen @ self.directions + self.offsets)  # (N, count)
        total = seen.new_zeros(self.size, self.size)
        for coefficients in answer.unbind(-1):
            flat, bent = coefficients[1 : 1 + self.size], coefficients[1 + self.size :]
            gradient = (slopes * bent) @ self.directions.T + flat
            total += gradient.T @ gradient
        values, vectors = torch.linalg.eigh(total.double())
        values = values.clamp_min(0.0)
        values = values / values.sum().clamp_min(1e-30)
        return (vectors * values.sqrt()).to(seen.dtype)


@torch.no_grad()
def averaged(tokens: Tensor, y: Tensor, kept: int) -> Tensor:
    """(N / 2, o): what a read-out of `kept` numbers of the mean token answers for the second half of the samples.

    Kept are those directions in which a read-out of all of it changes most."""
    generator, half = torch.Generator(y.device).manual_seed(0), len(y) // 2
    mean = tokens.mean(1)
    seen = standard(mean, mean[:half], 0)
    if kept < mean.shape[-1]:
        readout, answer = _learned(seen[:half], y[:half], generator)
        seen = seen @ readout.steepest(seen[:half], answer)[:, -kept:]
        seen = standard(seen, seen[:half], 0)
    readout, answer = _learned(seen[:half], y[:half], generator)
    return readout.features(seen[half:]) @ answer


def _learned(seen: Tensor, y: Tensor, generator: torch.Generator) -> tuple[ReadOut, Tensor]:
    readout = ReadOut(seen.shape[-1], FEATURES, generator)
    answer = ridge(readout.features(seen), y, PENALTY)
    for _ in range(ROUNDS - 1):
        readout.learn(readout.steepest(seen, answer))
        answer = ridge(readout.features(seen), y, PENALTY)
    return readout, answer


def ridge(features: Tensor, y: Tensor, penalty: float) -> Tensor:
    """Coefficients in float64: the normal matrix of sharp averages is nearly singular."""
    F = features.double()
    added = penalty * F.shape[-2] * torch.eye(F.shape[-1], dtype=F.dtype, device=F.device)
    return torch.linalg.solve(F.transpose(-1, -2) @ F + added, F.transpose(-1, -2) @ y.double()).to(features.dtype)


def normal(shape: tuple[int, ...], generator: torch.Generator, fan: int) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device) / fan**0.5


def standard(x: Tensor, reference: Tensor, samples: int = 1) -> Tensor:
    """Centred and scaled by the reference's mean and deviation over the axis of samples, which carry no gradient; what
    varies by rounding alone stays small."""
    with torch.no_grad():
        mean, deviation = reference.mean(samples, keepdim=True), reference.std(samples, keepdim=True).clamp_min(LEAST)
    return (x - mean) / deviation


def _slope(x: Tensor) -> Tensor:
    """The derivative of GELU."""
    return 0.5 * (1.0 + torch.erf(x / 2**0.5)) + x * torch.exp(-x.square() / 2) / (2 * torch.pi) ** 0.5
