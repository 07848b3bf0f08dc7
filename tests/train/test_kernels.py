"""The fused kernels against float64 PyTorch, through Triton's interpreter (no GPU is needed)."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="the kernels are written in Triton")

# The interpreter is chosen when Triton is imported, so a process of its own runs the kernels.
SCRIPT = """
import json, math, sys, torch
from infoflow.train.folded import Fused, TokenLayer, TritonAttend, pool, token_layer

torch.set_num_threads(1)
worst = {}
# (M, B, d, T, h, w, k, activation): T = 1, odd T, T over a block, w over a chunk, sizes that are no power of two
for M, B, d, T, h, w, k, activation in [
    (2, 2, 4, 16, 2, 32, 2, "gelu"), (1, 2, 3, 7, 1, 5, 1, "tanh"), (2, 1, 1, 1, 2, 3, 1, "relu"),
    (1, 1, 4, 33, 3, 70, 3, "gelu"), (1, 1, 2, 5, 1, 4, 2, "sigmoid"), (1, 1, 5, 3, 2, 6, 1, "identity"),
]:
    g = torch.Generator().manual_seed(T)
    shapes = [(M, h, d + 1, d), (M, d * (h + 1), w), (M, w), (M, B, k, w)]
    inputs = [torch.randn(s, generator=g) / math.sqrt(s[-2]) for s in shapes]
    X, weight = torch.randn(M, B, d, T, generator=g), torch.randn(shapes[3], generator=g)

    def both(dtype, fused):
        leaves = [value.to(dtype).requires_grad_() for value in inputs]
        out = token_layer(X.to(dtype), TokenLayer(*leaves, 0.7, activation), fused)
        return [out.detach(), *torch.autograd.grad((out * weight.to(dtype)).sum(), leaves)]

    exact, got = both(torch.float64, None), both(torch.float32, Fused("ieee"))
    for name, a, b in zip(("out", "A", "G", "g", "U"), exact, got):
        scale = max(float(a.norm()), 1e-3)  # with one token the softmax is constant: its gradient is exactly zero
        worst[f"{T} {activation} {name}"] = float((a - b).norm()) / scale
    # Where a sequence is too long for one program of the pool kernel, the fused attention meets the plain pool.
    Z = TritonAttend.apply(X, inputs[0]).transpose(-1, -2).flatten(1, 2)
    mixed = pool(Z, *inputs[1:], 0.7, activation)
    worst[f"{T} {activation} mixed"] = float((exact[0] - mixed).norm() / exact[0].norm())
print(json.dumps(worst))
"""

OPTIMISER = """
import json, torch
from infoflow.architecture import Architecture
from infoflow.targets import pairwise_max
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.stack import Stack

def stack(dtype):
    recipes = [Recipe(steps=9, epochs=None, warm_up=3, query_key_rate=7.0, dtype=dtype, lr=lr, decay=decay)
               for lr, decay in ((1e-2, 0.1), (3e-3, 0.0), (2e-2, 0.0))]
    arch = Architecture((2, 1), (6, 5), 43)  # more weights than a block of the kernel holds, and no multiple of it
    return Stack([Run(pairwise_max(D=2, d=3, seed=0), arch, 4, seed, recipe) for seed, recipe in enumerate(recipes)],
                 torch.device("cpu"), None)

plain, fused = stack("float64"), stack("float32")
start = fused.weights.double()
plain.weights.copy_(start)
fused._move = fused._move_fused
fused.state.rate[1] = plain.state.rate[1] = 0.5
g = torch.Generator().manual_seed(0)
for step in range(6):
    size = 10.0 ** torch.randint(-6, 3, plain.weights.shape[1:], generator=g)
    gradient = size * torch.randn(plain.weights.shape, generator=g)
    if step == 3:
        gradient[2, 5] = float("nan")
    for own in (plain, fused):
        own._update(torch.ones(3, dtype=own.weights.dtype), gradient.to(own.weights.dtype))
assert plain.state.alive.flatten().tolist() == fused.state.alive.flatten().tolist() == [True, True, False]
pairs = {"moved": (plain.weights - start, fused.weights - start), "first": (plain.state.first, fused.state.first),
         "second": (plain.state.second, fused.state.second)}
print(json.dumps({f"{name} {row}": float((a - b)[row].abs().max() / a[row].abs().max())
                  for name, (a, b) in pairs.items() for row in range(3)}))
"""


def run_interpreted(script: str) -> dict[str, float]:
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_a_step_of_the_optimiser_matches_float64() -> None:
    """Rates, decays and halved rates of their own, queries and keys faster, one model frozen on the way."""
    worst = run_interpreted(OPTIMISER)
    assert len(worst) == 9
    assert max(worst.values()) < 1e-5, worst


def test_kernels_match_float64() -> None:
    worst = run_interpreted(SCRIPT)
    assert len(worst) == 36
    assert max(worst.values()) < 1e-5, worst
