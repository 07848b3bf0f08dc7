"""The attention of `attend.c` on a CPU, where a C compiler is found; otherwise, and in float64, PyTorch does the same.

The library is compiled once for each user and processor (`infoflow.kernels`), and must agree with float64 PyTorch on a
small input before it is used.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow import kernels

SOURCE = Path(__file__).with_name("attend.c")
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-shared", "-fPIC"]
MOST = 16  # token coordinates, as in the source
AGREES = 1e-5  # relative to float64


class Attend(torch.autograd.Function):
    """X (M, B, d, T) and A (M, h, d+1, d) -> Z (M, B T, d (h+1)); X is data and gets no gradient."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, A: Tensor) -> Float[Tensor, "M rows z"]:
        library = compiled()
        X, A = X.contiguous(), A.contiguous()
        (M, B, d, T), h = X.shape, A.shape[1]
        lanes = library.attend_lanes()
        Z = X.new_empty(M, B * T, d * (h + 1))
        tops = _aligned(M * B * h * -(-T // lanes) * lanes)
        _call(library.attend_forward, [X, A, Z, tops], [M, B, T, h, d])
        ctx.save_for_backward(X, A, tops)
        return Z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        X, A, tops = ctx.saved_tensors
        (M, B, d, T), h = X.shape, A.shape[1]
        dA = torch.zeros(A.shape, dtype=torch.float64)
        _call(compiled().attend_backward, [X, A, tops, grads[0].contiguous(), dA], [M, B, T, h, d])
        return None, dA.to(A.dtype)


def usable(X: Tensor, d: int) -> bool:
    return X.device.type == "cpu" and X.dtype == torch.float32 and d <= MOST and found()


@cache
def found() -> bool:
    """Whether there is a library, and it agrees with PyTorch."""
    try:
        compiled()
        return _agrees()
    except (OSError, AttributeError):
        return False


@cache
def compiled() -> Any:
    library = kernels.library(SOURCE, FLAGS)
    for name in ("attend_forward", "attend_backward", "attend_lanes"):
        getattr(library, name).restype = ctypes.c_int
    return library


def _agrees() -> bool:
    """Output and gradient on shapes that fill no block of lanes, against float64."""
    from infoflow.train.kernels.layer import attend

    for M, B, d, T, h in ((2, 2, 4, 19, 2), (1, 2, 5, 1, 1)):
        generator = torch.Generator().manual_seed(T)
        X, A = torch.randn(M, B, d, T, generator=generator), torch.randn(M, h, d + 1, d, generator=generator)
        weight = torch.randn(M, B * T, d * (h + 1), generator=generator)
        wide, narrow = A.double().requires_grad_(), A.clone().requires_grad_()
        exact, got = attend(X.double(), wide), Attend.apply(X, narrow)
        (slope,) = torch.autograd.grad((exact * weight).sum(), wide)
        (mine,) = torch.autograd.grad((got * weight).sum(), narrow)
        for a, b in ((exact, got), (slope, mine)):
            if not float((a - b).detach().norm()) <= AGREES * max(float(a.detach().norm()), 1.0):
                return False
    return True


def _call(function: Any, tensors: list[Tensor], sizes: list[int]) -> None:
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    if function(*pointers, *(ctypes.c_int64(size) for size in sizes)):
        raise MemoryError


def _aligned(size: int) -> Tensor:
    """Floats that begin on a line of 64 bytes (PyTorch's own CPU memory does)."""
    memory = torch.empty(size)
    assert memory.data_ptr() % 64 == 0
    return memory
