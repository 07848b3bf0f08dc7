"""Collisions of random, trained and built models: gap, distance of the states, proof, seconds.

python benchmarks/refutations.py            writes benchmarks/results/refutations.json (about 10 minutes)
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoflow.construct.codec import codec
from infoflow.construct.compiler import build
from infoflow.construct.exponential_head import exponential_head
from infoflow.construct.memory_head import memory_head
from infoflow.files import write_json
from infoflow.nn import Transformer, TransformerConfig
from infoflow.provenance import provenance
from infoflow.refutations import refute
from infoflow.refutations.proposition_two import star_rows
from infoflow.refutations.twins import codec_twins
from infoflow.targets.spelling import parse
from infoflow.targets.target import Target

RESULTS = Path(__file__).parent / "results" / "refutations.json"

# (target, T, heads, head dimension, positions, trained steps); the gap of an earlier search
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
]


def model_of(
    target: Target, T: int, heads: int, n: int, positions: Any, steps: int
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
    model.initialise(torch.Generator().manual_seed(0))
    if not steps:
        return model, None
    generator = torch.Generator().manual_seed(1)
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
    for spelling, T, heads, n, positions, steps, earlier in CASES:
        target = parse(spelling)
        model, nmse = model_of(target, T, heads, n, positions, steps)
        start = time.perf_counter()
        found = refute(model, target, T, seconds=seconds)
        row = {
            "target": spelling,
            "T": T,
            "heads": heads,
            "head_dim": n,
            "positions": positions,
            "steps": steps,
            "nmse": nmse,
            "gap": getattr(found, "gap", None),
            "earlier_gap": earlier,
            "state_distance": getattr(found, "state_distance", None),
            "sigma_min": getattr(found, "sigma_min", None),
            "certified_error": getattr(found, "certified_error", None),
            "read_out_width_bound": getattr(found, "read_out_width_bound", None),
            "seconds": time.perf_counter() - start,
            "gap_in_6_seconds": getattr(refute(model, target, T, seconds=6), "gap", None),
        }
        print(row)
        rows.append(row)
    return rows


def built(seconds: float) -> list[dict[str, Any]]:
    """Networks with a certificate: no gap above twice their bound; a certified error is a lower bound beside it."""
    rows = []
    for spelling, T, eps in (("min_pair", 8, 0.5), ("min_pair", 8, 0.1), ("d_retrieval:D=2,d=2", 16, 0.1)):
        target = parse(spelling)
        net = build(target, T, eps)
        found = refute(net, target, T, seconds=seconds)
        row = {
            "target": spelling,
            "T": T,
            "eps": eps,
            "bound": net.header["certificate"]["bound"],
            "gap": getattr(found, "gap", 0.0),
            "certified_error": getattr(found, "certified_error", None),
        }
        print(row)
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
    for eps, units in ((0.2, 40), (0.1, 80), (0.05, 160), (0.02, 400)):
        target = parse("d_retrieval:D=2,d=1")
        head = memory_head(target, 8, eps)
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
            }
        )
        four = parse("d_retrieval:D=4,d=4")
        V = np.concatenate([_spread(generator, 64, 4), _cluster(generator, 64, 4)])
        for count in (units, None):
            made = exponential_head(four, 64, eps, count)
            error = float(np.abs(made(V) - four(V)).max())
            exponential.append(
                {"eps": eps, "units": made.units, "beta": made.beta, "bound": made.bound, "error": error}
            )
    return {"memory_head": remember, "exponential_head": exponential}


def _spread(generator: np.random.Generator, T: int, d: int) -> np.ndarray:
    return generator.uniform(size=(3000, T, d))


def _cluster(generator: np.random.Generator, T: int, d: int) -> np.ndarray:
    return np.clip(generator.uniform(size=(3000, 1, d)) + 0.05 * generator.normal(size=(3000, T, d)), 0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=25.0, help="for each search")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    payload = {
        "provenance": provenance(("numpy", "torch", "python-flint")),
        "seconds_per_search": seconds,
        "codecs": codecs(),
        "single_heads": single_heads(),
        "star": [{**asdict(row), "contradicts": row.contradicts} for row in star_rows(lengths=(8, 64, 1024))],
        "built": built(seconds),
        "collisions": collisions(seconds),
    }
    print(write_json(RESULTS, payload))


if __name__ == "__main__":
    main()
