"""Collisions of random, trained and built models: gap, distance of the states, proof, seconds.

python benchmarks/refutations.py            writes benchmarks/results/refutations.json (about 15 minutes)

`first_...` are the numbers of the first report on these searches (one model each, other weights than ours: medians over
MODELS seeds stand beside them).
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoflow.book.statements.proposition_two import star_rows
from infoflow.construct.builders import build
from infoflow.construct.codec import Codec, codec
from infoflow.construct.single_head_plans import exponential_head
from infoflow.construct.single_heads import memory_head
from infoflow.files import write_json
from infoflow.nn import Transformer, TransformerConfig
from infoflow.provenance import provenance
from infoflow.refutations import Adapter, refute
from infoflow.refutations.twins import codec_twins
from infoflow.targets.named import parse
from infoflow.targets.target import Target

RESULTS = Path(__file__).parent / "results" / "refutations.json"

MODELS = 3  # seeds for every case
# (target, T, heads, head dimension, positions, trained steps); the gap of the first report
CASES: list[tuple[str, int, int, int, str, int, float | None]] = [
    ("min_pair", 8, 1, 6, "none", 0, 6.53),
    ("min_pair", 16, 2, 4, "additive", 0, 5.92),
    ("min_pair", 32, 4, 6, "additive", 0, 5.54),
    ("min_pair", 8, 1, 6, "none", 1500, 3.67),
    ("min_pair", 16, 2, 6, "none", 1500, 4.13),
    ("kth_largest:k=2", 8, 1, 2, "none", 1500, 0.255),
    ("kth_largest:k=2", 8, 1, 4, "none", 1500, 0.121),
    ("kth_largest:k=3", 16, 1, 4, "none", 1500, 0.182),
    ("sum_of_maxima:D=4,d=4", 16, 4, 4, "none", 1500, 0.42),
    ("sum_of_maxima:D=4,d=4", 16, 2, 4, "none", 1500, 3.64),
    ("sum_of_maxima:D=4,d=4", 16, 1, 4, "none", 1500, 4.36),
    ("d_retrieval:D=2,d=2", 16, 1, 2, "none", 1500, 0.075),
    ("d_retrieval:D=4,d=4", 16, 2, 4, "none", 1500, 0.022),
]
# cases searched by chance: distance of the states of two among 200,000 inputs with targets 0.1 apart
FIRST_CHANCE = {0: None, 3: None, 5: None, 6: None, 10: 1.2e-4}
FIRST_BUILT = {("min_pair", 0.5): 0.303, ("min_pair", 0.1): 0.037}
FIRST_POWER_SUMS = {(1, 12.0): 0.87, (2, 12.0): 0.099, (2, 30.0): 0.038}  # (powers, b): gap, T = 8, second largest
FIRST_SLOPES = {(2, 1): 1.91, (3, 2): 1.47, (3, 1): 2.98, (4, 2): 1.95, (6, 3): 1.97}  # (m, n): growth of the codec
# eps: error, parameters merged and with a bottleneck, of the head that remembers (T = 8, D = 2, d = 1)
FIRST_MEMORY = {0.2: (0.033, 11.6e3, 3.3e3), 0.1: (0.017, 30.8e3, 6.3e3), 0.05: (0.0084, 84.7e3, 12.4e3)}
FIRST_MEMORY |= {0.02: (0.0035, 317e3, 30.4e3)}
# eps: error, units, of the head of exponentials (T = 64, D = 4)
FIRST_EXPONENTIAL = {0.2: (0.077, 40), 0.1: (0.042, 80), 0.05: (0.021, 160), 0.02: (0.0082, 400)}


def model_of(
    target: Target, T: int, heads: int, n: int, positions: Any, steps: int, seed: int = 0
) -> tuple[Transformer, float | None]:
    """A one-layer model with a two-layer encoder, trained by plain Adam on uniform inputs; and its NMSE."""
    config = TransformerConfig(
        dim=target.dim,
        heads=(heads,),
        head_dims=(n,),
        widths=(32,),
        encoder="mlp",
        encoder_width=32,
        activation="gelu",
        positions=positions,
        length=T if positions != "none" else 0,
    )
    model = Transformer(config)
    model.initialise(torch.Generator().manual_seed(seed))
    if not steps:
        return model, None
    generator = torch.Generator().manual_seed(seed + 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    low, high = target.domain
    for _ in range(steps):
        X = low + (high - low) * torch.rand(256, T, target.dim, generator=generator)
        loss = (model(X) - target(X)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    X = low + (high - low) * torch.rand(4000, T, target.dim, generator=generator)
    with torch.no_grad():
        y = target(X)
        return model, float((model(X) - y).square().mean() / y.var())


def collisions(seconds: float) -> list[dict[str, Any]]:
    rows = []
    for spelling, T, heads, n, positions, steps, first in CASES:
        target = parse(spelling)
        models = [model_of(target, T, heads, n, positions, steps, seed) for seed in range(MODELS)]
        found = [one(model, nmse, target, T, seconds) for model, nmse in models]
        gaps = sorted(row["gap"] for row in found)
        row = {
            "target": spelling,
            "T": T,
            "heads": heads,
            "head_dim": n,
            "positions": positions,
            "steps": steps,
            "models": MODELS,
            "median_gap": float(np.median(gaps)),
            "smallest_gap": gaps[0],
            "largest_gap": gaps[-1],
            "proved": sum(row["certified_error"] is not None for row in found),
            "first_gap": first,
            "largest_state_distance": max(row["state_distance"] for row in found),
            "by_model": found,
            "gap_in_6_seconds": getattr(refute(models[0][0], target, T, seconds=6), "gap", None),
        }
        print({key: value for key, value in row.items() if key != "by_model"}, flush=True)
        rows.append(row)
    return rows


def one(model: Transformer, nmse: float | None, target: Target, T: int, seconds: float) -> dict[str, Any]:
    start = time.perf_counter()
    found = refute(model, target, T, seconds=seconds)
    return {
        "nmse": nmse,
        "gap": getattr(found, "gap", 0.0),
        "state_distance": getattr(found, "state_distance", 0.0),
        "sigma_min": getattr(found, "sigma_min", None),
        "certified_error": getattr(found, "certified_error", None),
        "proof": getattr(found, "proof", None),
        "read_out_width_bound": getattr(found, "read_out_width_bound", None),
        "seconds": time.perf_counter() - start,
    }


def birthdays(samples: int = 200_000) -> list[dict[str, Any]]:
    """Search by chance: the nearest neighbours in state among random inputs, and the closest with targets 0.1 apart."""
    from scipy.spatial import cKDTree

    rows = []
    for case, first in FIRST_CHANCE.items():
        spelling, T, heads, n, positions, steps, _ = CASES[case]
        target = parse(spelling)
        model = model_of(target, T, heads, n, positions, steps)[0].double()
        low, high = target.domain
        start = time.perf_counter()
        X = low + (high - low) * torch.rand(samples, T, target.dim, generator=torch.Generator().manual_seed(7)).double()
        with torch.no_grad():
            R = torch.cat([model.represent(part)[:, 0] for part in X.split(4096)]).numpy()
            F = target(X).numpy()
        distance, near = cKDTree(R).query(R, k=9)
        apart = np.abs(F[near] - F[:, None]) >= 0.1
        row = {
            "target": spelling,
            "T": T,
            "head_dim": n,
            "steps": steps,
            "samples": samples,
            "distance_at_gap_0.1": float(distance[apart].min()) if apart.any() else None,
            "first_distance": first,
            "seconds": time.perf_counter() - start,
        }
        print(row, flush=True)
        rows.append(row)
    return rows


def power_sums(seconds: float) -> list[dict[str, Any]]:
    """Uniform attention and values e^{jb(x-1)}, j = 1..n, nearly determine the second largest: gaps stay small."""
    rows = []
    for (n, b), first in FIRST_POWER_SUMS.items():

        def state(X: torch.Tensor, n: int = n, b: float = b) -> torch.Tensor:
            return torch.stack([torch.exp(j * b * (X[..., 0] - 1)).mean(-1) for j in range(1, n + 1)], -1)

        found = refute(Adapter(state, domain=(0.0, 1.0)), parse("kth_largest:k=2"), 8, seconds=seconds)
        distance = getattr(found, "state_distance", 0.0)
        rows.append({"n": n, "b": b, "gap": getattr(found, "gap", 0.0), "first_gap": first, "state_distance": distance})
        print(rows[-1], flush=True)
    return rows


def codec_growth() -> list[dict[str, Any]]:
    """Slope of log(parameters) against log(1/eps), eps 0.5 to 0.0625 ((3, 1): to 0.125); theory m/n."""
    rows = []
    for (m, n), first in FIRST_SLOPES.items():
        eps = [0.5, 0.25, 0.125] + ([0.0625] if (m, n) != (3, 1) else [])
        made: list[Codec] = [codec(m, n, e) for e in eps]
        slope = np.polyfit(np.log(1 / np.array(eps)), np.log([c.parameters for c in made]), 1)[0]
        sup = [c.attack() * 2**c.bits for c in made if c.parameters < 10**6]
        rows.append({"m": m, "n": n, "slope": float(slope), "first_slope": first, "sup_error_times_2^L": max(sup)})
        print(rows[-1], flush=True)
    return rows


def built(seconds: float) -> list[dict[str, Any]]:
    """Networks with a certificate: no gap above twice their bound; a certified error is a lower bound beside it."""
    rows = []
    cases = (("min_pair", 8, 0.5), ("min_pair", 8, 0.1), ("d_retrieval:D=2,d=2", 16, 0.1))
    for spelling, T, eps in (*cases, ("d_retrieval:D=2,d=2", 16, 0.01), ("pairwise_max:D=4,d=4", 64, 0.01)):
        target = parse(spelling)
        net = build(target, T, eps)
        found = refute(net, target, T, seconds=seconds)
        row = {
            "target": spelling,
            "T": T,
            "eps": eps,
            "bound": net.header["certificate"]["bound"],
            "gap": getattr(found, "gap", 0.0),
            "first_gap": FIRST_BUILT.get((spelling, eps)),
            "certified_error": getattr(found, "certified_error", None),
            "proof": getattr(found, "proof", None),
            "seconds": getattr(found, "seconds", None),
        }
        print(row, flush=True)
        rows.append(row)
    return rows


def codecs() -> list[dict[str, Any]]:
    rows = []
    for m, n, eps in ((2, 1, 0.25), (2, 1, 0.0625), (3, 2, 0.5), (3, 2, 0.125), (4, 2, 0.25), (6, 3, 0.25)):
        hard, soft = codec(m, n, eps), codec(m, n, eps, "tanh")
        row: dict[str, Any] = {
            "m": m,
            "n": n,
            "eps": eps,
            "bits": hard.bits,
            "latent_bits": hard.latent_bits,
            "parameters": hard.parameters,
            "sup_error_heaviside": hard.attack(),
            "l2_bound_tanh": soft.certificate.bound,
            "l2_error_tanh": soft.attack(),
            "l2_error_slope_1000": codec(m, n, eps, "tanh", slope=1000.0 * 2**hard.bits).attack(),
            "l2_error_slope_20": codec(m, n, eps, "tanh", slope=20.0 * 2**hard.bits).attack(),
        }
        if n in (1, 2):
            start = time.perf_counter()
            twins = codec_twins(soft.encode, m, n)
            errors = twins.decoder_errors(soft.decode, soft.encode(twins.V[None])[0])
            row |= {
                "twins": twins.V.tolist(),
                "latent_difference": twins.latent_difference,
                "encoder_slope": soft.encoder.slope,
                "sup_errors": list(errors),
                "twin_seconds": time.perf_counter() - start,
            }
        rows.append(row)
    return rows


def single_heads() -> dict[str, Any]:
    """The head that remembers (T=8, D=2, d=1) and the head of exponentials (T=64, D=4, d=4)."""
    generator = np.random.default_rng(0)
    remember, exponential = [], []
    for eps, (first_error, units) in FIRST_EXPONENTIAL.items():
        target = parse("d_retrieval:D=2,d=1")
        head = memory_head(target, 8, eps)
        first, merged, bottleneck = FIRST_MEMORY[eps]
        same = memory_head(target, 8, first)  # a bound as small as the error the first report measured
        X = torch.from_numpy(np.concatenate([_spread(generator, 8, 1), _cluster(generator, 8, 1)]))
        remember.append(
            {
                "eps": eps,
                "bound": head.bound,
                "error": float((head(X) - target(X)).abs().max()),
                "recovery": float((head.recall(head.remember(X)) - X).abs().max()),
                "parameters_dense": head.parameters,
                "parameters_merged": head.parameters_merged,
                "parameters_bottleneck": head.parameters_bottleneck,
                "first_error": first,
                "first_parameters_merged": merged,
                "first_parameters_bottleneck": bottleneck,
                "bound_at_first_error": same.bound,
                "parameters_merged_at_first_error": same.parameters_merged,
                "parameters_bottleneck_at_first_error": same.parameters_bottleneck,
            }
        )
        four = parse("d_retrieval:D=4,d=4")
        V = np.concatenate([_spread(generator, 64, 4), _cluster(generator, 64, 4)])
        for count in (units, None):
            made = exponential_head(four, 64, eps, count)
            error = float(np.abs(made(V) - four(V)).max())
            row = {"eps": eps, "units": made.units, "beta": made.beta, "bound": made.bound, "error": error}
            exponential.append(row | {"first_error": first_error, "first_units": units})
    return {"memory_head": remember, "exponential_head": exponential}


def _spread(generator: np.random.Generator, T: int, d: int) -> np.ndarray:
    return generator.uniform(size=(3000, T, d))


def _cluster(generator: np.random.Generator, T: int, d: int) -> np.ndarray:
    return np.clip(generator.uniform(size=(3000, 1, d)) + 0.05 * generator.normal(size=(3000, T, d)), 0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="for each search")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    payload = {
        "provenance": provenance(("numpy", "torch", "python-flint")),
        "seconds_per_search": seconds,
        "codecs": codecs(),
        "codec_growth": codec_growth(),
        "single_heads": single_heads(),
        "star": [{**asdict(row), "contradicts": row.contradicts} for row in star_rows(lengths=(8, 64, 1024))],
        "power_sums": power_sums(seconds),
        "birthdays": birthdays(),
        "built": built(seconds),
        "collisions": collisions(seconds),
    }
    print(write_json(RESULTS, payload))


if __name__ == "__main__":
    main()
