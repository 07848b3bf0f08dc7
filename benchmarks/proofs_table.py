"""The error of trained networks, bounded by general verifiers and by `certify`: one table, made in one run.

    python benchmarks/proofs_table.py [--part short|long] [--store out/proofs_table] [--splitting 30] [--seconds 30]
                                      [--lirpa FOLDER]

IBP, CROWN, alpha-CROWN (20 steps) and CROWN with input splitting are auto_LiRPA's, on network - target written as one
graph, of one layer with the products of `proofs.reduce` already multiplied out, which helps it. `--lirpa` names a
folder with its source (and one with its own dependencies, after a comma) where it is not installed. Without it those
columns are empty.

Short sequences are recorded in results/proofs_table.json, those of 64 and 1,024 tokens in results/proofs_long.json.
"""

import argparse
import copy
import heapq
import math
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
from infoflow.proofs.splitting import split
from infoflow.provenance import provenance
from infoflow.targets.named import parse
from infoflow.targets.target import Target
from infoflow.train.fit import Run, fit_many

# D, d, T, heads of the target and the network; further lengths that the same network is certified for.
SMALL = [(1, 1, 2, 1), (1, 1, 4, 1), (1, 2, 2, 1), (2, 2, 2, 2), (2, 2, 3, 2), (2, 2, 4, 2)]
LONG = [(2, 3, 64, 2), (3, 3, 64, 3), (4, 3, 64, 4)]
PAIR = (1, 2, 3)  # D, d, T of a two-layer network for pairwise_max
LONGER = 1024
RESULTS = Path(__file__).parent / "results"
BATCH = 128  # boxes that auto_LiRPA bounds at once


def runs() -> list[Run]:
    recipe = iflow.Recipe(samples=16384, validation=1000, epochs=60)
    found = []
    for D, d, T, heads in [*SMALL, *LONG]:
        target = iflow.targets.sum_of_maxima(D=D, d=d, seed=0)
        found.append(Run(target, iflow.Architecture(heads=(heads,), embed=(4 * heads,)), T, 0, recipe))
    D, d, T = PAIR
    target = iflow.targets.pairwise_max(D=D, d=d, seed=0)
    return [*found, Run(target, iflow.Architecture(heads=(1, 1), embed=(8, 8)), T, 0, recipe)]


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


class PairDifference(nn.Module):
    """The same for a two-layer network of one head a layer and pairwise_max with one matrix."""

    def __init__(self, network: Any, target: Target, T: int, gelu: Any) -> None:
        super().__init__()
        self.T, self.gelu = T, gelu
        p = {name: value.detach().double().numpy() for name, value in network.state_dict().items()}
        beta = network.config.betas
        self.encoder = _linear(p["encoder.maps.0.weight"], p["encoder.maps.0.bias"])
        layers = [f"attentions.{l}." for l in (0, 1)]
        self.query = nn.ModuleList(_linear(b * p[f"{l}query"][0]) for l, b in zip(layers, beta, strict=True))
        self.key = nn.ModuleList(_linear(p[f"{l}key"][0]) for l in layers)
        self.value = nn.ModuleList(_linear(p[f"{l}output"] @ p[f"{l}value"][0]) for l in layers)
        self.ffn = nn.ModuleList(_linear(p[f"ffns.0.maps.{i}.weight"], p[f"ffns.0.maps.{i}.bias"]) for i in (0, 1))
        self.out = nn.ModuleList(_linear(p[f"readout.maps.{i}.weight"], p[f"readout.maps.{i}.bias"]) for i in (0, 1))
        cls, asked = p["cls_token"], p["attentions.0.query"][0] @ p["cls_token"]
        self.asked = _linear(beta[0] * (asked @ p["attentions.0.key"][0])[None])  # the CLS asks with one fixed query
        self.first = _linear(p["ffns.0.maps.0.weight"], p["ffns.0.maps.0.bias"] + p["ffns.0.maps.0.weight"] @ cls)
        score = target.terms[0].score  # type: ignore[union-attr]
        (edge,) = score.edges  # type: ignore[union-attr]
        self.pair = _linear(edge.left.affine()[0].T @ edge.right.affine()[0])

    def forward(self, x: Tensor) -> Tensor:
        e = self.encoder(x)
        tokens = self.ffn[1](self.gelu(self.ffn[0](e + self._read(0, e, e))))
        read = (torch.softmax(self.asked(e), dim=1) * self.value[0](e)).sum(1, keepdim=True)
        cls = self.ffn[1](self.gelu(self.first(read)))
        y = self.out[1](self.gelu(self.out[0](cls + self._read(1, cls, tokens))))[:, 0]
        values = torch.matmul(x, self.pair(x).transpose(1, 2)).flatten(1)
        largest = values[:, :1]
        for i in range(1, self.T**2):
            largest = torch.relu(values[:, i : i + 1] - largest) + largest
        return y - largest

    def _read(self, l: int, asking: Tensor, tokens: Tensor) -> Tensor:
        scores = torch.matmul(self.query[l](asking), self.key[l](tokens).transpose(1, 2))
        return torch.matmul(torch.softmax(scores, dim=-1), self.value[l](tokens))


def _linear(weight: np.ndarray, bias: np.ndarray | None = None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight.data = torch.tensor(weight, dtype=torch.float32)
    if bias is not None:
        made.bias.data = torch.tensor(bias, dtype=torch.float32)
    return made.requires_grad_(False)


class Lirpa:
    """auto_LiRPA's bounds of |network - target| over boxes of sequences."""

    def __init__(self, network: Any, target: Target, T: int) -> None:
        from auto_LiRPA import BoundedModule
        from auto_LiRPA.operators.gelu import GELUOp

        self.shape = (T, target.dim)
        two = network.config.layers == 2
        module = PairDifference(network, target, T, GELUOp.apply) if two else None
        module = module or Difference(reduce(network), target, T, GELUOp.apply)
        X = torch.rand(8, *self.shape) * 2 - 1  # the graph is the network's own error
        own = (network.float()(X) - target(X)).flatten()
        assert torch.allclose(module(X).flatten(), own, atol=1e-3 * float(own.abs().max() + 1)), "another function"
        module = module.eval()
        options = {"optimize_bound_args": {"iteration": 20}}
        self.bounded = BoundedModule(module, torch.zeros(1, *self.shape), bound_opts=options)

    def bounds(self, low: Tensor, high: Tensor, method: str) -> Tensor:
        from auto_LiRPA import BoundedTensor, PerturbationLpNorm

        law = PerturbationLpNorm(norm=np.inf, x_L=low, x_U=high)
        lower, upper = self.bounded.compute_bounds(x=(BoundedTensor(0.5 * (low + high), law),), method=method)
        found = torch.maximum(-lower, upper)[:, 0].detach()
        return torch.where(found.isnan(), torch.inf, found)  # no number: an exponential has overflowed

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
    start = time.process_time()
    certificate = iflow.certify(network, T=T, seconds=options.seconds)
    used = time.process_time() - start
    corners = np.array(np.meshgrid(*[target.domain] * target.dim)).reshape(target.dim, -1).T
    found = {
        "target": target.spelling,
        "T": T,
        "heads": network.config.heads[0],
        "layers": network.config.layers,
        "dimensions": network.config.heads[0] * target.dim,
        "attacked": certificate.attacked,
        "bound": certificate.bound,
        "ratio": certificate.ratio,
        "seconds": certificate.seconds,
        "processor_seconds": used,
        "largest_target": float(target(corners)),
    }
    if network.config.layers == 2:  # what layer after layer gives on the whole box, before anything is split
        ends = (np.full(target.dim, end) for end in target.domain)
        found["unsplit"] = split(copy.deepcopy(network).double(), target, T, *ends, seconds=0.0).bound
    if not rivals:
        return found
    lirpa = Lirpa(network, target, T)
    for method, name in (("IBP", "ibp"), ("CROWN", "crown"), ("CROWN-Optimized", "alpha_crown")):
        start = time.monotonic()
        found |= {name: lirpa.whole(method), f"{name}_seconds": time.monotonic() - start}
    found |= {"crown_splitting": lirpa.split(options.splitting)}
    return {key: None if value == math.inf else value for key, value in found.items()}  # None: no bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("short", "long"), default="short")
    parser.add_argument("--store", type=Path, default=Path("out/proofs_table"))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--splitting", type=float, default=30.0)
    parser.add_argument("--lirpa", default="")
    options = parser.parse_args()
    sys.path += [str(Path(folder)) for folder in options.lirpa.split(",") if folder]
    warnings.simplefilter("ignore")
    short, version = options.part == "short", None
    if short:
        try:
            import auto_LiRPA

            version = auto_LiRPA.__version__
        except ImportError:
            pass
    path = RESULTS / ("proofs_table.json" if short else "proofs_long.json")
    results = fit_many([run for run in runs() if (run.T < 64) == short], options.store, keep_weights=True)
    about = provenance(("numpy", "torch", "scipy"))
    about |= {"command": about["command"].partition(" --lirpa")[0]}
    made = {"provenance": about, "search_seconds": options.seconds}
    made |= {"auto_LiRPA": version, "splitting_seconds": options.splitting} if short else {}
    rows: list[dict[str, Any]] = []
    for result in results:
        assert result is not None
        network = result.network()
        T = int(network.header["T"])
        for length in (T,) if short else (T, LONGER):
            rows.append({**row(network, length, options, version is not None), "nmse": result.best})
            print({k: v for k, v in rows[-1].items() if not k.endswith("_seconds")}, flush=True)
            write_json(path, {**made, "rows": rows})


if __name__ == "__main__":
    main()
