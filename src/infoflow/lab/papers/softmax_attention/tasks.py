"""The two data sets of Appendix C, their trained models as tasks, and what stands beside a trained model: the explicit
construction, the mean predictor and linear regression.

Samples, teachers and splits are those of the published code, draw by draw (PyTorch's CPU generator from the same seed).
Initial weights and the order of batches are other draws of the same law.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import inf
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.construct.softmax_attention import (
    ReluNetwork,
    multi_head_truncated_linear,
    two_layer_attention,
)
from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.figures import slope
from infoflow.construct.softmax_attention.truncated_linear import on_anchors
from infoflow.lab.item import Context, Judgement
from infoflow.lab.papers.softmax_attention.model import Guided, SingleLayer, TwoLayers
from infoflow.lab.sweep import failed, spread, train_cells
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.store import Result
from infoflow.train.task import Data, Task

RADIUS = 5.0  # C.1: x ~ Uniform(-5, 5)
BESIDE = 3  # seeds of which the mean predictor, linear regression and the construction are measured
DATA_SEED = 42  # of the data set of C.2 in the published code
# The published split has no validation samples.
SCORED = {
    "paper": "the test fifth after the last step: nothing is chosen on it",
    "best": "the test fifth after the last step; the rate and the length of `best` were settled on no other data",
}


class Taught(Task):
    """A task whose every model has a teacher of its own, four fifths of its samples for training."""

    seeded = True
    count: int

    def identity(self) -> dict[str, Any]:
        """The name and every size."""
        return {"task": {"name": self.name, **asdict(self)}}  # type: ignore[call-overload]

    def counts(self) -> tuple[int, int]:
        """Training and test samples: four fifths and the last fifth, as published."""
        cut = self.count * 4 // 5
        return cut, self.count - cut

    def draw(self, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of one seed."""
        raise NotImplementedError

    def data(self, T: int | None, recipe: Recipe, seeds: Sequence[int], device: torch.device) -> Data:
        """Every seed has samples of its own."""
        drawn = zip(*(self.draw(seed) for seed in seeds), strict=True)
        x, y = (torch.stack(values).to(device=device, dtype=getattr(torch, recipe.dtype)) for values in drawn)
        cut, _ = self.counts()
        return Data(x[:, :cut], y[:, :cut], x[:, cut:], y[:, cut:], {})


@dataclass(frozen=True)
class Truncated(Taught):
    """C.1: y_i = Range_[a,b](w_i . x_i + t_i), w_i and t_i normal and fixed in a run; `beta` for the guided model."""

    n: int
    p: int
    H: int
    a: float
    b: float
    d: int = 10
    hidden: int = 32
    count: int = 1000
    beta: float | None = None
    column: int = 0  # the channel of the label; the others should be zero
    keep_samples: int = 0  # test samples whose attention is kept

    name = "truncated"

    def network(self, arch: Any, T: int | None, recipe: Recipe, stack: tuple[int, ...]) -> nn.Module:
        """One layer, guided where an inverse temperature is given."""
        if self.beta is None:
            return SingleLayer(self.d, self.n, self.p, self.hidden, self.H, stack)
        anchors = torch.linspace(self.a, self.b, self.p)
        return Guided(self.d, self.n, self.hidden, anchors, self.beta, self.column, stack)

    def drawn(self, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens, weights, offsets, and the order whose first four fifths are for training."""
        generator = torch.Generator().manual_seed(seed)
        x = 2 * RADIUS * torch.rand(self.count, self.n, self.d, generator=generator) - RADIUS
        w, t = (torch.randn(1, self.n, size, generator=generator) for size in (self.d, 1))
        return x.double(), w[0].double(), t[0, :, 0].double(), torch.randperm(self.count, generator=generator)

    def draw(self, seed: int) -> tuple[Float[Tensor, "N n d"], Float[Tensor, "N n"]]:
        """Tokens and Range_[a,b](w.x + t) of a drawn w and t."""
        x, w, t, order = self.drawn(seed)
        return x[order], ((x[order] * w).sum(-1) + t).clamp(self.a, self.b)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The mean square over all channels."""
        return self.metrics(output, y)["all channels"].mean(1)

    def metrics(self, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Both conventions: the mean over all channels, as published, and the one that is not zero."""
        one = (output[..., self.column] - y).square().mean(-1)
        rest = output.square().sum(-1).mean(-1) - output[..., self.column].square().mean(-1)
        return {"all channels": (one + rest) / self.hidden, "one channel": one}

    def keep(self, network: nn.Module, data: Data) -> list[dict[str, Any]]:
        """The attention weights of the first samples, where they are asked for."""
        if not (self.keep_samples and isinstance(network, Guided)):
            return super().keep(network, data)
        weights = network.attended(data.x_validation[:, : self.keep_samples]).weights
        return [{"attention": [[[round(v, 4) for v in q] for q in s] for s in one.tolist()]} for one in weights.cpu()]

    def beside(self, seed: int) -> dict[str, float]:
        """Test errors without training: the construction with p anchors, the mean, linear regression token by token."""
        _, w, t, _ = self.drawn(seed)
        x, y = self.draw(seed)
        cut = len(x) * 4 // 5
        if self.H == 1:
            net: Any = on_anchors(w, t, Anchors(self.a, self.b, self.p), 1 / (4 * self.p), n=self.n)
        else:
            eps0 = 1 / (8 * self.n * self.H)
            net = multi_head_truncated_linear(w, t, self.a, self.b, n=self.n, H=self.H, eps0=eps0, radius=RADIUS)
        gap = (net(x[cut:].mT) - y[cut:]).abs()
        inputs = torch.cat([x, torch.ones_like(x[..., :1])], -1).transpose(0, 1)  # (n, N, d + 1)
        fit = torch.linalg.lstsq(inputs[:, :cut], y[:cut].mT.unsqueeze(-1)).solution
        linear = (inputs[:, cut:] @ fit).squeeze(-1).mT
        return _beside(gap, y[:cut], y[cut:], linear)


@dataclass(frozen=True)
class Sequences(Taught):
    """C.2: Y = W_2 ReLU(W_1 X + b_1) + b_2 on flattened sequences, all four normal; one data set for all seeds, each
    with a split of its own."""

    n: int
    p: int
    H: int
    hidden: int
    d: int = 5
    m: int = 10
    count: int = 50_000

    name = "sequences"

    def network(self, arch: Any, T: int | None, recipe: Recipe, stack: tuple[int, ...]) -> nn.Module:
        """Two attention layers."""
        return TwoLayers(self.d, self.n, self.p, self.hidden, self.H, stack)

    def teacher(self) -> tuple[Tensor, Tensor, Tensor, Tensor, torch.Generator]:
        """The weights of the ReLU network that is learned, and the generator after them."""
        generator, size = torch.Generator().manual_seed(DATA_SEED), self.d * self.n
        shapes = ((self.m, size), (self.m,), (size, self.m), (size,))
        W_1, b_1, W_2, b_2 = (torch.randn(shape, generator=generator).double() for shape in shapes)
        return W_1, b_1, W_2, b_2, generator

    def draw(self, seed: int) -> tuple[Float[Tensor, "N n d"], Float[Tensor, "N n d"]]:
        """Uniform tokens and the teacher's answer."""
        W_1, b_1, W_2, b_2, generator = self.teacher()
        x = torch.rand(self.count, self.n, self.d, generator=generator).double()
        y = torch.relu(x.flatten(1) @ W_1.mT + b_1) @ W_2.mT + b_2
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(seed))
        return x[order], y.unflatten(1, (self.n, self.d))[order]

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The mean square over all numbers of the answer."""
        return (output - y).square().flatten(1).mean(1)

    def metrics(self, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The mean square of each sample."""
        return {"mse": (output - y).square().flatten(2).mean(-1)}

    def beside(self, seed: int, most: int = 100) -> dict[str, float]:
        """Theorem F.2's two attention layers with p anchors in each, on `most` test samples; mean; linear model."""
        W_1, b_1, W_2, b_2, _ = self.teacher()
        x, y = (values.flatten(1) for values in self.draw(seed))
        cut, size = len(x) * 4 // 5, self.d * self.n
        W = W_1.reshape(self.m, self.n, self.d).expand(size, -1, -1, -1)
        relu = ReluNetwork(W, b_1.expand(size, -1), W_2, B=1.0)
        net = two_layer_attention(relu, p1=self.p, p2=self.p, shape=(size, 1))
        tokens = x[cut : cut + most].unflatten(1, (self.n, self.d)).mT
        gap = (net(tokens).squeeze(-1) + b_2 - y[cut : cut + most]).abs()
        inputs = torch.cat([x, torch.ones_like(x[:, :1])], 1)
        linear = inputs[cut:] @ torch.linalg.lstsq(inputs[:cut], y[:cut]).solution
        return _beside(gap, y[:cut], y[cut:], linear)


def _beside(gap: Tensor, known: Tensor, asked: Tensor, linear: Tensor) -> dict[str, float]:
    """What stands beside a trained network: the construction, the mean of the known values, linear regression."""
    return {
        "construction": float(gap.square().mean()),
        "sup": float(gap.max()),
        "mean predictor": float((asked - known.mean(0)).square().mean()),
        "linear regression": float((asked - linear).square().mean()),
    }


def sweep_rows(
    context: Context,
    tasks: Mapping[tuple[str, Any], Any],
    recipe: Recipe,
    seeds: range,
    title: str,
    published: Mapping[str, Any],
) -> tuple[list[dict[str, Any]], list[list[Result]]]:
    """Train every task of the sweeps (sweep, value) from every seed: a row for each, the error after the last step
    beside that of the published code and beside what needs no training, and the trained models behind it."""
    grid = {name: [Run(task, seed=seed, recipe=recipe) for seed in seeds] for name, task in tasks.items()}
    results = train_cells(context, grid, title).by_cell if grid else {}
    theirs = {(row["sweep"], row["value"]): row for row in published["published"]}
    rows = []
    for (sweep, value), task in tasks.items():
        found = results[sweep, value]
        mean, deviation = spread(found, found[0].measure)
        known = {} if context.quick else theirs.get((sweep, value), {})
        row = {"sweep": sweep, "value": value, "published": known.get("mean"), "published std": known.get("std")}
        row |= {"MSE": mean, "std": deviation, "seeds": len(found), "failed": failed(found)}
        rows.append(row | average([task.beside(seed) for seed in list(seeds)[:BESIDE]]))
    return rows, list(results.values())


def apart(row: dict[str, Any], theirs: int) -> float | None:
    """How many combined standard errors of the two means ours and the published code's differ by."""
    if not (row["published"] and row["published std"] and row["std"] is not None):
        return None
    error = (row["published std"] ** 2 / theirs + row["std"] ** 2 / row["seeds"]) ** 0.5
    return float(abs(row["MSE"] - row["published"]) / error)


def falls(rows: Sequence[dict[str, Any]], sweep: str) -> tuple[float, float]:
    """From the first to the last value of a sweep: the factor of the error, and the largest rise on the way."""
    values = [row["MSE"] for row in rows if row["sweep"] == sweep]
    rises = [after / before for before, after in pairwise(values)]
    return values[0] / values[-1], max(rises, default=1.0)


def changed(factor: float) -> str:
    """A factor from `falls` in words."""
    return f"falls {factor:.3g} times" if factor >= 1 else f"rises {1 / factor:.3g} times"


# By sweep: the least and the largest slope of the logarithm of the error that the paper's rates allow.
RATES = {"p": (-inf, -1.0), "H": (-inf, -1.0), "b-a": (0.8, 1.2)}


def judge_rates(rows: Sequence[dict[str, Any]]) -> Judgement | None:
    """Whether the error goes as O(1/p), O(1/H) and linearly in b - a: by the slope of its logarithm over each sweep."""
    said, holds = [], []
    for sweep, (least, most) in RATES.items():
        wanted = f"at most {most:g}" if least == -inf else "about 1"
        chosen = [row for row in rows if row["sweep"] == sweep and row["MSE"]]
        if len(chosen) > 1:
            slopes = {name: slope([row["value"] for row in chosen], [row[name] for row in chosen])
                      for name in ("MSE", "published") if all(row.get(name) for row in chosen)}  # fmt: skip
            code = f", published code {slopes['published']:.2f}" if "published" in slopes else ""
            said.append(f"{slopes['MSE']:.2f} in {sweep} ({wanted}{code})")
            holds.append(least <= slopes["MSE"] <= most)
    return Judgement(all(holds), "slope of log error " + "; ".join(said)) if said else None


def average(entries: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each named measure over runs."""
    return {name: sum(entry[name] for entry in entries) / len(entries) for name in entries[0]}
