"""The two data sets of Appendix C, their trained models as tasks, and what stands beside a trained model: the explicit
construction, the mean predictor and linear regression."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.construct.softmax_attention import (
    ReluNetwork,
    multi_head_truncated_linear,
    truncated_linear,
    two_layer_attention,
)
from infoflow.lab.item import Context
from infoflow.lab.papers.softmax_attention.model import Guided, OneLayer, TwoLayers
from infoflow.lab.sweep import failed, spread, train_cells
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.store import Result
from infoflow.train.task import Data, Task

RADIUS = 5.0  # C.1: x ~ Uniform(-5, 5)


class Taught(Task):
    """A task whose every model has a teacher of its own, four fifths of its samples for training."""

    seeded = True
    count: int

    def identity(self) -> dict[str, Any]:
        return {"task": {"name": self.name, **asdict(self)}}  # type: ignore[call-overload]

    def counts(self) -> tuple[int, int]:
        cut = self.count * 4 // 5
        return cut, self.count - cut

    def draw(self, seed: int) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def data(self, T: int | None, recipe: Recipe, seeds: Sequence[int], device: torch.device) -> Data:
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
    keep_samples: int = 0  # test samples whose attention is kept

    name = "truncated"

    def network(self, arch: Any, T: int | None, recipe: Recipe, stack: tuple[int, ...]) -> nn.Module:
        if self.beta is None:
            return OneLayer(self.d, self.n, self.p, self.hidden, self.H, stack)
        anchors = torch.linspace(self.a, self.b, self.p)
        return Guided(self.d, self.n, self.hidden, anchors, self.beta, stack)

    def teacher(self, seed: int) -> tuple[Tensor, Tensor, torch.Generator]:
        generator = torch.Generator().manual_seed(2**33 + seed)
        w = torch.randn(self.n, self.d, generator=generator, dtype=torch.float64)
        return w, torch.randn(self.n, generator=generator, dtype=torch.float64), generator

    def draw(self, seed: int) -> tuple[Float[Tensor, "N n d"], Float[Tensor, "N n"]]:
        w, t, generator = self.teacher(seed)
        x = (2 * torch.rand(self.count, self.n, self.d, generator=generator, dtype=torch.float64) - 1) * RADIUS
        return x, ((x * w).sum(-1) + t).clamp(self.a, self.b)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return self.metrics(output, y)["all channels"].mean(1)

    def metrics(self, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Both conventions: the one real channel, and the mean over all of which the others should be zero."""
        if self.beta is not None:  # the other rows of V are zero: nothing to err on
            one = (output - y).square().mean(-1)
            return {"one channel": one, "all channels": one / self.hidden}
        one = (output[..., 0] - y).square().mean(-1)
        rest = output[..., 1:].square().sum(-1).mean(-1)
        return {"one channel": one, "all channels": (one + rest) / self.hidden}

    def keep(self, network: nn.Module, data: Data) -> list[dict[str, Any]]:
        if not (self.keep_samples and isinstance(network, Guided)):
            return super().keep(network, data)
        weights = network.attended(data.x_validation[:, : self.keep_samples]).weights
        return [{"attention": [[[round(v, 4) for v in q] for q in s] for s in one.tolist()]} for one in weights.cpu()]

    def beside(self, seed: int) -> dict[str, float]:
        """Test errors without training: the construction with p anchors, the mean, linear regression token by token."""
        w, t, _ = self.teacher(seed)
        x, y = self.draw(seed)
        cut = len(x) * 4 // 5
        if self.H == 1:
            net: Any = truncated_linear(w, t, self.a, self.b, n=self.n, p=self.p, eps0=1 / (4 * self.p))
        else:
            eps0 = 1 / (8 * self.n * self.H)
            net = multi_head_truncated_linear(w, t, self.a, self.b, n=self.n, H=self.H, eps0=eps0, radius=RADIUS)
        gap = (net(x[cut:].mT) - y[cut:]).abs()
        inputs = torch.cat([x, torch.ones_like(x[..., :1])], -1).transpose(0, 1)  # (n, N, d + 1)
        fit = torch.linalg.lstsq(inputs[:, :cut], y[:cut].mT.unsqueeze(-1)).solution
        linear = (inputs[:, cut:] @ fit).squeeze(-1).mT
        return {
            "construction": float(gap.square().mean()),
            "sup": float(gap.max()),
            "mean predictor": float((y[cut:] - y[:cut].mean(0)).square().mean()),
            "linear regression": float((y[cut:] - linear).square().mean()),
        }


@dataclass(frozen=True)
class Sequences(Taught):
    """C.2: Y = W_2 ReLU(W_1 X + b_1) + b_2 on flattened sequences; weights normal / sqrt(fan-in), unit-variance b."""

    n: int
    p: int
    H: int
    hidden: int
    d: int = 5
    m: int = 10
    count: int = 50_000

    name = "sequences"

    def network(self, arch: Any, T: int | None, recipe: Recipe, stack: tuple[int, ...]) -> nn.Module:
        return TwoLayers(self.d, self.n, self.p, self.hidden, self.H, stack)

    def teacher(self, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, torch.Generator]:
        generator, size = torch.Generator().manual_seed(2**33 + seed), self.d * self.n
        W_1, b_1, W_2, b_2 = (
            torch.randn(shape, generator=generator, dtype=torch.float64)
            for shape in ((self.m, size), (self.m,), (size, self.m), (size,))
        )
        return W_1 / size**0.5, b_1, W_2 / self.m**0.5, b_2, generator

    def draw(self, seed: int) -> tuple[Float[Tensor, "N n d"], Float[Tensor, "N n d"]]:
        W_1, b_1, W_2, b_2, generator = self.teacher(seed)
        x = torch.rand(self.count, self.n, self.d, generator=generator, dtype=torch.float64)
        y = torch.relu(x.flatten(1) @ W_1.mT + b_1) @ W_2.mT + b_2
        return x, y.unflatten(1, (self.n, self.d))

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return (output - y).square().flatten(1).mean(1)

    def metrics(self, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"mse": (output - y).square().flatten(2).mean(-1)}

    def beside(self, seed: int, most: int = 100) -> dict[str, float]:
        """Theorem F.2's two attention layers with p anchors in each, on `most` test samples; mean; linear model."""
        W_1, b_1, W_2, b_2, _ = self.teacher(seed)
        x, y = (values.flatten(1) for values in self.draw(seed))
        cut, size = len(x) * 4 // 5, self.d * self.n
        W = W_1.reshape(self.m, self.n, self.d).expand(size, -1, -1, -1)
        relu = ReluNetwork(W, b_1.expand(size, -1), W_2, B=1.0)
        net = two_layer_attention(relu, p1=self.p, p2=self.p, shape=(size, 1))
        tokens = x[cut : cut + most].unflatten(1, (self.n, self.d)).mT
        gap = (net(tokens).squeeze(-1) + b_2 - y[cut : cut + most]).abs()
        inputs = torch.cat([x, torch.ones_like(x[:, :1])], 1)
        linear = inputs[cut:] @ torch.linalg.lstsq(inputs[:cut], y[:cut]).solution
        return {
            "construction": float(gap.square().mean()),
            "sup": float(gap.max()),
            "mean predictor": float((y[cut:] - y[:cut].mean(0)).square().mean()),
            "linear regression": float((y[cut:] - linear).square().mean()),
        }


def sweep_rows(
    context: Context, tasks: Mapping[tuple[str, Any], Any], recipe: Recipe, measure: str, title: str
) -> tuple[list[dict[str, Any]], list[list[Result]]]:
    """Train every task of the sweeps (sweep, value), ten seeds in full and two in the quick preset: a row for each, the
    trained error beside what needs no training, and the trained models behind it."""
    seeds = range(10 if context.preset == "full" else 2)
    grid = {name: [Run(task, seed=seed, recipe=recipe) for seed in seeds] for name, task in tasks.items()}
    results = train_cells(context, grid, title).by_cell if grid else {}
    rows = []
    for (sweep, value), task in tasks.items():
        found = results[sweep, value]
        mean, deviation = spread(found, measure)
        rows.append(
            {
                "sweep": sweep,
                "value": value,
                "trained MSE": mean,
                "std": deviation,
                "failed": failed(found),
                **average([task.beside(seed) for seed in seeds]),
            }
        )
    return rows, list(results.values())


def average(entries: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(entry[name] for entry in entries) / len(entries) for name in entries[0]}


def slope(sizes: list[float], errors: list[float]) -> float:
    """Least-squares slope of log error against log size."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(errors).double().log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
