"""Recovery: is the token a head looks at still in the residual stream behind the attention? Eq. (56) of the paper,

    E_i = E_X E_t |g_i(x'(t)) - x(s_i(t))|^2 / |x(s_i(t))|^2,

for s_i(t) the key with the largest score of head i, the second largest, the k-th, or one drawn at random, and g_i the
best affine map. Minimising (56) itself is least squares with weights 1/|x(s)|^2 (`fit="relative"`, the default);
`fit="plain"` is ordinary regression judged by (56). Both are solved in closed form in one pass: with z = (x', 1),

    A = sum w z z', B = sum w z y', n = number of rows;   G = argmin sum w |G'z - y|^2 + ridge tr(C)/E |slope of G|^2,
    error = (n - 2 <G, B> + <G, A G>) / n   on the sums of the held-out documents,

C the part of A about the mean of x', so memory is a few (E+1)^2 matrices per target, whatever the number of positions.
The sums are float64 throughout: states of trained models stand far from 0 and vary little in some directions, where
products in float32 put (56) off by 0.1 and below 0. Every fifth document is held out.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.errors import InfoFlowError
from infoflow.probes.record import AnyRecording
from infoflow.probes.tap import Step

Rank = int | Literal["random"]
Fit = Literal["relative", "plain"]
HELD_OUT = 5  # every fifth document


class Sums:
    """A, B and n of one regression, in float64; the last column of z is 1."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.A = torch.zeros(inputs + 1, inputs + 1, dtype=torch.float64)
        self.B = torch.zeros(inputs + 1, outputs, dtype=torch.float64)
        self.rows = 0

    def add(self, z: Float[Tensor, "N z"], y: Float[Tensor, "N d"], weight: Float[Tensor, " N"] | None) -> None:
        z, y = z.double(), y.double()
        scaled = z if weight is None else z * weight[:, None]
        self.A += (scaled.T @ z).cpu()
        self.B += (scaled.T @ y).cpu()
        self.rows += len(z)

    def solve(self, ridge: float) -> Float[Tensor, "z d"]:
        """The ridge shrinks slopes about the mean of the state, so a constant in the state changes nothing.

        C is a difference of sums and carries their rounding, of the order of E eps tr(A): as much is added to the
        ridge, which keeps it positive where the state does not vary at all.
        """
        count, size = self.A[-1, -1], len(self.A) - 1
        mean, aim = self.A[-1, :-1] / count, self.B[-1] / count
        C = self.A[:-1, :-1] - count * torch.outer(mean, mean)
        shift = ridge * C.trace() / size + size * torch.finfo(torch.float64).eps * self.A.trace()
        aims = self.B[:-1] - count * torch.outer(mean, aim)
        slope = torch.linalg.solve(C + shift * torch.eye(size, dtype=torch.float64), aims)
        return torch.cat([slope, (aim - mean @ slope)[None]])

    def error(self, G: Tensor) -> float:
        """(56) of the map G; needs sums with weights 1/|y|^2, for which sum w |y|^2 = n."""
        if self.rows == 0:
            return float("nan")
        return float(self.rows - 2 * (G * self.B).sum() + (G * (self.A @ G)).sum()) / self.rows


@dataclass(frozen=True)
class Recovered:
    """(56) for one head and one rank (1: the argmax, 2: the second largest, "random")."""

    layer: int
    head: int
    rank: Rank
    error: float  # on held-out documents
    fitted: float  # on the documents of the fit
    nonlinear: float | None = None  # held-out error of a small network

    def to_json(self) -> dict[str, Any]:
        return {
            "layer": self.layer + 1,
            "head": self.head + 1,
            "rank": self.rank,
            "error": self.error,
            "fitted": self.fitted,
            "nonlinear": self.nonlinear,
        }


@dataclass
class RecoverySums:
    """Consumer: the sums of all regressions of the chosen layers, and a sample of rows for the nonlinear maps."""

    ranks: tuple[Rank, ...] = (1, 2, "random")
    layers: tuple[int, ...] | None = None
    fit: Fit = "relative"
    seed: int = 0
    sample: int = 0  # rows kept per layer and split for the nonlinear maps
    fitted: dict[tuple[int, int, Rank], Sums] = field(default_factory=dict)
    held: dict[tuple[int, int, Rank], Sums] = field(default_factory=dict)
    checked: dict[tuple[int, int, Rank], Sums] = field(default_factory=dict)  # weighted sums of the fit's documents
    rows: dict[tuple[int, bool], list[Tensor]] = field(default_factory=dict)
    aims: dict[tuple[int, int, Rank, bool], list[Tensor]] = field(default_factory=dict)
    first: Tensor | None = None

    def __call__(self, step: Step) -> None:
        if step.layer == 0:
            self.first = step.before
        if self.layers is not None and step.layer not in self.layers:
            return
        tokens = step.tokens if step.tokens is not None else self.first
        if tokens is None:
            raise InfoFlowError("expected a recording that starts with its first layer, got one that does not.")
        B, h = step.weights.shape[:2]
        numbers = torch.arange(step.document, step.document + B, device=step.weights.device)
        held = (numbers % HELD_OUT == HELD_OUT - 1)[:, None] & step.counted()
        kept = ~(numbers % HELD_OUT == HELD_OUT - 1)[:, None] & step.counted()
        keys = self._keys(step)
        for out, mask in ((False, kept), (True, held)):
            if not bool(mask.any()):
                continue
            state = step.after[mask].double()
            z = torch.cat([state, torch.ones_like(state[:, :1])], 1)
            document = torch.arange(B, device=z.device)[:, None].expand(mask.shape)[mask]
            self._keep_rows(step.layer, out, z)
            for i in range(h):
                for rank in self.ranks:
                    y = tokens[document, keys[rank][:, i][mask]].double()
                    self._add((step.layer, i, rank), out, z, y)

    def _keys(self, step: Step) -> dict[Rank, Tensor]:
        """The key of each rank: (B, h, Q)."""
        scores = step.scores
        most = max((r for r in self.ranks if isinstance(r, int)), default=1)
        if most > scores.shape[-1]:
            raise InfoFlowError(f"expected ranks of at most {scores.shape[-1]} (the number of keys), got {most}.")
        best = scores.topk(most, dim=-1).indices
        found: dict[Rank, Tensor] = {rank: best[..., rank - 1] for rank in self.ranks if isinstance(rank, int)}
        if "random" in self.ranks:
            generator = torch.Generator().manual_seed((self.seed * 1_000_003 + step.document) * 1_009 + step.layer)
            noise = torch.rand(scores.shape, generator=generator).to(scores.device)
            found["random"] = noise.masked_fill(scores == -torch.inf, -1).argmax(-1)
        return found

    def _add(self, key: tuple[int, int, Rank], out: bool, z: Tensor, y: Tensor) -> None:
        size = y.square().sum(-1)
        good = size > 0  # (56) does not speak of a token that is 0
        z, y, weight = z[good], y[good], 1 / size[good]
        inputs, outputs = z.shape[1] - 1, y.shape[1]
        if out:
            self.held.setdefault(key, Sums(inputs, outputs)).add(z, y, weight)
        elif self.fit == "relative":
            self.fitted.setdefault(key, Sums(inputs, outputs)).add(z, y, weight)
        else:
            self.fitted.setdefault(key, Sums(inputs, outputs)).add(z, y, None)
            self.checked.setdefault(key, Sums(inputs, outputs)).add(z, y, weight)
        if self.sample:
            whole = torch.zeros(len(good), outputs, dtype=y.dtype, device=y.device)
            whole[good] = y
            _append(self.aims.setdefault((*key, out), []), whole, self.sample)

    def _keep_rows(self, layer: int, out: bool, z: Tensor) -> None:
        if self.sample:
            _append(self.rows.setdefault((layer, out), []), z, self.sample)


def _append(parts: list[Tensor], more: Tensor, limit: int) -> None:
    room = limit - sum(map(len, parts))
    if room > 0:
        parts.append(more[:room].detach().cpu())


def recovery(
    recording: AnyRecording,
    ranks: tuple[Rank, ...] = (1, 2, "random"),
    layers: tuple[int, ...] | None = None,
    fit: Fit = "relative",
    ridge: float = 1e-8,
    nonlinear: int = 0,
    seed: int = 0,
) -> list[Recovered]:
    """(56) for every head of the chosen layers (0-based; None: all) and every rank.

    `nonlinear` > 0 also fits a small network on that many rows per layer.
    """
    if recording.documents < HELD_OUT:
        raise InfoFlowError(
            f"expected at least {HELD_OUT} documents (one in five is held out), got {recording.documents}."
        )
    sums = RecoverySums(ranks, layers, fit, seed, nonlinear)
    recording.feed(sums)
    found = []
    for key in sorted(sums.fitted, key=lambda k: (k[0], k[1], str(k[2]))):
        G = sums.fitted[key].solve(ridge)
        judged = sums.fitted[key] if fit == "relative" else sums.checked[key]
        bent = _nonlinear(sums, key, G, seed) if nonlinear else None
        found.append(Recovered(*key, sums.held[key].error(G), judged.error(G), bent))
    return found


def _nonlinear(sums: RecoverySums, key: tuple[int, int, Rank], G: Tensor, seed: int) -> float:
    """Held-out (56) of G z + MLP(z): a network of width 128 fitted to what the affine map leaves (Adam, 400 steps)."""
    layer = key[0]
    data = []
    for out in (False, True):
        z, y = torch.cat(sums.rows[(layer, out)]).float(), torch.cat(sums.aims[(*key, out)]).float()
        size = y.square().sum(-1)
        good = size > 0
        data.append((z[good], y[good] - z[good] @ G.float(), 1 / size[good]))
    (z, rest, weight), (z_held, rest_held, weight_held) = data
    mean, spread = z.mean(0), z.std(0).clamp(min=1e-6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        last = nn.Linear(128, rest.shape[1])
        net = nn.Sequential(nn.Linear(z.shape[1], 128), nn.GELU(), last)
    nn.init.zeros_(last.weight)  # starts as the affine map
    nn.init.zeros_(last.bias)
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        for _ in range(400):
            pick = torch.randint(len(z), (512,), generator=generator)
            loss = (weight[pick] * (net((z[pick] - mean) / spread) - rest[pick]).square().sum(-1)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        left = (net((z_held - mean) / spread) - rest_held).square().sum(-1)
        return float((weight_held * left).mean())


def untrained(model: nn.Module, seed: int = 0) -> nn.Module:
    """A copy of `model` with fresh random weights, by its own initialisation."""
    import copy

    from infoflow.nn import Transformer
    from infoflow.probes.adapters import is_hugging_face

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if is_hugging_face(model):
            made: nn.Module = type(model)(copy.deepcopy(model.config))
        else:
            made = copy.deepcopy(model)
            if isinstance(made, Transformer):
                made.initialise(torch.Generator().manual_seed(seed))
            else:
                for module in made.modules():
                    reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
                    if callable(reset):
                        reset()
    reference = next(model.parameters())
    return made.to(reference).eval()


def ratios(trained: list[Recovered], initial: list[Recovered]) -> list[dict[str, Any]]:
    """Trained beside untrained, head by head: the rows of Tables 1 to 10."""
    before = {(r.layer, r.head, r.rank): r.error for r in initial}
    rows = []
    for r in trained:
        start = before[(r.layer, r.head, r.rank)]
        rows.append({**r.to_json(), "initialized": start, "ratio": r.error / start if start else None})
    return rows
