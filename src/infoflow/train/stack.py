"""A stack of equal-shaped models: one flat parameter tensor (M, P), AdamW with a rate per model, frozen when diverged.

Models never see each other: every operation carries the model axis, so a NaN stays in its row. A model whose loss or
gradient is no longer finite is frozen at its last finite weights and reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow.nn import Transformer
from infoflow.nn.attention import triton_found
from infoflow.train.folded import Fused
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.task import Data

BETAS, EPS = (0.9, 0.999), 1e-8  # AdamW's usual constants
BUSY_MODELS = 16  # whose batches together keep a GPU busy: fewer are measured on more samples at a time


@dataclass
class Optimiser:
    """Everything that changes with a step, as tensors on the device (a CUDA graph captures updates of them)."""

    first: Float[Tensor, "M P"]
    second: Float[Tensor, "M P"]
    alive: Tensor  # (M, 1) bool
    loss: Float[Tensor, " M"]
    step: Int[Tensor, " 1"]
    rate: Float[Tensor, "M 1"]  # of the recipe's learning rate: halved whenever a model goes back


class Stack:
    """M models of one configuration with their optimiser; `train_step` is one AdamW step of all of them."""

    def __init__(self, runs: Sequence[Run], device: torch.device, fused: Fused | None) -> None:
        recipe = runs[0].recipe
        self.runs, self.task, self.fused = list(runs), runs[0].task, fused
        dtype = getattr(torch, recipe.dtype)
        self.weights = initial_weights(runs).to(dtype).to(device)
        self.network = as_views(runs[0], self.weights)
        M = len(runs)
        self.state = Optimiser(
            torch.zeros_like(self.weights),
            torch.zeros_like(self.weights),
            torch.ones(M, 1, dtype=torch.bool, device=device),
            torch.zeros(M, dtype=dtype, device=device),
            torch.zeros(1, dtype=torch.int64, device=device),
            torch.ones(M, 1, dtype=dtype, device=device),
        )
        rates = torch.tensor([[r.recipe.lr, r.recipe.decay] for r in runs], dtype=torch.float64)
        self.lr, self.decay = (column.unsqueeze(1).to(dtype).to(device) for column in rates.unbind(1))
        self.multiples = _multiples(self.network, recipe.query_key_rate).to(dtype).to(device)
        self.clip = recipe.clip
        self.table = _schedule(recipe).to(dtype).to(device)

    def predict(self, x: Float[Tensor, "M B ..."]) -> Float[Tensor, "M B ..."]:
        """The outputs of all models for a batch."""
        return self.task.predict(self.network, x, self.fused)

    def train_step(self, data: Data, chosen: Int[Tensor, "M B"], columns: int | None = None) -> None:
        """One step on each model's own samples, of which only the first `columns` are computed where that is given."""
        x, y = pick(data.x, chosen), pick(data.y, chosen)
        if columns is not None:
            x, y = x[..., :columns], y[..., :columns]
        loss = self.task.loss(self.predict(x), y)
        gradients = torch.autograd.grad(loss.sum(), list(self.network.parameters()))
        self._update(loss.detach(), torch.cat([gradient.flatten(1) for gradient in gradients], 1))

    @torch.no_grad()
    def _update(self, loss: Float[Tensor, " M"], gradient: Float[Tensor, "M P"]) -> None:
        """AdamW (decoupled decay), each model with its own rate; torch.optim.AdamW gives the same numbers."""
        state = self.state
        state.alive &= torch.isfinite(loss).unsqueeze(1) & torch.isfinite(gradient).all(1, keepdim=True)
        if self.clip is not None:  # each model by its own norm
            gradient = gradient * (self.clip / gradient.norm(dim=1, keepdim=True)).clamp(max=1.0)
        if self.weights.device.type == "cuda" and self.weights.dtype == torch.float32 and triton_found():
            self._move_fused(gradient)
        else:
            self._move(gradient)
        state.loss.copy_(torch.where(state.alive.squeeze(1), loss, state.loss))
        state.step.add_(1)

    def _move(self, gradient: Float[Tensor, "M P"]) -> None:
        """The moments and the weights of every model that is alive."""
        state = self.state
        factor, first_scale, second_scale = self.table.index_select(0, state.step).unbind(1)
        gradient = torch.where(state.alive, gradient, 0.0)
        state.first.lerp_(gradient, 1 - BETAS[0])
        state.second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        rate = self.lr * factor * state.rate
        size = state.second.sqrt().mul_(second_scale).add_(EPS)
        moved = self.weights * (1 - rate * self.decay) - rate * first_scale * self.multiples * (state.first / size)
        self.weights.copy_(torch.where(state.alive, moved, self.weights))

    def _move_fused(self, gradient: Float[Tensor, "M P"]) -> None:
        """The same in one Triton kernel."""
        from infoflow.train import triton_adamw as fused

        state, (M, P) = self.state, gradient.shape
        fused.adamw[(-(-P // fused.BLOCK), M)](
            self.weights, state.first, state.second, gradient.contiguous(), self.multiples, state.alive, state.rate,
            self.lr, self.decay, self.table, state.step, P, 1 - BETAS[0], BETAS[1], 1 - BETAS[1], EPS,
            BLOCK=fused.BLOCK,
        )  # fmt: skip

    @torch.no_grad()
    def go_back(self, which: Tensor, weights: Float[Tensor, "M P"], second: Float[Tensor, "M P"]) -> None:
        """The chosen models (M,) to these weights and second moments, without momentum, at half their rate; alive."""
        state, chosen = self.state, which.unsqueeze(1)
        self.weights.copy_(torch.where(chosen, weights, self.weights))
        state.first.masked_fill_(chosen, 0.0)
        state.second.copy_(torch.where(chosen, second, state.second))
        state.rate.copy_(torch.where(chosen, state.rate / 2, state.rate))
        state.alive |= chosen

    @torch.no_grad()
    def measure(self, data: Data, batch: int) -> dict[str, Float[Tensor, " M"]]:
        """Every metric of every model over the validation set, in float64; a GPU takes more samples of few models."""
        M = len(self.runs)
        if self.weights.device.type == "cuda":
            batch *= max(1, BUSY_MODELS // M)
        totals: dict[str, Tensor] = {}
        counts: dict[str, int] = {}
        parts = (data.x_validation.split(batch, 1), data.y_validation.split(batch, 1))
        for x, y in zip(*parts, strict=True):
            output = self.predict(x.expand(M, *x.shape[1:]))
            for name, values in self.task.metrics(output, y.expand(M, *y.shape[1:])).items():
                zero = torch.zeros(M, dtype=torch.float64, device=self.weights.device)
                totals[name] = totals.get(name, zero) + values.flatten(1).sum(1, dtype=torch.float64)
                counts[name] = counts.get(name, 0) + values[0].numel()
        return {name: total / data.per.get(name, counts[name]) for name, total in totals.items()}

    def tensors(self) -> dict[str, Tensor]:
        """The state that, with the recipe, determines all that follows."""
        state = self.state
        return {"weights": self.weights, "first": state.first, "second": state.second, "alive": state.alive,
                "loss": state.loss, "step": state.step, "rate": state.rate}  # fmt: skip

    def networks(self, weights: Float[Tensor, "M P"], data: Data) -> nn.Module:
        """The stack with these weights, answering in the units of the task."""
        network = as_views(self.runs[0], weights.clone())
        self.task.finish(network, data)
        return network


def pick(values: Tensor, chosen: Int[Tensor, "M B"]) -> Tensor:
    """values (M or 1, N, ...) at each model's own rows: (M, B, ...)."""
    if values.shape[0] == 1:
        return values[0][chosen]
    return values[torch.arange(len(chosen), device=values.device).unsqueeze(1), chosen]


def network_of(run: Run, stack: tuple[int, ...]) -> nn.Module:
    """The module of a run, with model axes."""
    return run.task.network(run.arch, run.T, run.recipe, stack)


def initial_weights(runs: Sequence[Run]) -> Float[Tensor, "M P"]:
    """Each model from its own seed alone, drawn in float64 on the CPU: the same whatever it is stacked with."""
    single: Any = network_of(runs[0], ()).double()
    rows = []
    for run in runs:
        single.initialise(torch.Generator().manual_seed(run.seed), run.recipe.init_scale)
        rows.append(torch.cat([parameter.data.flatten() for parameter in single.parameters()]))
    return torch.stack(rows)


def as_views(run: Run, weights: Tensor) -> nn.Module:
    """A stacked network whose parameters are columns of one flat tensor."""
    network = network_of(run, (weights.shape[0],)).to(device=weights.device, dtype=weights.dtype)
    offset = 0
    for name, parameter in list(network.named_parameters()):
        size = parameter[0].numel()
        view = nn.Parameter(weights[:, offset : offset + size].view(parameter.shape))
        owner, _, leaf = name.rpartition(".")
        setattr(network.get_submodule(owner), leaf, view)
        offset += size
    return network


def single_network(run: Run, stacked: nn.Module, row: int) -> nn.Module:
    """One model of a stack as a network of its own, on the CPU."""
    if isinstance(stacked, Transformer):
        network: nn.Module = stacked.select(row).cpu()
    else:
        network = network_of(run, ()).to(next(stacked.parameters()).dtype)
        with torch.no_grad():
            for own, parameter in zip(network.parameters(), stacked.parameters(), strict=True):
                own.copy_(parameter[row])
    return network


def _multiples(network: nn.Module, query_key_rate: float) -> Float[Tensor, " P"]:
    """For every parameter of a model its rate as a multiple of the model's: queries and keys have one of their own."""
    columns = []
    for name, parameter in network.named_parameters():
        multiple = query_key_rate if name.endswith((".query", ".key")) else 1.0
        columns.append(torch.full((parameter[0].numel(),), multiple, dtype=torch.float64))
    return torch.cat(columns)


def _schedule(recipe: Recipe) -> Float[Tensor, "steps 3"]:
    """For every step: fraction of lr, 1 / (1 - beta_1^t), 1 / sqrt(1 - beta_2^t)."""
    factors = torch.tensor(recipe.factors(), dtype=torch.float64)
    t = torch.arange(1, len(factors) + 1, dtype=torch.float64)
    return torch.stack([factors, 1 / (1 - BETAS[0] ** t), (1 - BETAS[1] ** t).rsqrt()], 1)
