"""Sizes and speed of the softmax-attention constructions, with ratios against the dense evaluation in the same run.

python benchmarks/softmax_attention.py   writes benchmarks/results/softmax_attention.json
"""

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.descent import in_context_gd
from infoflow.construct.softmax_attention.descent_layer import explicit_step, state
from infoflow.construct.softmax_attention.grid import grid_approximator
from infoflow.construct.softmax_attention.trajectory import DescentProblem
from infoflow.construct.softmax_attention.truncated_linear import on_anchors
from infoflow.files import write_json
from infoflow.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "softmax_attention.json"
F64 = torch.float64


def timed(call: Callable[[], Any], repeats: int = 5) -> dict[str, float]:
    """Least wall and least processor seconds of a few runs, after one that is not counted."""
    call()
    walls, processors = [], []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return {"seconds": min(walls), "cpu_seconds": min(processors)}


def against_dense(dense: Callable[[], Any], fast: Callable[[], Any]) -> dict[str, Any]:
    """Both in the same run; the ratio is of processor seconds, which other work on the machine disturbs least."""
    slow, quick = timed(dense), timed(fast)
    return {"dense": slow, "fast": quick, "ratio": slow["cpu_seconds"] / max(quick["cpu_seconds"], 1e-6)}


def truncated() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    z = 4 * torch.randn(1, 10**6, generator=generator, dtype=F64)
    large = on_anchors([1.0], 0.0, Anchors(-1.0, 2.0, 10**6), 5e-7, n=10**6)
    small = on_anchors([1.0], 0.0, Anchors(-1.0, 2.0, 2000), 0.01)
    part = z[:, :2000]
    L = small.anchors.points()

    def dense() -> torch.Tensor:
        return torch.softmax(-(small.beta / 2) * (part[0, :, None] - L) ** 2, 1) @ L

    return {
        "tokens": 10**6,
        "anchors": 10**6,
        **timed(lambda: large.fast(z)),
        "limit": 3.0,
        "error": float((large.fast(z) - large.target(z)).abs().max()),
        "bound": large.certificate.bound,
        "2000 tokens, 2000 anchors": against_dense(dense, lambda: small.response(part[0])),
        "agreement": float((dense() - small.response(part[0])).abs().max()),
        "float32": {str(p): float32_error(p) for p in (600, 3000, 6000, 12_000)},
    }


def float32_error(p: int) -> dict[str, float]:
    """Largest interior error in anchors: direct differences, and the expanded score on some of the points."""
    head = on_anchors([1.0], 0.0, Anchors(-1.0, 2.0, p), 1e-3)
    z = torch.linspace(-1, 2 - head.anchors.spacing, 200_001, dtype=torch.float32)
    some, L = z[::200], head.anchors.points(torch.float32)
    expanded = torch.softmax(-(head.beta / 2) * (L**2 - 2 * some[:, None] * L), 1) @ L
    direct = (head.response(z).double() - z.double()).abs().max()
    return {
        "direct": float(direct) / head.anchors.spacing,
        "expanded": float((expanded.double() - some.double()).abs().max()) / head.anchors.spacing,
    }


def grids() -> dict[str, Any]:
    def wave(X: torch.Tensor) -> torch.Tensor:
        return torch.sin(X.flatten(1).sum(1))

    result: dict[str, Any] = {"limit": 1.0, "inputs": 50}
    for name, (d, n, g) in {"6 coordinates": (2, 3, 12), "3 coordinates": (1, 3, 144)}.items():
        net = grid_approximator(wave, d, n, g, "two-layer", lipschitz=float(d * n))
        X = net.sample(50, 0)
        result[name] = {"cells": net.cells, **timed(partial(net.fast, X))}
    small = grid_approximator(wave, 1, 3, 12, "quadratic", lipschitz=3.0)
    X = small.sample(50, 0)
    result[f"{small.cells} cells, quadratic"] = against_dense(lambda: small.explicit(X), lambda: small.fast(X))
    heads = grid_approximator(wave, 2, 2, 3, "two-layer", lipschitz=4.0)
    Y = heads.sample(50, 0)
    result[f"{heads.cells} cells, two-layer"] = {
        "heads": heads.heads["built"],
        **against_dense(lambda: heads.explicit(Y), lambda: heads.fast(Y)),
    }
    lazy = grid_approximator(wave, 10, 5, 8, "quadratic", lipschitz=50.0, lazy=True)
    Z = lazy.sample(50, 0)
    result["lazy"] = {"cells": f"8^{lazy.N}", **timed(lambda: lazy.fast(Z))}
    return result


def regression(d: int, n: int, labels: bool) -> DescentProblem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(d, n, generator=generator, dtype=F64) / math.sqrt(d)
    y = torch.randn(d, generator=generator, dtype=F64) @ x + 0.3 * torch.randn(n, generator=generator, dtype=F64)
    return DescentProblem(x, torch.sign(y) if labels else y, torch.zeros(d, dtype=F64))


def descents() -> dict[str, Any]:
    limits = {"squared": 1e-8, "logistic": 1e-3, "logcosh": 1e-3, "huber": None}
    result: dict[str, Any] = {"d": 10, "n": 100, "p": 256, "steps": 100, "eta": 0.5, "limit": 5.0}
    for loss, limit in limits.items():
        data = regression(10, 100, loss == "logistic")
        start = time.perf_counter()
        net = in_context_gd(loss, 10, 100, 0.5, 100, data=data)
        build = time.perf_counter() - start
        result[loss] = {
            "build_seconds": build,
            **timed(partial(net.run, data)),
            "deviation": net.run(data).deviation,
            "deviation_limit": limit,
            "bound": net.certificate.bound,
            "domain": net.domain.arguments,
            "source": net.domain.source,
            "heads_per_step": net.heads_per_step,
        }
    data = regression(3, 20, False)
    net = in_context_gd("squared", 3, 20, 0.5, 400, data=data, ridge=0.1)
    closed = torch.linalg.solve(data.x @ data.x.mT / 20 + 0.1 * torch.eye(3, dtype=F64), data.x @ data.y / 20)
    result["ridge"] = {"closed_form_distance": float((net.run(data).w - closed).norm()), "limit": 1e-8, "steps": 400}
    S = state(data, data.w0)
    result["one_step"] = against_dense(lambda: explicit_step(net, S), lambda: net.gradient(data, data.w0))
    return result


def main() -> None:
    torch.set_num_threads(1)  # one core is enough, and what else runs on the machine disturbs it less
    payload = {
        "provenance": provenance(),
        "threads": torch.get_num_threads(),
        "truncated_linear": truncated(),
        "grid": grids(),
        "descent": descents(),
    }
    print(write_json(RESULTS, payload))
    print(f"10^6 tokens, 10^6 anchors: {payload['truncated_linear']['seconds']:.3f} s")
    print(f"3 million cells x 50 inputs: {payload['grid']['6 coordinates']['seconds']:.3f} s")
    for loss in ("squared", "logistic", "logcosh", "huber"):
        row = payload["descent"][loss]
        print(f"{loss}: {row['seconds']:.3f} s, deviation {row['deviation']:.2g}, bound {row['bound']:.2g}")


if __name__ == "__main__":
    main()
