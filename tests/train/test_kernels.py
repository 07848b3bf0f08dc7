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


def test_kernels_match_float64() -> None:
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    worst = json.loads(done.stdout)
    assert len(worst) == 36
    assert max(worst.values()) < 1e-5, worst
