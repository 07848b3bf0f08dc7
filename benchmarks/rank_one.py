"""Rank-1 heads, measured: projections, contextual maps, certificates, memorisation, Proposition 1, and the
alternatives.

    python benchmarks/rank_one.py [SECTION ...]

Writes benchmarks/results/rank_one.json; with section names only those are measured again, and each
section keeps the commit it was measured at. `known` is the number the
corrected theory was checked with; `target` a size or time that has to be met on 2 cores.
"""

import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoflow.construct.rank_one import boltzmann, certificate, equivariant, hardmax, projection, scales
from infoflow.construct.rank_one.context_map import ContextMap
from infoflow.construct.rank_one.contexts import contexts_of
from infoflow.construct.rank_one.memorize import memorize
from infoflow.construct.rank_one.network import rank_one_config
from infoflow.files import write_json
from infoflow.nn import Transformer
from infoflow.provenance import provenance

RESULT = Path(__file__).parent / "results" / "rank_one.json"


def timed(job: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The value with wall-clock and processor seconds; a busy machine inflates the first alone."""
    wall, processor = time.perf_counter(), time.process_time()
    value = job()
    spent = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - processor}
    return value, {name: round(number, 3) for name, number in spent.items()}


def sequences(V: int, d: int, n: int, N: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian vocabulary and N sequences of n distinct tokens."""
    rng = np.random.default_rng(seed)
    keys = rng.random((N, V), dtype=np.float32) if N * V <= 20_000_000 else None
    if keys is not None:
        tokens = np.argpartition(keys, n, axis=1)[:, :n] if n < V else np.argsort(keys, axis=1)
    else:
        tokens = np.array([rng.choice(V, n, replace=False) for _ in range(N)])
    return rng.standard_normal((V, d)), tokens


def lemmas() -> dict[str, Any]:
    """How loose the paper's gap is, and how sharp the replacement."""
    delta = 2 * math.log(2) + 3 + 1e-9
    a, b = np.array([delta, 0.0]), np.array([delta, -delta])
    paper = abs(boltzmann.boltz_difference(a, b)) / (math.log(2) ** 2 * math.exp(-2 * delta))
    return {"paper_bound_ratio": {"value": paper, "known": 706}, "drop_n100": boltzmann.largest_drop(100)}


def projections() -> list[dict[str, Any]]:
    """gap/max|p| of Gaussian tokens: one draw, best of K, with the linear program or the exact solve."""
    known = {(100, 16): 2.9e-3, (100, 128): 2.0e-2, (1000, 64): 6.0e-5, (10_000, 64): 5.5e-8, (100_000, 64): 1.5e-10}
    draws = {100: 2000, 1000: 500, 10_000: 100, 100_000: 20}
    rows = []
    for (m, d), value in known.items():
        tokens = np.random.default_rng(0).standard_normal((m, d))
        one = projection.find_projection(tokens, draws=1, polish=False).quality
        many = projection.find_projection(tokens, draws=draws[m], polish=False).quality
        best, spent = timed(lambda tokens=tokens, m=m: projection.find_projection(tokens, draws=draws[m]))
        _, lemma = timed(lambda tokens=tokens: projection.find_projection(tokens, "lemma"))
        rows.append(
            {"m": m, "d": d, "one_draw": one, "best_of": draws[m], "best_draw": many, "quality": best.quality}
            | {"known": value, "method": best.method, **spent, "lemma_72": lemma}
        )
    return rows


def scale_table() -> list[dict[str, Any]]:
    """log10 of the certified id gap at the three scales."""
    known = {
        (4, 2, 2, 4): (-1.9, -21, -6790),
        (10, 3, 4, 20): (-3.4, -121, -6.3e5),
        (50, 8, 8, 200): (-5.3, -14_091, -1.5e8),
        (200, 16, 16, 200): (-5.4, -1.7e6, -6.5e10),
    }
    rows = []
    for case, values in known.items():
        vocabulary, tokens = sequences(*case)
        contexts = contexts_of(vocabulary, tokens)
        row: dict[str, Any] = {"V,d,n,N": case}
        for scale, value in zip(("auto", "sufficient", "paper"), values, strict=True):
            made, spent = timed(lambda contexts=contexts, scale=scale: ContextMap.fit(contexts, scale))
            row[scale] = {"log10_gap": made.log10_gap, "known": value, "method": made.certificate.method}
            row[scale] |= {"bits": made.certificate.bits, "float64_gap": made.relative_gap, **spent}
            row["equation_8"] = scales.paper_gap(contexts, made.apart)
            if scale == "paper":
                _, row["saturated_certificate"] = timed(
                    lambda made=made: certificate.saturated_order(made.contexts, made.head)
                )
        rows.append(row)
    return rows


def edit_family(V: int, d: int, n: int, N: int) -> Any:
    """Pairs of sequences that differ in one token."""
    vocabulary, tokens = sequences(V, d, n, N // 2)
    changed = tokens.copy()
    changed[:, 0] = (tokens.max(1) + 1) % V
    return contexts_of(vocabulary, np.vstack([tokens, changed]))


def reach() -> list[dict[str, Any]]:
    """gap/max|p| that the automatic scale finds; small data get a longer search."""
    known = {
        (100, 8, 8, 1000): 3.7e-6,
        (1000, 16, 16, 1000): 5.6e-6,
        (1000, 16, 16, 6250): None,
        (10_000, 64, 64, 3000): 3.1e-7,
        (1000, 16, 16, 30_000): 5.5e-9,
    }
    rows = []
    for case, value in known.items():
        vocabulary, tokens = sequences(*case)
        contexts = contexts_of(vocabulary, tokens)
        draws = 96 if contexts.size <= 20_000 else None
        made, spent = timed(lambda contexts=contexts, draws=draws: ContextMap.fit(contexts, draws=draws))
        rows.append(_reached(str(case), made, value, spent))
    made, spent = timed(lambda: ContextMap.fit(edit_family(1000, 16, 32, 2000)))
    rows.append(_reached("one-token edits (1000, 16, 32, 2000)", made, 2.8e-9, spent))
    for (m, n), value in {(12, 6): 9.4e-7, (14, 7): 3.2e-8, (16, 8): 2.0e-9, (18, 9): 8.6e-11}.items():
        subsets = np.array(list(itertools.combinations(range(m), n)))
        contexts = contexts_of(np.arange(1.0, m + 1)[:, None], subsets)
        made, spent = timed(lambda contexts=contexts: ContextMap.fit(contexts))
        rows.append(_reached(f"all {n}-subsets of 1..{m}, d = 1", made, value, spent))
    return rows


def million() -> dict[str, Any]:
    """1.6 million contexts in float64."""
    contexts = contexts_of(*sequences(100, 16, 16, 100_000))
    made, spent = timed(lambda: ContextMap.fit(contexts))
    return _reached("(100, 16, 16, 100000)", made, 4.6e-11, spent)


def _reached(name: str, made: ContextMap, known: float | None, spent: dict[str, float]) -> dict[str, Any]:
    row = {"data": name, "contexts": made.contexts.size, "gap": made.relative_gap, "known": known, **spent}
    return row | {"method": made.certificate.method, "float64": made.float64}


def balls() -> dict[str, Any]:
    vocabulary, tokens = sequences(1000, 16, 16, 1000)
    made = ContextMap.fit(contexts_of(vocabulary, tokens))
    found, spent = timed(lambda: certificate.certify_by_balls(made.contexts, made.head, made.averages, 64))
    return {"contexts": made.contexts.size, "holds": found.holds, "bits": 64, **spent, "target": "< 1 s"}


def masks() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    vocabulary, tokens = rng.standard_normal((500, 16)), rng.integers(0, 500, size=(300, 32))
    tokens[1::3, :20] = tokens[::3, :20]
    padded = tokens.copy()
    padded[np.arange(32) >= rng.integers(4, 33, size=(300, 1))] = -1
    rows = []
    for mask, table, known in (
        ("causal", tokens, 8.0e-6),
        ("padding", padded, 2.4e-5),
        ("causal+padding", padded, 1.1e-4),
    ):
        made, spent = timed(
            lambda mask=mask, table=table: ContextMap.fit(contexts_of(vocabulary, table, mask), merge=True)
        )
        rows.append(
            {"mask": mask, "contexts": made.contexts.size, "gap": made.relative_gap} | {"known": known, **spent}
        )
    return rows


def memorisation() -> list[dict[str, Any]]:
    """V, d, n, N, C as in the table; `dense` places run through the dense network, all others through its O(log m)
    form."""
    known = {
        (50, 4, 8, 125, 10): (4.4e-6, 5e-9, None),
        (200, 8, 10, 500, 10): (1.1e-7, 6e-7, None),
        (1000, 8, 16, 1000, 100): (1.4e-8, 7e-5, None),
        (2000, 8, 20, 2000, 100): (1.9e-9, 1.2e-3, None),
        (1000, 2, 16, 6000, 10): (3.7e-10, 1.9e-4, 1500),
        (2000, 2, 16, 20_000, 10): (2.1e-11, 7e-3, 1500),
    }
    rows = []
    for (V, d, n, N, C), (gap, error, dense) in known.items():
        vocabulary, tokens = sequences(V, d, n, N)
        Y = np.random.default_rng(1).integers(1, C + 1, size=(N, n))
        made, spent = timed(lambda X=vocabulary[tokens], Y=Y, dense=dense: memorize(X, Y, dense_places=dense))
        rows.append(
            {"V,d,n,N,C": (V, d, n, N, C), "contexts": made.contexts.size, "wrong": 0}
            | {"gap": made.spread.gap, "known_gap": gap, "max_error": made.max_error, "known_error": error}
            | {"proved_error": made.certificate.bound, "dense_places": made.dense_places, **spent}
            | {
                "parts": {name: round(value, 3) for name, value in made.seconds.items()},
                "parameters": made.parameters(),
            }
        )
    return rows


def positions() -> list[dict[str, Any]]:
    """Corollary 2 with the repaired encoding and with a small random one: order and duplicates count."""
    rows = []
    for d, known in ((4, {"corollary": 1.1e-6, "random": 1.1e-6}), (1, {"corollary": 6e-8, "random": 2e-5})):
        rng = np.random.default_rng(0)
        vocabulary, tokens = rng.standard_normal((50, d)), rng.integers(0, 50, size=(200, 10))
        Y = rng.integers(1, 11, size=tokens.shape)
        for name, gap in known.items():
            made, spent = timed(lambda X=vocabulary[tokens], Y=Y, name=name: memorize(X, Y, positions=name))
            row = {"d": d, "encoding": name, "contexts": made.contexts.size, "wrong": 0, "gap": made.spread.gap}
            rows.append(row | {"known": gap, "max_error": made.max_error, **spent})
    return rows


def proposition_1() -> dict[str, Any]:
    rows = []
    known = {
        ("mean_product", "corner"): (0.228, 0.110, 0.054, 0.027, 0.0134),
        ("mean_product", "centre"): (0.088, 0.044, 0.022, 0.011, 0.0056),
        ("wave", "corner"): (0.533, 0.288, 0.148, 0.075, 0.038),
        ("wave", "centre"): (0.297, 0.150, 0.076, 0.038, 0.019),
    }
    for (name, labels), values in known.items():
        for D, value in zip((4, 8, 16, 32, 64), values, strict=True):
            rows.append(_equivariant(name, 1, 2, D, labels, value))
    for D, value in ((3, 0.783), (4, 0.626), (6, 0.441)):
        rows.append(_equivariant("wave", 1, 3, D, "corner", value))
    large = [
        _equivariant("mean_product", 1, 2, 256, "centre", None),
        _equivariant("mean_product", 2, 2, 16, "centre", None),
    ]
    return {"errors": rows, "large": large}


def _equivariant(name: str, d: int, n: int, D: int, labels: Any, known: float | None) -> dict[str, Any]:
    f = equivariant.FUNCTIONS[name]
    net, built = timed(lambda: equivariant.approximate_equivariant(f, d, n, D, labels))
    points = 20_000 if net.classes <= 5000 else 4000
    error, evaluated = timed(lambda: equivariant.l2_error(net, f, points))
    X = np.random.default_rng(1).random((500, n, d))
    off = (X - np.floor(X * D) / D > 2 * net.delta).all((1, 2))
    step = float(np.abs(net(X[off]) - equivariant.step_function(f, X[off], D, labels)).max())
    outside = np.random.default_rng(2).uniform(1.5, 100, (500, n, d)) * np.random.default_rng(3).choice(
        [-1, 1], (500, n, d)
    )
    row = {
        "function": name,
        "d": d,
        "n": n,
        "D": D,
        "labels": labels,
        "l2": error,
        "known": known,
        "classes": net.classes,
    }
    return (
        row
        | {"off_strip": step, "outside": float(np.abs(net(outside)).max()), "points": points}
        | {"build": built, "evaluate": evaluated}
    )


def alternatives() -> list[dict[str, Any]]:
    """The same labels by construction, by Adam on the same one-layer model, and by a dense least-squares read-out."""
    rows = []
    for case in ((50, 4, 8, 125, 10), (200, 8, 10, 500, 10)):
        V, d, n, N, C = case
        vocabulary, tokens = sequences(V, d, n, N)
        X, Y = vocabulary[tokens], np.random.default_rng(1).integers(1, C + 1, size=(N, n))
        made, spent = timed(lambda X=X, Y=Y: memorize(X, Y))
        row: dict[str, Any] = {"contexts": made.contexts.size}
        row["construction"] = {**spent, "wrong": 0, "max_error": made.max_error}
        row["adam"] = _adam(X, Y, C, limit=100.0)
        row["least_squares"] = _least_squares(made)
        rows.append(row)
    return rows


def _adam(X: np.ndarray, Y: np.ndarray, C: int, limit: float) -> dict[str, Any]:
    """Cross-entropy over C classes, full batches, lr 1e-3, the same width; until nothing is wrong or `limit` seconds
    of processor time are spent."""
    torch.manual_seed(0)
    network = Transformer(rank_one_config(X.shape[2], width=X.shape[0] * X.shape[1] - 1, outputs=C))
    network.initialise(torch.Generator().manual_seed(0))
    inputs, labels = torch.from_numpy(X).float(), torch.from_numpy(Y - 1).flatten()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    start, wall, steps, wrong = time.process_time(), time.perf_counter(), 0, len(labels)
    while wrong and time.process_time() - start < limit:
        scores = network(inputs).flatten(0, 1)
        wrong = int((scores.argmax(1) != labels).sum())
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(scores, labels).backward()
        optimiser.step()
        steps += 1
    spent = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - start}
    return {name: round(value, 2) for name, value in spent.items()} | {"steps": steps, "wrong": wrong, "limit": limit}


def _least_squares(made: Any) -> dict[str, Any]:
    """The same hidden units, output weights by numpy's dense solver instead of the triangular one."""
    table, states = made.memory.lookup, made.memory.class_states(made.contexts)
    t = states @ made.memory.readout
    hidden = np.hstack([np.maximum(t[:, None] - table.knots[None, :-1], 0), np.ones((len(t), 1))])
    weights, spent = timed(lambda: np.linalg.lstsq(hidden, made.labels - states, rcond=None)[0])
    out = states + hidden @ weights
    return {
        **spent,
        "wrong": int((np.rint(out) != made.labels).any(1).sum()),
        "max_error": float(np.abs(out - made.labels).max()),
    }


def hardmax_pairs() -> dict[str, Any]:
    report, spent = timed(lambda: hardmax.run({"d": 3, "n": 5}, 0))
    return {
        "layers": report["layers"],
        "relative_difference": report["largest_relative_difference"],
        **spent,
    }


SECTIONS: dict[str, Callable[[], Any]] = {
    "lemmas": lemmas,
    "projections": projections,
    "balls": balls,
    "scales": scale_table,
    "masks": masks,
    "memorisation": memorisation,
    "positions": positions,
    "proposition_1": proposition_1,
    "alternatives": alternatives,
    "hardmax": hardmax_pairs,
    "reach": reach,
    "million": million,
}


def warm() -> None:
    """Import what is imported on first use, so that no row pays for it."""
    tokens = np.random.default_rng(0).standard_normal((6, 2))
    projection.find_projection(tokens)
    made = ContextMap.fit(contexts_of(tokens, np.array([[0, 1, 2], [0, 3, 4]])), "paper")
    made.network()
    memorize(tokens[None], [[1, 2, 3, 4, 5, 6]])


def main(names: list[str]) -> None:
    wrong = [name for name in names if name not in SECTIONS]
    if wrong:
        sys.exit(f"expected sections among {', '.join(SECTIONS)}, got {', '.join(wrong)}")
    warm()
    about = provenance(("numpy", "scipy", "torch", "python-flint"))
    for name in names or SECTIONS:
        value, spent = timed(SECTIONS[name])
        result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        result |= {"provenance": about, name: {"commit": about["commit"], "result": value, **spent}}
        write_json(RESULT, result)
        print(f"{name}: {spent['seconds']:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
