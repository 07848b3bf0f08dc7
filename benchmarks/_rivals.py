"""The other ways a researcher trains sixteen small Transformers today, and the checks of the kernels beside them.

`torch.func` ensembling with vmap, and JAX with vmap and jit; one plain module per seed is in `infoflow.train.speed`.
Each builder returns a function that makes one AdamW step and the number of models that step covers.
"""

import math
import os
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from infoflow.train.folded import Fused, TokenLayer, token_layer
from infoflow.train.loop import start, train
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.speed import PlainTransformer, Step, workload


def vmapped(run: Run, X: Tensor, y: Tensor, models: int) -> tuple[Step, int]:
    """Stacked parameters, vmap over the gradient, explicit softmax (vmap over the fused one falls into a loop)."""
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
    """The same model in JAX, vmap over models, one jitted AdamW step; None where JAX is not installed."""
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


def kernel_errors(D: int, device: torch.device, fused: Fused, T: int = 64) -> dict[str, float]:
    """Relative error of the kernel's output and gradients against float64 PyTorch, for fresh random inputs."""
    target, arch, _ = workload(D, 1, T=T)[0].regression()
    (h, k), w, d = arch.heads, arch.widths[0], target.dim
    generator = torch.Generator(device=device).manual_seed(D)
    shapes = {"A": (2, h, d + 1, d), "G": (2, d * (h + 1), w), "g": (2, w), "U": (2, 16, k, w)}
    X = torch.randn(2, 16, d, T, generator=generator, device=device)
    inputs = {n: torch.randn(s, generator=generator, device=device) / math.sqrt(s[-2]) for n, s in shapes.items()}
    weight = torch.randn(shapes["U"], generator=generator, device=device)

    def gradients(dtype: torch.dtype, kernel: Fused | None) -> list[torch.Tensor]:
        leaves = [value.to(dtype).requires_grad_() for value in inputs.values()]
        out = token_layer(X.to(dtype), TokenLayer(*leaves, arch.head_dims[1] ** -0.5, "gelu"), kernel)
        return [out.detach(), *torch.autograd.grad((out * weight.to(dtype)).sum(), leaves)]

    exact, got = gradients(torch.float64, None), gradients(torch.float32, fused)
    return relative_errors(["pooled", *(f"d{name}" for name in inputs)], exact, got)


def relative_errors(names: list[str], exact: list[torch.Tensor], got: list[torch.Tensor]) -> dict[str, float]:
    """Over the norm of the exact value, or over 1e-3 where that is nearly zero (the gradient of a constant softmax)."""
    return {n: float((a - b).norm() / a.norm().clamp(min=1e-3)) for n, a, b in zip(names, exact, got, strict=True)}


def stacked_against_separate(D: int, device: torch.device, fused: Fused | None, steps: int = 50) -> float:
    """Largest relative difference of weights after `steps` steps: 4 models stacked, and the last of them alone."""
    recipe = Recipe(samples=4096, validation=256, epochs=None, steps=steps)
    runs = [replace(run, recipe=recipe) for run in workload(D, 4)]
    together = train(start(runs, device, fused)).stack.weights[-1]
    alone = train(start(runs[-1:], device, fused)).stack.weights[0]
    return float((together - alone).norm() / alone.norm())
