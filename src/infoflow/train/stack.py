"""A stack of equal-shaped models: one flat parameter tensor (M, P), AdamW with a rate per model, frozen when diverged.

Models never see each other: every operation carries the model axis, so a NaN stays in its row. A model whose loss or
gradient is no longer finite is frozen at its last finite weights and reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow.nn import Transformer, TransformerConfig
from infoflow.train import fold
from infoflow.train.data import Data
from infoflow.train.kernels.layer import Fused
from infoflow.train.recipe import Recipe, Run

BETAS, EPS = (0.9, 0.999), 1e-8  # AdamW's usual constants


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
        recipe, config = runs[0].recipe, runs[0].config()
        self.runs, self.config, self.fused = list(runs), config, fused
        self.folded = fold.foldable(config)
        dtype = getattr(torch, recipe.dtype)
        self.weights = initial_weights(runs, config).to(dtype).to(device)
        self.network = _as_views(config, self.weights)
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

    def predict(self, X: Float[Tensor, "M B d T"]) -> Float[Tensor, "M B o"]:
        if self.folded:
            return fold.forward(self.network, X, self.fused)
        y: Tensor = self.network(X.transpose(-1, -2))
        return y.unsqueeze(-1) if self.config.outputs == 1 else y

    def train_step(self, data: Data, chosen: Int[Tensor, "M B"]) -> None:
        loss = (self.predict(data.X[chosen]) - data.y[chosen]).square().mean((1, 2))
        gradients = torch.autograd.grad(loss.sum(), list(self.network.parameters()))
        self._update(loss.detach(), torch.cat([gradient.flatten(1) for gradient in gradients], 1))

    @torch.no_grad()
    def _update(self, loss: Float[Tensor, " M"], gradient: Float[Tensor, "M P"]) -> None:
        """AdamW (decoupled decay), each model with its own rate; torch.optim.AdamW gives the same numbers."""
        state = self.state
        factor, first_scale, second_scale = self.table.index_select(0, state.step).unbind(1)
        state.alive &= torch.isfinite(loss).unsqueeze(1) & torch.isfinite(gradient).all(1, keepdim=True)
        gradient = torch.where(state.alive, gradient, 0.0)
        if self.clip is not None:  # each model by its own norm
            gradient = gradient * (self.clip / gradient.norm(dim=1, keepdim=True)).clamp(max=1.0)
        state.first.lerp_(gradient, 1 - BETAS[0])
        state.second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        rate = self.lr * factor * state.rate
        size = state.second.sqrt().mul_(second_scale).add_(EPS)
        moved = self.weights * (1 - rate * self.decay) - rate * first_scale * self.multiples * (state.first / size)
        self.weights.copy_(torch.where(state.alive, moved, self.weights))
        state.loss.copy_(torch.where(state.alive.squeeze(1), loss, state.loss))
        state.step.add_(1)

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
    def nmse(self, data: Data, batch: int) -> Float[Tensor, " M"]:
        """Normalised mean squared error of every model on the validation set (1 is the best constant), in float64."""
        M = len(self.runs)
        total = torch.zeros(M, dtype=torch.float64, device=self.weights.device)
        for X, y in zip(data.X_validation.split(batch), data.y_validation.split(batch), strict=True):
            predicted = self.predict(X.expand(M, *X.shape))
            total += (predicted - y).square().sum((1, 2), dtype=torch.float64)
        return total / (data.y_validation.numel() * data.variance)

    def tensors(self) -> dict[str, Tensor]:
        """The state that, with the recipe, determines all that follows."""
        state = self.state
        return {"weights": self.weights, "first": state.first, "second": state.second, "alive": state.alive,
                "loss": state.loss, "step": state.step, "rate": state.rate}  # fmt: skip

    def networks(self, weights: Float[Tensor, "M P"], data: Data) -> Transformer:
        """The stack with these weights, read-outs scaled back to the target's own units."""
        network = _as_views(self.config, weights.clone())
        last = f"readout.maps.{self.config.ffn_layers}"
        with torch.no_grad():
            network.get_parameter(f"{last}.weight").mul_(data.deviation)
            network.get_parameter(f"{last}.bias").mul_(data.deviation).add_(data.mean)
        return network


def initial_weights(runs: Sequence[Run], config: TransformerConfig) -> Float[Tensor, "M P"]:
    """Each model from its own seed alone, drawn in float64 on the CPU: the same whatever it is stacked with."""
    single = Transformer(config).double()
    rows = []
    for run in runs:
        single.initialise(torch.Generator().manual_seed(run.seed), run.recipe.init_scale)
        rows.append(torch.cat([parameter.data.flatten() for parameter in single.parameters()]))
    return torch.stack(rows)


def _as_views(config: TransformerConfig, weights: Tensor) -> Transformer:
    """A stacked network whose parameters are columns of one flat tensor."""
    with torch.device("meta"):
        network = Transformer(config, (weights.shape[0],))
    offset = 0
    for name, parameter in list(network.named_parameters()):
        size = parameter[0].numel()
        columns = slice(offset, offset + size)
        view = nn.Parameter(weights[:, columns].view(parameter.shape))
        owner, _, leaf = name.rpartition(".")
        setattr(network.get_submodule(owner), leaf, view)
        offset += size
    return network


def _multiples(network: Transformer, query_key_rate: float) -> Float[Tensor, " P"]:
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
