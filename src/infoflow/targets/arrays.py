"""The few array operations numpy and torch spell differently, so that targets have one code path.

Every function takes the kind (numpy or torch, dtype, device) from its arguments; torch is imported only where a tensor
has already come in. Sums over features are plain left-to-right loops of products and additions: each is correctly
rounded, so equal tokens give equal scores at every position and numpy and torch agree to the last bit.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from infoflow.cost import cores
from infoflow.errors import InfoFlowError

Array = Any  # a numpy array or a torch tensor

CHUNK_BYTES = 64 * 2**20  # one temporary; fewer than eight of them are alive at a time
CACHE_BYTES = 2**20  # one temporary of a search on the processor, where what stays in cache is twice as fast

QUIET = np.errstate(over="ignore", invalid="ignore")  # a decorator: an overflow ends in one sentence, not in warnings


def is_torch(x: Array) -> bool:
    """Whether an array is a torch tensor, without importing torch."""
    return type(x).__module__.partition(".")[0] == "torch" or hasattr(x, "detach")


def as_tokens(X: Any, dim: int) -> Array:
    """X as (..., T, d) floats; refuses a wrong shape, no token at all, and tokens that are not finite."""
    if not is_torch(X):
        try:
            X = np.asarray(X)
            if X.dtype.kind in "cmM":  # complex numbers, and dates, which numpy would count in seconds
                raise TypeError
            X = X if np.issubdtype(X.dtype, np.floating) else X.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InfoFlowError(f"expected tokens as real numbers (..., T, {dim}), got something else.") from None
    elif X.is_complex():
        raise InfoFlowError(f"expected tokens as real numbers (..., T, {dim}), got complex ones.")
    elif not X.is_floating_point():
        X = X.double()
    if X.ndim < 2 or X.shape[-1] != dim:
        raise InfoFlowError(f"expected tokens of shape (..., T, {dim}), got {tuple(X.shape)}; this target has d={dim}.")
    if X.shape[-2] == 0:
        raise InfoFlowError("expected at least one token, got T=0.")
    if not all_finite(X):
        raise InfoFlowError("expected finite tokens, got NaN or infinity; remove them before asking for the target.")
    return X


def all_finite(x: Array) -> bool:
    """No NaN and no infinity."""
    return bool(x.isfinite().all() if is_torch(x) else np.isfinite(x).all())


def in_threads(function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """[function(part) for part in parts] on all cores this process may use; for work that leaves the interpreter."""
    if min(cores(), len(parts)) < 2:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(min(cores(), len(parts))) as pool:
        return list(pool.map(QUIET(function), parts))


def search_bytes(x: Array) -> int:
    """How large one temporary of a search over x should be."""
    return CHUNK_BYTES if is_torch(x) and x.device.type != "cpu" else CACHE_BYTES


def on_host(x: Array) -> np.ndarray:
    """A tensor (or an array) as a numpy array, without a copy on the host; half precision becomes single."""
    if not is_torch(x):
        return np.asarray(x)
    x = x.detach().cpu()
    return np.asarray((x if x.element_size() >= 4 else x.float()).numpy())


def detach(x: Array) -> Array:
    """The same numbers outside of differentiation."""
    return x.detach() if is_torch(x) else x


def like(values: np.ndarray, x: Array) -> Array:
    """`values` with the kind, dtype and device of x."""
    return x.new_tensor(values) if is_torch(x) else values.astype(x.dtype, copy=False)


def full(shape: tuple[int, ...], value: float, x: Array) -> Array:
    """A new array of one value, of x's kind, device and type."""
    return x.new_full(shape, value) if is_torch(x) else np.full(shape, value, dtype=x.dtype)


def indices(values: Any, x: Array) -> Array:
    """Positions as int64 of the kind and device of x."""
    values = np.asarray(values, dtype=np.int64)
    if not is_torch(x):
        return values
    import torch

    return torch.as_tensor(values, device=x.device)


def take(x: Array, index: Array, axis: int) -> Array:
    """numpy.take_along_axis, with broadcasting of the other axes."""
    flat = axis == 1 and index.ndim == x.ndim == 2 and index.shape[0] == x.shape[0]  # three times as fast
    if is_torch(x):
        import torch

        return x.gather(1, index) if flat else torch.take_along_dim(x, index, axis)
    if flat:
        return x.reshape(-1).take(index + x.shape[1] * np.arange(x.shape[0])[:, None])
    return np.take_along_axis(x, index, axis)


def pick(x: Array, index: Array) -> Array:
    """x[index] for flat x and index."""
    return x.index_select(0, index) if is_torch(x) else x.take(index)


def gather_tokens(X: Array, positions: Array) -> Array:
    """X (..., T, d), positions (..., k) -> tokens (..., k, d)."""
    return take(X, positions[..., None], -2)


def concatenate(parts: list[Array], axis: int) -> Array:
    """numpy's or torch's."""
    if is_torch(parts[0]):
        import torch

        return torch.cat(parts, dim=axis)
    return np.concatenate(parts, axis=axis)


def stack(parts: list[Array], axis: int) -> Array:
    """numpy's or torch's."""
    if is_torch(parts[0]):
        import torch

        return torch.stack(parts, dim=axis)
    return np.stack(parts, axis=axis)


def where(condition: Array, a: Array, b: Array) -> Array:
    """numpy's or torch's."""
    if is_torch(condition):
        import torch

        return torch.where(condition, a, b)
    return np.where(condition, a, b)


def broadcast(x: Array, shape: tuple[int, ...]) -> Array:
    """A view of x in a larger shape."""
    return x.expand(shape) if is_torch(x) else np.broadcast_to(x, shape)


def order(x: Array) -> Array:
    """Stable increasing order along the last axis."""
    return x.argsort(dim=-1, stable=True) if is_torch(x) else np.argsort(x, axis=-1, kind="stable")


def smallest(x: Array) -> Array:
    """Minimum along the last axis."""
    return x.amin(-1) if is_torch(x) else x.min(-1)


def two_largest(x: Array) -> tuple[Array, Array]:
    """The largest and the second largest along the last axis; -inf where there is no second."""
    if x.shape[-1] == 1:
        return x[..., 0], full(tuple(x.shape[:-1]), -np.inf, x)
    if is_torch(x):
        top = x.topk(2, -1).values
        return top[..., 0], top[..., 1]
    top = np.partition(x, -2, axis=-1)
    return top[..., -1], top[..., -2]


def lower_at(totals: Array, index: Array, values: Array) -> Array:
    """`totals` (n,) with totals[index_m] lowered to values_m for every m."""
    if is_torch(totals):
        return totals.scatter_reduce(0, index, values, "amin")
    lowered = totals.copy()
    np.minimum.at(lowered, index, values)
    return lowered


def count(index: Array, size: int) -> Array:
    """How often each of 0..size-1 occurs in `index` (n,)."""
    if is_torch(index):
        return index.bincount(minlength=size)
    return np.bincount(index, minlength=size)


def integers(x: Array) -> Array:
    """Truncated to int64."""
    return x.long() if is_torch(x) else x.astype(np.int64)


def true_indices(mask: Array) -> Array:
    """Where a flat mask is true."""
    return mask.nonzero()[:, 0] if is_torch(mask) else np.flatnonzero(mask)


def epsilon(x: Array) -> float:
    """The spacing of floating-point numbers at one, in the arithmetic of x."""
    return float(_limits(x).eps)


def underflow(x: Array) -> float:
    """Numbers below this have squares that lose their digits, in the arithmetic of x."""
    return float(float(_limits(x).tiny) ** 0.5)


def largest(x: Array) -> float:
    """The largest finite number of x's type."""
    return float(_limits(x).max)


def _limits(x: Array) -> Any:
    if is_torch(x):
        import torch

        return torch.finfo(x.dtype)
    return np.finfo(x.dtype)


def dot(a: Array, b: Array) -> Array:
    """sum_j a[..., j] b[..., j], left to right."""
    total = a[..., 0] * b[..., 0]
    for j in range(1, a.shape[-1]):
        total = total + a[..., j] * b[..., j]
    return total


def sum_of_tokens(tokens: Array) -> Array:
    """(..., k, d) -> (..., d), left to right: the value does not depend on a library's order of summation."""
    total = tokens[..., 0, :]
    for v in range(1, tokens.shape[-2]):
        total = total + tokens[..., v, :]
    return total


def pair_dots(a: Array, b: Array) -> Array:
    """a (B, S, r), b (B, T, r) -> all inner products (B, S, T), each as `dot` computes it."""
    return dot(a[:, :, None, :], b[:, None, :, :])
