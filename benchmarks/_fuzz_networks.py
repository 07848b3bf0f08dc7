"""One small saved network of every kind and variant, the originals that `fuzz_files.py` damages."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import infoflow as iflow
from infoflow.construct.codec import codec
from infoflow.construct.rank_one.context_map import ContextMap
from infoflow.construct.rank_one.equivariant import approximate_equivariant, function_named
from infoflow.construct.rank_one.equivariant_proof import save_equivariant
from infoflow.construct.rank_one.memorize import memorize
from infoflow.construct.rank_one.saving import save_memorizer
from infoflow.construct.single_heads import single_head
from infoflow.construct.softmax_attention import (
    grid_approximator,
    in_context_gd,
    multi_head_truncated_linear,
    truncated_linear,
)
from infoflow.construct.softmax_attention.expression import parse
from infoflow.construct.softmax_attention.saving import save_descent, save_grid, save_truncated_linear
from infoflow.construct.softmax_attention.trajectory import DescentProblem
from infoflow.nn import Transformer, TransformerConfig
from infoflow.targets import d_retrieval

MAKERS: dict[str, Callable[[Path], Path]] = {}
WAVE = "sin(2*x11)+x11*x12"


def maker(function: Callable[[Path], Path]) -> Callable[[Path], Path]:
    MAKERS[function.__name__] = function
    return function


def originals(folder: Path) -> Iterator[tuple[str, Path]]:
    for name, make in MAKERS.items():
        yield name, make(folder / f"{name}.safetensors")


@maker
def pairs(path: Path) -> Path:
    return iflow.build("pairwise_max:D=2,d=2", 5, 0.1).save(path)


@maker
def pairs_unbounded(path: Path) -> Path:
    return iflow.build("pairwise_max:D=1,d=2", 4, 0.01, weight_bound=None).save(path)


@maker
def minimum(path: Path) -> Path:
    return iflow.build("min_pair", 4, 0.2).save(path)


@maker
def star(path: Path) -> Path:
    return iflow.build("star:k=3,d=1", 4, 0.2).save(path)


@maker
def squares(path: Path) -> Path:
    return iflow.build("d_retrieval:D=2,d=2", 5, 0.1).save(path)


@maker
def position_sets(path: Path) -> Path:
    return iflow.build("d_retrieval:D=2,d=1,sets=1..2/3..4", 4, 0.1).save(path)


@maker
def second_largest(path: Path) -> Path:
    return iflow.build("kth_largest:k=2", 4, 0.2).save(path)


@maker
def different_pair(path: Path) -> Path:
    return iflow.build("closest_pair:d=1", 3, 0.2).save(path)


@maker
def next_token(path: Path) -> Path:
    return iflow.build("after_match:d=1", 4, 0.1).save(path)


@maker
def value_read(path: Path) -> Path:
    return iflow.build("value_at_argmax:d=2", 3, 0.3).save(path)


@maker
def fixed_positions(path: Path) -> Path:
    return iflow.build("position_sum:positions=1..2,d=1", 4, 0.2).save(path)


@maker
def occupancy(path: Path) -> Path:
    return iflow.build("triangle_center:d=1", 4, 4.0, weight_bound=None).save(path)


@maker
def memory_head(path: Path) -> Path:
    return single_head("memory_head", d_retrieval(2, 1), 3, 0.5).save(path)


@maker
def exponential_head(path: Path) -> Path:
    return single_head("exponential_head", d_retrieval(2, 1), 6, 0.2).save(path)


def _sequences() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(7, 2))[np.array([rng.choice(7, 3, replace=False) for _ in range(5)])]


@maker
def memorizer(path: Path) -> Path:
    X = _sequences()
    return save_memorizer(memorize(X, np.arange(15).reshape(5, 3) % 4 + 1, head_size=2), path)


@maker
def memorizer_positions(path: Path) -> Path:
    X = _sequences()
    return save_memorizer(memorize(X, np.arange(15).reshape(5, 3) % 5, positions="corollary"), path)


@maker
def memorizer_causal(path: Path) -> Path:
    X = _sequences()
    return save_memorizer(memorize(X[:2], np.array([[1, 2, 3], [3, 2, 1]]), mask="causal"), path)


@maker
def context_map(path: Path) -> Path:
    return ContextMap.fit(_sequences()).save(path)


@maker
def context_map_padded(path: Path) -> Path:
    X = _sequences()
    return ContextMap.fit([X[0], X[1][:2], X[2]], mask="padding", head_size=2).save(path)


@maker
def equivariant(path: Path) -> Path:
    return save_equivariant(approximate_equivariant(function_named("wave", 1, 2), 1, 2, 4), "wave", "centre", path)


@maker
def codec_heaviside(path: Path) -> Path:
    return codec(2, 1, 0.5).save(path)


@maker
def codec_tanh(path: Path) -> Path:
    return codec(2, 1, 0.5, "tanh").save(path)


@maker
def range_head(path: Path) -> Path:
    return save_truncated_linear(truncated_linear([1.0, -0.5], 0.25, -1.0, 2.0, 0.05, n=3), path)


@maker
def range_heads(path: Path) -> Path:
    return save_truncated_linear(multi_head_truncated_linear([1.0], 0.0, -1.0, 1.0, n=5, H=4), path)


@maker
def grid_quadratic(path: Path) -> Path:
    return save_grid(grid_approximator(parse(WAVE, 1, 2), 1, 2, 5, "quadratic"), WAVE, None, path)


@maker
def grid_promised(path: Path) -> Path:
    net = grid_approximator(parse(WAVE, 1, 2), 1, 2, 5, "quadratic", lipschitz=4.0)
    return save_grid(net, WAVE, 4.0, path)


@maker
def grid_two_layers(path: Path) -> Path:
    return save_grid(grid_approximator(parse("x11^2", 1, 1), 1, 1, 6, "two-layer"), "x11^2", None, path)


@maker
def grid_one_layer(path: Path) -> Path:
    return save_grid(grid_approximator(parse("tanh(x11)", 1, 1), 1, 1, 6, "one-layer-softmax"), "tanh(x11)", None, path)


def _descent(path: Path, loss: str) -> Path:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 8, generator=generator, dtype=torch.float64)
    y = (x[0] - 2 * x[1]).sign() if loss == "logistic" else x[0] - 2 * x[1]
    data = DescentProblem(x, y, torch.zeros(2, dtype=torch.float64))
    return save_descent(in_context_gd(loss, 2, 8, 0.2, 4, data=data, ridge=0.1, p=64), path)


@maker
def descent_squared(path: Path) -> Path:
    return _descent(path, "squared")


@maker
def descent_logistic(path: Path) -> Path:
    return _descent(path, "logistic")


def _trained(path: Path, target: str, T: int, **shape: Any) -> Path:
    """Random weights of ordinary size: `certify` bounds how far such a network is from its target."""
    network = Transformer(TransformerConfig(**shape)).double()
    network.initialise(torch.Generator().manual_seed(0), scale=2.0)
    return network.save(path, target=target, T=T)


@maker
def trained(path: Path) -> Path:
    return _trained(path, "sum_of_maxima:D=1,d=2", 6, dim=2, heads=(2,), head_dims=(2,), widths=(5,), activation="gelu")


@maker
def trained_deep(path: Path) -> Path:
    shape = {"dim": 1, "heads": (1, 2), "head_dims": (2, 2), "widths": (3, 4), "positions": "additive", "length": 3}
    return _trained(path, "sum_of_maxima:D=1,d=1", 3, **shape)
