"""The error of trained networks, bounded by general verifiers and by `certify`: one table, made in one run.

    python benchmarks/proofs_table.py [--store out/proofs_table] [--splitting 30] [--seconds 30] [--lirpa FOLDER]

IBP, CROWN, alpha-CROWN (20 steps) and CROWN with input splitting are auto_LiRPA's, on network - target written as one
graph with the products of `proofs.reduce` already multiplied out, which helps it. `--lirpa` names a folder with its
source (and one with its own dependencies, after a comma) where it is not installed. Without it those columns are empty.
"""

import argparse
import heapq
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import infoflow as iflow
from infoflow.files import write_json
from infoflow.proofs.reduce import Reduced, reduce
from infoflow.provenance import provenance
from infoflow.targets.named import parse
from infoflow.targets.target import Target
from infoflow.train.fit import Run, fit_many

# D, d, T, heads of the target and the network; further lengths that the same network is certified for.
SMALL = [(1, 1, 2, 1), (1, 1, 4, 1), (1, 2, 2, 1), (2, 2, 2, 2), (2, 2, 3, 2), (2, 2, 4, 2)]
LONG = [(2, 3, 64, 2), (3, 2, 64, 3), (3, 3, 64, 3), (3, 3, 64, 4), (4, 2, 64, 4), (4, 3, 64, 4)]
LONGER = 1024
RESULTS = Path(__file__).parent / "results"
BATCH = 128  # boxes that auto_LiRPA bounds at once


def runs() -> list[Run]:
    recipe = iflow.Recipe(samples=16384, validation=1000, epochs=60)
    found = []
    for D, d, T, heads in [*SMALL, *LONG]:
        target = iflow.targets.sum_of_maxima(D=D, d=d, seed=0)
        found.append(Run(target, iflow.Architecture(heads=(heads,), embed=(4 * heads,)), T, 0, recipe))
    return found


class Difference(nn.Module):
    """network - target for sums of maxima, in operations that auto_LiRPA knows."""

    def __init__(self, reduced: Reduced, target: Target, T: int, gelu: Any) -> None:
        super().__init__()
        self.T, self.gelu = T, gelu
        self.queries = nn.ModuleList(_linear(q[None]) for q in reduced.queries)
        self.first, self.last = _linear(reduced.weight, reduced.bias), _linear(reduced.output, reduced.constant)
        scores = [term.score.unary[0].affine()[0] for term in target.terms]  # type: ignore[union-attr]
        self.scores = nn.ModuleList(_linear(a) for a in scores)

    def forward(self, x: Tensor) -> Tensor:
        averages = [(torch.softmax(query(x), dim=1) * x).sum(1) for query in self.queries]
        y = self.last(self.gelu(self.first(torch.cat(averages, -1) if len(averages) > 1 else averages[0])))
        for score in self.scores:
            values = score(x)
            largest = values[:, 0]
            for t in range(1, self.T):
                largest = torch.relu(values[:, t] - largest) + largest
            y = y - largest
        return y


def _linear(weight: np.ndarray, bias: np.ndarray | None = None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight.data = torch.tensor(weight, dtype=torch.float32)
    if bias is not None:
        made.bias.data = torch.tensor(bias, dtype=torch.float32)
    return made.requires_grad_(False)


class Lirpa:
    """auto_LiRPA's bounds of |network - target| over boxes of sequences."""

    def __init__(self, reduced: Reduced, target: Target, T: int) -> None:
        from auto_LiRPA import BoundedModule
        from auto_LiRPA.operators.gelu import GELUOp

        self.shape = (T, target.dim)
        module = Difference(reduced, target, T, GELUOp.apply).eval()
        options = {"optimize_bound_args": {"iteration": 20}}
        self.bounded = BoundedModule(module, torch.zeros(1, *self.shape), bound_opts=options)

    def bounds(self, low: Tensor, high: Tensor, method: str) -> Tensor:
        from auto_LiRPA import BoundedTensor, PerturbationLpNorm

        law = PerturbationLpNorm(norm=np.inf, x_L=low, x_U=high)
        lower, upper = self.bounded.compute_bounds(x=(BoundedTensor(0.5 * (low + high), law),), method=method)
        return torch.maximum(-lower, upper)[:, 0].detach()

    def whole(self, method: str) -> float:
        return float(self.bounds(-torch.ones(1, *self.shape), torch.ones(1, *self.shape), method)[0])

    def split(self, seconds: float) -> float:
        """CROWN on boxes, the worst of them halved along their longest side, until the time is up."""
        low, high = -torch.ones(1, *self.shape), torch.ones(1, *self.shape)
        heap = [(-self.whole("CROWN"), 0, low[0], high[0])]
        end, made = time.monotonic() + seconds, 1
        while time.monotonic() < end:
            worst = [heapq.heappop(heap) for _ in range(min(BATCH, len(heap)))]
            lows, highs = [], []
            for _, _, a, b in worst:
                at = int((b - a).flatten().argmax())
                middle = 0.5 * (a.flatten()[at] + b.flatten()[at])
                left, right = b.clone(), a.clone()
                left.view(-1)[at] = right.view(-1)[at] = middle
                lows += [a, right]
                highs += [left, b]
            found = self.bounds(torch.stack(lows), torch.stack(highs), "CROWN").tolist()
            for value, a, b in zip(found, lows, highs, strict=True):
                made += 1
                heapq.heappush(heap, (-value, made, a, b))
        return -heap[0][0]


def row(network: Any, T: int, options: argparse.Namespace, rivals: bool) -> dict[str, Any]:
    target = parse(network.header["target"])
    certificate = iflow.certify(network, T=T, seconds=options.seconds)
    corners = np.array(np.meshgrid(*[target.domain] * target.dim)).reshape(target.dim, -1).T
    found = {
        "target": target.spelling,
        "T": T,
        "heads": network.config.heads[0],
        "dimensions": network.config.heads[0] * target.dim,
        "attacked": certificate.attacked,
        "bound": certificate.bound,
        "ratio": certificate.ratio,
        "seconds": certificate.seconds,
        "nodes": certificate.measured["nodes"],
        "largest_target": float(target(corners)),
    }
    if not rivals:
        return found
    lirpa = Lirpa(reduce(network), target, T)
    for method, name in (("IBP", "ibp"), ("CROWN", "crown"), ("CROWN-Optimized", "alpha_crown")):
        start = time.monotonic()
        found |= {name: lirpa.whole(method), f"{name}_seconds": time.monotonic() - start}
    return found | {"crown_splitting": lirpa.split(options.splitting)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("out/proofs_table"))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--splitting", type=float, default=30.0)
    parser.add_argument("--lirpa", default="")
    options = parser.parse_args()
    sys.path += [str(Path(folder)) for folder in options.lirpa.split(",") if folder]
    warnings.simplefilter("ignore")
    try:
        import auto_LiRPA

        version = auto_LiRPA.__version__
    except ImportError:
        version = None
    results = [result for result in fit_many(runs(), options.store, keep_weights=True) if result is not None]
    rows = []
    for (_, _, T, _), result in zip([*SMALL, *LONG], results, strict=True):
        network = result.network()
        for length in (T,) if T < 64 else (T, LONGER):
            rows.append({**row(network, length, options, version is not None and T < 64), "nmse": result.best})
            print({k: v for k, v in rows[-1].items() if not k.endswith("_seconds")}, flush=True)
    about = provenance(("numpy", "torch", "scipy"))
    about |= {"command": about["command"].partition(" --lirpa")[0]}
    times = {"splitting_seconds": options.splitting, "search_seconds": options.seconds}
    write_json(RESULTS / "proofs_table.json", {"provenance": about, "auto_LiRPA": version, **times, "rows": rows})


if __name__ == "__main__":
    main()
