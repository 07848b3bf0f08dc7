"""The floor of a set of reads: the least error of any read-out that sees the sequence through softmax averages.

The CLS of layer l gives the read-out h_l averages, m_i = sum_t softmax_t(k_i'e(t)) V_i e(t), each of n_l numbers, with
e(t) = W z(t) the E_l numbers that are kept of the token's state z(t) (`states.py`). Whatever the read-out computes, its
error is at least E Var(F | all m), so

    floor = min over W, k, V of  E Var(F | m) / Var F,

a problem in W, k and V alone, whatever T and the widths are. The inner minimum over read-outs is a ridge regression on
1, m and random GELU features of m, solved exactly at every step; the outer one is descent in W, k, V
(variable projection: at the inner optimum its coefficients may be held fixed in the gradient). Half of a batch fits,
the other half is descended on, so the read-out cannot remember. Several starts end in several minima: what they end
at is also what luck decides in training. The values returned are measured on samples that nothing has seen.

Descent finds directions fast and sharpness slowly: a read whose key is off by an angle d still returns a value within
O(d^2) of the maximum once it is sharp, but an average of inverse temperature b is off by O(1/b). So there are two
answers. `ends` is what descent reaches in its steps, which is also a measure of how hard training will be. `floor` is
what is left when temperature is no obstacle: all scores multiplied by the best of FACTORS, for the starts of the
descent and for one that is not descended at all, whose heads follow the target's own scores (`State.aims`). Where no
score is known, that one averages all tokens alike, and its read-out learns its features (`readout.py`): a network needs
no sharpness for a smooth function of the mean token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infoflow.forecasts.readout import ReadOut, averaged, normal, ridge, standard
from infoflow.forecasts.states import State

FEATURES = 80  # random GELU features of what the read-out sees
MULTIPLIED, LARGEST = 8, 20.0  # of those numbers the first, whose products it may have as well, cut off at LARGEST
FITTED = 800  # samples of a batch for the ridge, and as many for the descent
RIDGE, LAST_RIDGE = 1e-3, 1e-4  # of each step, and of the last fit, which has more samples
RATE, GAIN_RATE = 0.1, 0.03  # of the outer descent and of its gains, falling to zero over the second half
STEPS = 120
SCALES = (3.0, 1.0)  # of the first scores, the starts in turn
GAINED = (0.0, 1.0)  # whether a start's gain may grow: sharp reads need it, soft ones are spoilt by it
STARTS, ONE_LAYER_STARTS = 2, 4  # one layer is cheap, and luck is told by more starts
FACTORS = (1.0, 5.0, 25.0)  # by which scores are sharpened
AIMED = 5.0  # deviation of the scores of heads that follow the target's own
AIMED_ON = 200  # sequences on which their keys are fitted
LOOK = 60  # the step at which the error on the way is noted


@dataclass(frozen=True)
class Floors:
    """For each start the error it ends at and that at LOOK; the least error with sharpened scores, of heads
    that follow the target's own and of these starts; and what of each term's variance the best of them does not tell.
    """

    ends: list[float]
    ways: list[float]
    aimed: float
    sharpened: float
    missed: list[float]
    sharp: list[float] = field(default_factory=list)  # for each start the least error with sharpened scores
    soft: list[float] = field(
        default_factory=list
    )  # of the second registration's floors: its first is that of uniform averages

    @property
    def floor(self) -> float:
        return min(self.aimed, self.sharpened, *self.ends)


def floors(
    states: Sequence[State],
    y: Tensor,
    embed: int,
    terms: Tensor | None = None,
    seed: int = 0,
    told: Sequence[State] | None = None,
) -> Floors:
    """What descent finds; y (N, o), `embed` numbers enter the read-out at most; `terms` (N, k) for `missed`. Heads that
    follow the target's own scores may be given other states, `told`."""
    y = _normalised(y)
    generator = torch.Generator(y.device).manual_seed(seed)
    problem = _Problem(states, embed, generator, starts_of(len(states)))
    ways = problem.descend(y[: len(y) // 2])
    ends = problem.measured(y)
    following = aims(states if told is None else told, embed)
    aimed = following.measured(y)
    best, errors = (problem, ends) if ends.min() < aimed.min() else (following, aimed)
    missed = [] if terms is None else best.missed(terms, *divmod(int(errors.argmin()), best.starts))
    least = aimed.min().item()
    if not any(state.aims.shape[-1] for state in states):
        alike, untold = _average(states[-1], embed, y, terms)
        missed = untold if alike < min(least, ends.min().item()) else missed
        least = min(least, alike)
    return Floors(
        ends=ends[0].tolist(),
        ways=ways,
        aimed=least,
        sharpened=ends.min().item(),
        missed=missed,
        sharp=ends.amin(0).tolist(),
    )


def _average(state: State, embed: int, y: Tensor, terms: Tensor | None) -> tuple[float, list[float]]:
    """The error, and what of each term is missed, where all heads of the layer average all tokens alike."""
    kept, half = min(state.heads * state.size, state.embed, embed), len(y) // 2
    answers = averaged(state.tokens, y if terms is None else torch.cat([y, _unit(terms)], -1), kept)
    answer, told = answers.split([y.shape[-1], answers.shape[-1] - y.shape[-1]], -1)
    alike = _left(answer, y[half:], (-2, -1)).item()
    return alike, [] if terms is None else _left(told, _unit(terms)[half:], -2).clamp_max(1.0).tolist()


def starts_of(layers: int) -> int:
    return ONE_LAYER_STARTS if layers == 1 else STARTS


def aims(states: Sequence[State], embed: int) -> "_Problem":
    """Heads that follow the target's own scores."""
    generator = torch.Generator(states[0].tokens.device).manual_seed(0)
    problem = _Problem(states, embed, generator, 1, multiplied=MULTIPLIED)
    problem.aim()
    return problem


class _Problem:
    """All starts at once: every tensor has a leading axis S of starts."""

    def __init__(
        self, states: Sequence[State], embed: int, generator: torch.Generator, starts: int, multiplied: int = 0
    ) -> None:
        self.generator, self.starts, self.multiplied = generator, starts, multiplied
        self.layers = [_Layer(state, generator, starts) for state in states]
        seen = sum(layer.outputs for layer in self.layers)
        self.weights = [weight for layer in self.layers for weight in layer.weights if weight.requires_grad]
        self.squeeze = None
        if seen > embed:
            self.squeeze = normal((starts, seen, embed), generator, seen).requires_grad_()
            self.weights.append(self.squeeze)
        self.readout = ReadOut(min(seen, embed), FEATURES, generator)

    @torch.no_grad()
    def aim(self) -> None:
        """Point the heads of the last start at what they should follow, and keep what they find first of all."""
        before, kept = 0, 0
        for layer in self.layers:
            for output in layer.aim():
                if self.squeeze is not None and kept < self.squeeze.shape[-1]:
                    self.squeeze[-1, :, kept] = 0.0
                    self.squeeze[-1, before + output, kept] = 1.0
                    kept += 1
            before += layer.outputs

    def descend(self, y: Tensor) -> list[float]:
        """The errors of the starts at LOOK."""
        noted: list[float] = []
        gains = [layer.gains for layer in self.layers]
        groups = [{"params": self.weights, "lr": RATE}, {"params": gains, "lr": GAIN_RATE}]
        optimiser = torch.optim.Adam(groups)
        fitted = min(FITTED, len(y) // 2)
        for step in range(STEPS):
            for group, rate in zip(optimiser.param_groups, (RATE, GAIN_RATE), strict=True):
                group["lr"] = rate * min(1.0, 2.0 * (1.0 - step / STEPS))
            chosen = torch.randperm(len(y), generator=self.generator, device=y.device)[: 2 * fitted]
            features = self._features(self._seen(chosen))
            with torch.no_grad():
                answer = ridge(features[:, :fitted], y[chosen[:fitted]], RIDGE)
            error = (features[:, fitted:] @ answer - y[chosen[fitted:]]).square().mean((1, 2))
            if step == LOOK:
                noted = error.tolist()
            optimiser.zero_grad()
            error.sum().backward()
            optimiser.step()
        return noted

    @torch.no_grad()
    def measured(self, y: Tensor) -> Tensor:
        """(FACTORS, S): the error with all scores multiplied; fitted on the first half, measured on the second."""
        rest, found = y[len(y) // 2 :], []
        for factor in FACTORS:
            found.append(_left(self._answers(y, factor), rest, (-2, -1)))
        return torch.stack(found)

    @torch.no_grad()
    def missed(self, terms: Tensor, factor: int, start: int) -> list[float]:
        """For each term (column) the share of its variance that the reads of one start leave unexplained."""
        y = _unit(terms)
        return _left(self._answers(y, FACTORS[factor])[start], y[len(y) // 2 :], -2).clamp_max(1.0).tolist()

    def _answers(self, y: Tensor, factor: float) -> Tensor:
        """(S, N / 2, o): a read-out fitted on the first half of the samples answers for the second."""
        half = len(y) // 2
        everything = torch.arange(len(y), device=y.device)
        averages = torch.cat([self._averages(part, factor) for part in everything.split(FITTED)], 1)
        seen = self._squeezed(averages, averages[:, :half])
        features = self._features(seen, seen[:, :half])
        return features[:, half:] @ ridge(features[:, :half], y[:half], LAST_RIDGE)

    def _averages(self, chosen: Tensor, factor: float = 1.0) -> Tensor:
        return torch.cat([layer(chosen, factor) for layer in self.layers], -1)

    def _seen(self, chosen: Tensor) -> Tensor:
        averages = self._averages(chosen)
        return self._squeezed(averages, averages)

    def _squeezed(self, averages: Tensor, reference: Tensor) -> Tensor:
        return averages if self.squeeze is None else standard(averages, reference) @ self.squeeze

    def _features(self, seen: Tensor, reference: Tensor | None = None) -> Tensor:
        seen = standard(seen, seen if reference is None else reference)
        row, column = torch.triu_indices(*(min(seen.shape[-1], self.multiplied),) * 2)
        products = (seen[..., row] * seen[..., column]).clamp(-LARGEST, LARGEST)
        return torch.cat([self.readout.features(seen), products], -1)


@dataclass
class _Layer:
    """The reads of one layer: W (S, E, p), k (S, h, E), V (S, h, n, E); identities where they would hide nothing.

    Scores have a gain of their own, learned as its logarithm: how sharp an average must be spans orders of magnitude.
    """

    state: State
    generator: torch.Generator
    starts: int

    def __post_init__(self) -> None:
        S, h, p = self.starts, self.state.heads, self.state.tokens.shape[-1]
        E = min(self.state.embed, p)
        n = min(self.state.size, E)
        device, generator = self.state.tokens.device, self.generator
        scales = torch.tensor([SCALES[s % len(SCALES)] for s in range(S)], device=device).view(S, 1, 1)
        self.keep = torch.eye(p, device=device).expand(S, p, p) if p == E else normal((S, E, p), generator, p)
        self.keys = scales * normal((S, h, E), generator, E)
        self.gains = torch.zeros(S, h, 1, device=device, requires_grad=True)
        self.gained = torch.tensor([GAINED[s % len(GAINED)] for s in range(S)], device=device).view(S, 1, 1)
        self.values = torch.eye(E, device=device).expand(S, h, E, E) if n == E else normal((S, h, n, E), generator, E)
        self.keep.requires_grad_(p > E)
        self.keys.requires_grad_()
        self.values.requires_grad_(n < E)
        self.weights = [self.keep, self.keys, self.values]
        self.outputs = h * n

    def aim(self) -> list[int]:
        """Point the heads of the last start: keys are regressions of the aims on the tokens, with scores of deviation
        AIMED, and the first value of a head is its score. A head without an aim averages over all tokens what they
        have read for the CLS (`State.told`). Returns which outputs carry something."""
        found = self._directions()
        size, rows = self.outputs // self.state.heads, self.keep.shape[1]
        for head, direction in enumerate(found):
            self._put(head, head, 0, direction)
            self.keys[-1, head] = AIMED * self._place(head, direction)
        used, spare = len(found), self.state.heads - len(found)
        self.keys[-1, used:] = 0.0
        told = self.state.told[: min(spare * size, rows - used)]
        unit = torch.eye(self.keep.shape[-1], device=self.keep.device)
        for number, column in enumerate(told):
            self._put(used + number, used + number // size, number % size, unit[column])
        return [head * size for head in range(used)] + [used * size + number for number in range(len(told))]

    def _directions(self) -> Tensor:
        """(aims, p): the regressions, scaled to scores of deviation one."""
        tokens, wanted = self.state.tokens[:AIMED_ON], self.state.aims[:AIMED_ON]
        if not wanted.shape[-1]:
            return self.keep.new_zeros(0, self.keep.shape[-1])
        flat, wanted = tokens.flatten(0, 1), wanted.flatten(0, 1)
        normal = flat.T @ flat + 1e-3 * len(flat) * torch.eye(flat.shape[-1], device=flat.device)
        found = torch.linalg.solve(normal, flat.T @ wanted).T
        return (found / (flat @ found.T).std(0).clamp_min(1e-3).unsqueeze(-1))[: self.keep.shape[1]]

    def _place(self, row: int, direction: Tensor) -> Tensor:
        """A direction of the state as one of the numbers that are kept of it: the row-th, where some are dropped."""
        return torch.eye(self.keep.shape[1], device=direction.device)[row] if self.keep.requires_grad else direction

    def _put(self, row: int, head: int, value: int, direction: Tensor) -> None:
        """Keep a direction of the state as the row-th number, and let a value of a head return it."""
        if self.keep.requires_grad:
            self.keep[-1, row] = direction
        if self.values.requires_grad:
            self.values[-1, head, value] = self._place(row, direction)

    def __call__(self, chosen: Tensor, factor: float = 1.0) -> Tensor:
        tokens = self.state.tokens[chosen]  # (B, T, p)
        keys = factor * self.keys * (self.gained * self.gains).exp()
        scores = torch.einsum("she,sep,btp->sbht", keys, self.keep, tokens)
        pooled = torch.einsum("sbht,btp->sbhp", torch.softmax(scores, -1), tokens)
        return torch.einsum("sbhp,sep,shve->sbhv", pooled, self.keep, self.values).flatten(2)


def _normalised(y: Tensor) -> Tensor:
    return (y - y.mean(0)) / (y - y.mean(0)).square().mean().sqrt()


def _unit(terms: Tensor) -> Tensor:
    return (terms - terms.mean(0)) / terms.std(0).clamp_min(1e-9)


def _left(answers: Tensor, y: Tensor, over: int | tuple[int, ...]) -> Tensor:
    """The share of the variance that answers (..., N, o) leave, over samples or over samples and outputs."""
    return (answers - y).square().mean(over) / (y - y.mean(0)).square().mean(over).clamp_min(1e-9)
