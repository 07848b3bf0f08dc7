"""The floor of a set of reads: the least error of any read-out that sees the sequence through softmax averages.

The CLS of layer l gives the read-out h_l averages, m_i = sum_t softmax_t(k_i'e(t)) V_i e(t), each of n_l numbers, with
e(t) = W z(t) the E_l numbers that are kept of the token's state z(t) (`states.py`). Whatever the read-out computes, its
error is at least E Var(F | all m), so

    floor = min over W, k, V of  E Var(F | m) / Var F,

a problem in W, k and V alone, whatever T and the widths are. The inner minimum over read-outs is a ridge regression on
1, m and random GELU features of m, solved exactly at every step; the outer one is descent in W, k, V (variable
projection: at the inner optimum its coefficients may be held fixed in the gradient). Half of a batch fits, the other
half is descended on, so the read-out cannot remember. Several starts end in several minima: what they end at is also
what luck decides in training. The values returned are measured on samples that nothing has seen.

Descent finds directions fast and sharpness slowly: a read whose key is off by an angle d still returns a value within
O(d^2) of the maximum once it is sharp, but an average of inverse temperature b is off by O(1/b). So after a first descent
all scores of a start are multiplied by the factor of FACTORS that serves it best, a second descent goes on from there
at a smaller rate, and the last measurement tries the factors once more. What is left then is floor, not temperature.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoflow.forecasts.states import State

FEATURES, LAST_FEATURES = 24, 96  # random GELU features of what the read-out sees: in the descent, in the last fit
FITTED = 150  # samples of a batch for the ridge, and as many for the descent
RIDGE, LAST_RIDGE = 1e-3, 1e-5  # of each step, and of the last fit, which has more samples
RATE, SECOND_RATE, GAIN_RATE = 0.1, 0.03, 0.03  # of the two descents and of gains, falling to zero over the last half
STEPS, SECOND_STEPS = 50, 25
SCALES = (1.0, 0.3)  # of the first scores, one a start; training begins with averages that are nearly uniform
GAINED = (0.0, 1.0)  # whether a start's gain may grow at first: sharp reads need it, soft ones are spoilt
AIMED = 5.0  # deviation of the scores of one more start, which begins at the target's own scores
AIMED_ON = 200  # sequences
STARTS = len(SCALES) + 1
FACTORS = (1.0, 4.0, 20.0)  # by which the scores of a start are sharpened
LOOKS = (10, 20, 40)  # steps at which the error is noted on the way


@dataclass(frozen=True)
class Floors:
    """For each start of SCALES: the error it ends at and the errors on the way at LOOKS; where the aimed start ends."""

    ends: list[float]
    ways: list[list[float]]
    aimed: float
    missed: list[float]  # share of each term's variance that the best start's reads do not tell

    @property
    def least(self) -> float:
        return min(*self.ends, self.aimed)


def floors(states: Sequence[State], y: Tensor, embed: int, terms: Tensor | None = None, seed: int = 0) -> Floors:
    """What the descent finds from each start; y (N, o), `embed` numbers enter the read-out at most; values of the terms
    (N, k), by which `missed` is told."""
    y = (y - y.mean(0)) / (y - y.mean(0)).square().mean().sqrt()
    problem = _Problem(states, embed, torch.Generator(y.device).manual_seed(seed))
    half = y[: len(y) // 2]
    aims = problem.measured(y).amin(0)[-1].item()
    ways = problem.descend(half, STEPS, RATE)
    problem.sharpen(half)
    problem.descend(half, SECOND_STEPS, SECOND_RATE)
    last = problem.measured(y)
    missed = [] if terms is None else problem.missed(terms, *divmod(int(last.argmin()), STARTS))
    *ends, aimed = last.amin(0).tolist()
    return Floors(ends, ways[:-1], min(aims, aimed), missed)


class _Problem:
    """All starts at once: every tensor has a leading axis S of starts."""

    def __init__(self, states: Sequence[State], embed: int, generator: torch.Generator) -> None:
        self.generator = generator
        self.layers = [_Layer(state, generator) for state in states]
        seen = sum(layer.outputs for layer in self.layers)
        self.weights = [weight for layer in self.layers for weight in layer.weights if weight.requires_grad]
        self.squeeze = None
        if seen > embed:
            self.squeeze = _normal((STARTS, seen, embed), generator, seen)
            for number, place in enumerate(self._aimed()[:embed]):
                self.squeeze[-1, :, number] = 0.0
                self.squeeze[-1, place, number] = 1.0
            self.squeeze.requires_grad_()
            self.weights.append(self.squeeze)
        size = min(seen, embed)
        self.directions = _normal((size, LAST_FEATURES), generator, size)
        self.offsets = _normal((LAST_FEATURES,), generator, 1)

    def _aimed(self) -> list[int]:
        """Which of the numbers seen are the aimed heads' scores (their first ones)."""
        places, before = [], 0
        for layer in self.layers:
            n = layer.outputs // layer.state.heads
            places += [before + head * n for head in range(layer.state.aims.shape[-1])]
            before += layer.outputs
        return places

    def descend(self, y: Tensor, steps: int, rate: float) -> list[list[float]]:
        noted = []
        gains = [layer.gains for layer in self.layers]
        optimiser = torch.optim.Adam([{"params": self.weights, "lr": rate}, {"params": gains, "lr": GAIN_RATE}])
        fitted = min(FITTED, len(y) // 2)
        for step in range(steps):
            for group, full in zip(optimiser.param_groups, (rate, GAIN_RATE), strict=True):
                group["lr"] = full * min(1.0, 2.0 * (1.0 - step / steps))
            chosen = torch.randperm(len(y), generator=self.generator, device=y.device)[: 2 * fitted]
            features = self._features(self._seen(chosen), FEATURES)
            with torch.no_grad():
                answer = _ridge(features[:, :fitted], y[chosen[:fitted]], RIDGE)
            error = (features[:, fitted:] @ answer - y[chosen[fitted:]]).square().mean((1, 2))
            if step in LOOKS:
                noted.append(error.tolist())
            optimiser.zero_grad()
            error.sum().backward()
            optimiser.step()
        return [list(way) for way in zip(*noted, strict=True)]

    def sharpen(self, y: Tensor) -> None:
        """Multiply the scores of each start by the factor that serves it best; from here on every gain may grow."""
        best = self.measured(y).argmin(0)
        for layer in self.layers:
            layer.factor = layer.factor * torch.tensor(FACTORS, device=best.device)[best].view(-1, 1, 1)
            with torch.no_grad():
                layer.factor = layer.factor * (layer.gained * layer.gains).exp()
                layer.gains.zero_()
            layer.gained = torch.ones_like(layer.gained)

    @torch.no_grad()
    def measured(self, y: Tensor) -> Tensor:
        """(FACTORS, S): the error with all scores multiplied; fitted on the first half, measured on the second."""
        rest, found = y[len(y) // 2 :], []
        for factor in FACTORS:
            error = (self._answers(y, factor) - rest).square().mean((1, 2))
            found.append(error / (rest - rest.mean(0)).square().mean())
        return torch.stack(found)

    @torch.no_grad()
    def missed(self, terms: Tensor, factor: int, start: int) -> list[float]:
        """For each term (column) the share of its variance that the reads of one start leave unexplained."""
        y = (terms - terms.mean(0)) / terms.std(0).clamp_min(1e-9)
        rest = y[len(y) // 2 :]
        error = (self._answers(y, FACTORS[factor])[start] - rest).square().mean(0)
        return (error / (rest - rest.mean(0)).square().mean(0).clamp_min(1e-9)).clamp_max(1.0).tolist()

    def _answers(self, y: Tensor, factor: float) -> Tensor:
        """(S, N / 2, o): a read-out fitted on the first half of the samples answers for the second."""
        half = len(y) // 2
        everything = torch.arange(len(y), device=y.device)
        averages = torch.cat([self._averages(part, factor) for part in everything.split(FITTED)], 1)
        seen = self._squeezed(averages, averages[:, :half])
        features = self._features(seen, LAST_FEATURES, seen[:, :half])
        return features[:, half:] @ _ridge(features[:, :half], y[:half], LAST_RIDGE)

    def _averages(self, chosen: Tensor, factor: float = 1.0) -> Tensor:
        return torch.cat([layer(chosen, factor) for layer in self.layers], -1)

    def _seen(self, chosen: Tensor) -> Tensor:
        averages = self._averages(chosen)
        return self._squeezed(averages, averages)

    def _squeezed(self, averages: Tensor, reference: Tensor) -> Tensor:
        return averages if self.squeeze is None else _standard(averages, reference) @ self.squeeze

    def _features(self, seen: Tensor, count: int, reference: Tensor | None = None) -> Tensor:
        normal = _standard(seen, seen if reference is None else reference)
        bent = torch.nn.functional.gelu(normal @ self.directions[:, :count] + self.offsets[:count])
        return torch.cat([torch.ones_like(normal[..., :1]), normal, bent], -1)


@dataclass
class _Layer:
    """The reads of one layer: W (S, E, p), k (S, h, E), V (S, h, n, E); identities where they would hide nothing.

    Scores have a gain of their own, learned as its logarithm: how sharp an average must be spans orders of magnitude.
    """

    state: State
    generator: torch.Generator

    def __post_init__(self) -> None:
        S, h, p = STARTS, self.state.heads, self.state.tokens.shape[-1]
        E = min(self.state.embed, p)
        n = min(self.state.size, E)
        device, generator = self.state.tokens.device, self.generator
        scales = torch.tensor((*SCALES, 1.0), device=device).view(S, 1, 1)
        self.keep = torch.eye(p, device=device).expand(S, p, p) if p == E else _normal((S, E, p), generator, p)
        self.keys = scales * _normal((S, h, E), generator, E)
        self.gains = torch.zeros(S, h, 1, device=device, requires_grad=True)
        self.factor = torch.ones(S, 1, 1, device=device)
        self.gained = torch.tensor((*GAINED, 1.0), device=device).view(S, 1, 1)
        self.values = torch.eye(E, device=device).expand(S, h, E, E) if n == E else _normal((S, h, n, E), generator, E)
        self._aim(p > E, n < E)
        self.keep.requires_grad_(p > E)
        self.keys.requires_grad_()
        self.values.requires_grad_(n < E)
        self.weights = [self.keep, self.keys, self.values]
        self.outputs = h * n

    @torch.no_grad()
    def _aim(self, kept: bool, valued: bool) -> None:
        """Point the heads of the last start at the aims: keys are their regressions on the tokens."""
        tokens, aims = self.state.tokens[:AIMED_ON], self.state.aims[:AIMED_ON]
        if not aims.shape[-1]:
            return
        flat, wanted = tokens.reshape(-1, tokens.shape[-1]), aims.reshape(-1, aims.shape[-1])
        normal = flat.T @ flat + 1e-3 * len(flat) * torch.eye(flat.shape[-1], device=flat.device)
        directions = torch.linalg.solve(normal, flat.T @ wanted).T  # (aims, p)
        directions = directions / (flat @ directions.T).std(0).clamp_min(1e-3).unsqueeze(-1)
        for head, direction in enumerate(directions[: self.keep.shape[1]]):
            if kept:
                self.keep[-1, head] = direction
                self.keys[-1, head] = 0.0
                self.keys[-1, head, head] = AIMED
            else:
                self.keys[-1, head] = AIMED * direction
            if valued:
                self.values[-1, head, 0] = direction if not kept else torch.eye(self.keep.shape[1])[head]

    def __call__(self, chosen: Tensor, factor: float = 1.0) -> Tensor:
        tokens = self.state.tokens[chosen]  # (B, T, p)
        keys = factor * self.factor * self.keys * (self.gained * self.gains).exp()
        scores = torch.einsum("she,sep,btp->sbht", keys, self.keep, tokens)
        pooled = torch.einsum("sbht,btp->sbhp", torch.softmax(scores, -1), tokens)
        return torch.einsum("sbhp,sep,shve->sbhv", pooled, self.keep, self.values).flatten(2)


def _normal(shape: tuple[int, ...], generator: torch.Generator, fan: int) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device) / fan**0.5


def _standard(x: Tensor, reference: Tensor) -> Tensor:
    """Centred and scaled by the reference's mean and deviation, which carry no gradient."""
    with torch.no_grad():
        mean, deviation = reference.mean(1, keepdim=True), reference.std(1, keepdim=True).clamp_min(1e-9)
    return (x - mean) / deviation


def _ridge(features: Tensor, y: Tensor, ridge: float) -> Tensor:
    """Coefficients in float64: the normal matrix of sharp averages is nearly singular."""
    F = features.double()
    normal = F.transpose(-1, -2) @ F
    penalty = ridge * F.shape[1] * torch.eye(F.shape[-1], dtype=F.dtype, device=F.device)
    return torch.linalg.solve(normal + penalty, F.transpose(-1, -2) @ y.double()).to(features.dtype)
