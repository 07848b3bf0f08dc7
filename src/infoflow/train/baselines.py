"""What `infoflow bench train` compares with: the three ways a researcher trains sixteen small Transformers today.

(a) one plain PyTorch module per seed, eager, one after the other; (b) `torch.func` ensembling with vmap; (c) JAX with
vmap and jit. Each builder returns a function that makes one AdamW step and the number of models that step covers.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from infoflow.train.run import Run

Step = Callable[[], Any]


class PlainTransformer(nn.Module):
    """The two-layer model of Section 3 as one writes it with torch.nn: linear encoder, CLS, residual, GELU blocks."""

    def __init__(self, run: Run, fused_attention: bool) -> None:
        super().__init__()
        target, arch, _ = run.regression()
        (E, _), (w, _) = arch.embeds, arch.widths
        self.heads, self.fused_attention = arch.heads, fused_attention
        self.encoder = nn.Linear(target.dim, E)
        self.cls = nn.Parameter(0.02 * torch.randn(E))
        self.query = nn.ModuleList(nn.Linear(E, E, bias=False) for _ in range(2))
        self.key = nn.ModuleList(nn.Linear(E, E, bias=False) for _ in range(2))
        self.value = nn.ModuleList(nn.Linear(E, E, bias=False) for _ in range(2))
        self.output = nn.ModuleList(nn.Linear(E, E, bias=False) for _ in range(2))
        self.ffn = nn.Sequential(nn.Linear(E, w), nn.GELU(), nn.Linear(w, E))
        self.readout = nn.Sequential(nn.Linear(E, w), nn.GELU(), nn.Linear(w, target.outputs))

    def attend(self, layer: int, x: Tensor, tokens: Tensor) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads[layer], -1)).transpose(-2, -3)

        q, k, v = split(self.query[layer](x)), split(self.key[layer](tokens)), split(self.value[layer](tokens))
        if self.fused_attention:
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            out = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v
        return x + self.output[layer](out.transpose(-2, -3).flatten(-2))

    def forward(self, X: Tensor) -> Tensor:
        tokens = self.encoder(X)
        x = torch.cat([tokens, self.cls.expand(*X.shape[:-2], 1, -1)], -2)
        x = self.ffn(self.attend(0, x, tokens))
        y: Tensor = self.readout(self.attend(1, x[..., -1:, :], x[..., :-1, :]))
        return y.squeeze(-2)


def plain(run: Run, X: Tensor, y: Tensor) -> tuple[Step, int]:
    """(a): X (B, T, d), y (B, o) on the device."""
    torch.manual_seed(run.seed)
    model = PlainTransformer(run, fused_attention=True).to(X.device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=run.recipe.lr, weight_decay=run.recipe.decay)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        F.mse_loss(model(X), y).backward()
        optimiser.step()

    return step, 1


def vmapped(run: Run, X: Tensor, y: Tensor, models: int) -> tuple[Step, int]:
    """(b): stacked parameters, vmap over the gradient, explicit softmax (vmap over the fused one falls into a loop)."""
    from torch.func import functional_call, grad, stack_module_state, vmap

    members = [PlainTransformer(run, fused_attention=False).to(X.device) for _ in range(models)]
    parameters, buffers = stack_module_state(members)
    skeleton = members[0]
    optimiser = torch.optim.AdamW(list(parameters.values()), lr=run.recipe.lr, weight_decay=run.recipe.decay)
    Xs, ys = X.expand(models, *X.shape).contiguous(), y.expand(models, *y.shape).contiguous()

    def loss(p: Any, b: Any, X: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(functional_call(skeleton, (p, b), (X,)), y)

    gradient = vmap(grad(loss))

    def step() -> None:
        for name, value in gradient(parameters, buffers, Xs, ys).items():
            parameters[name].grad = value
        optimiser.step()

    return step, models


def jax_vmapped(run: Run, X: Tensor, y: Tensor, models: int) -> tuple[Step, int] | None:
    """(c): the same model in JAX, vmap over models, one jitted AdamW step; None where JAX is not installed."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave the device's memory to the others
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None
    shapes = {k: tuple(v.shape) for k, v in PlainTransformer(run, False).named_parameters()}
    heads, rates = run.regression()[1].heads, (run.recipe.lr, run.recipe.decay)

    def attend(p: Any, layer: int, x: Any, tokens: Any) -> Any:
        def split(name: str, z: Any) -> Any:
            z = z @ p[f"{name}.{layer}.weight"].T
            return jnp.swapaxes(z.reshape(*z.shape[:-1], heads[layer], -1), -2, -3)

        q, k, v = split("query", x), split("key", tokens), split("value", tokens)
        weights = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5, axis=-1)
        out = jnp.swapaxes(weights @ v, -2, -3)
        return x + out.reshape(*out.shape[:-2], -1) @ p[f"output.{layer}.weight"].T

    def block(p: Any, name: str, x: Any) -> Any:
        x = jax.nn.gelu(x @ p[f"{name}.0.weight"].T + p[f"{name}.0.bias"], approximate=False)
        return x @ p[f"{name}.2.weight"].T + p[f"{name}.2.bias"]

    def loss(p: Any, X: Any, y: Any) -> Any:
        tokens = X @ p["encoder.weight"].T + p["encoder.bias"]
        cls = jnp.broadcast_to(p["cls"], (X.shape[0], 1, p["cls"].shape[0]))
        x = block(p, "ffn", attend(p, 0, jnp.concatenate([tokens, cls], -2), tokens))
        out = block(p, "readout", attend(p, 1, x[:, -1:], x[:, :-1]))[:, 0]
        return jnp.mean((out - y) ** 2)

    def adamw(p: Any, m: Any, v: Any, t: Any, g: Any) -> Any:
        lr, decay = rates
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        size = jnp.sqrt(v / (1 - 0.999**t)) + 1e-8
        return p * (1 - lr * decay) - lr * (m / (1 - 0.9**t)) / size, m, v

    @jax.jit
    def update(p: Any, m: Any, v: Any, t: Any, X: Any, y: Any) -> Any:
        g = jax.vmap(jax.grad(loss), in_axes=(0, None, None))(p, X, y)
        new = {k: adamw(p[k], m[k], v[k], t, g[k]) for k in p}
        return tuple({k: new[k][i] for k in p} for i in range(3))

    generator = torch.Generator().manual_seed(run.seed)
    fan = {k: s[-1] ** -0.5 for k, s in shapes.items()}
    p = {
        k: jnp.asarray((torch.rand(models, *s, generator=generator) * 2 - 1).numpy() * fan[k])
        for k, s in shapes.items()
    }
    held: dict[str, Any] = {
        "p": p,
        "m": {k: v * 0 for k, v in p.items()},
        "v": {k: v * 0 for k, v in p.items()},
        "t": 0.0,
    }
    X_jax, y_jax = jnp.asarray(X.cpu().numpy()), jnp.asarray(y.cpu().numpy())

    def step() -> None:
        held["t"] += 1.0
        held["p"], held["m"], held["v"] = update(held["p"], held["m"], held["v"], held["t"], X_jax, y_jax)
        jax.block_until_ready(held["p"])

    return step, models
