"""Files that lie, made with knowledge of the proofs; the truth is computed here, in exact or ball arithmetic.

    python benchmarks/lies.py [--files 2000] [--seed 0]      writes benchmarks/results/lies.json

`fuzz_files.py` damages files at random. Here every tensor keeps the shape and the structure that the loader asks for
(rank-1 matrices, equal rows, increasing knots), and numbers are chosen to fool a bound: sizes at which sums, squares
and products overflow or underflow, weights scaled up in one place and down in another, ids and contexts moved onto each
other, labels, masks and header fields exchanged, `scales` of 0. A file fails when the bound that `certify` computes is
broken by the truth while nothing speaks against it, or when anything but a sentence is raised.

    contextual maps  the distance of any two ids, in balls of 6000 bits
    memorisers       the network written again in numpy, its sums in three orders, at every place of the data
    descent          gradient descent in balls of 600 bits against the executed path
    scales           built Transformers whose configuration has other scales, run on random inputs
    trained, deep, vocabulary, accuracy     trained networks (`_lies_trained.py`), run on random or on all inputs
"""

import argparse
import json
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import flint
import numpy as np
import torch

import _lies_trained as trained
from _fuzz_networks import MAKERS
from infoflow.compiler.certification import certify
from infoflow.errors import InfoFlowError
from infoflow.files import write_json
from infoflow.nn import files
from infoflow.nn.files import load
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.targets.named import parse

MAPS = ("context_map", "context_map_padded")
MEMORISERS = ("memorizer", "memorizer_positions", "memorizer_causal")
DESCENTS = ("descent_squared", "descent_logistic")
BUILT = ("pairs", "minimum", "star", "second_largest")
EXTREME = (0.0, 5e-324, 1e-320, 1e-308, 1e-200, 1.5e-162, 1e-154, 1e-100, 1e-30, 1e-16, 0.5, 2.0, 1e3, 1e16, 1e100,
           1e154, 1e200, 1e300, 8e307)  # fmt: skip
RESOLVED = -800.0  # log10 of a distance below which balls of 6000 bits may see nothing
Tensors = dict[str, torch.Tensor]
Header = dict[str, Any]


def extreme(rng: np.random.Generator) -> float:
    return float(rng.choice(EXTREME)) * float(rng.choice([-1.0, 1.0]))


# what a liar changes --------------------------------------------------------------------------------------------------


def head_scaled(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    """Keys and outputs, or keys and queries, by factors that cancel or do not."""
    factor = abs(extreme(rng)) or 1.0
    layer = "network.attentions.0."
    for name in ("key", "value"):
        tensors[layer + name] *= factor
    other = "output" if rng.integers(2) else "query"
    tensors[layer + other] *= 1 / factor if rng.integers(3) else extreme(rng)


def head_replaced(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    """Rank-1 matrices of other directions; half of the entries are extreme or 0."""
    layer = "network.attentions.0."
    d, size = tensors[layer + "output"].shape
    output = tensors[layer + "output"]
    share = (output / output[:, :1]).nan_to_num(1.0)[0] * (0.5 if size > 1 else 1.0)  # as it is shared out already
    row = torch.from_numpy(0.5 ** (np.arange(size) % 4))
    drawn = [np.where(rng.integers(2, size=d), rng.normal(size=d), [extreme(rng) for _ in range(d)]) for _ in range(3)]
    key, query, output = (torch.from_numpy(vector) for vector in drawn)
    tensors[layer + "key"] = (row[:, None] * key)[None].clone()
    tensors[layer + "value"] = (row[:, None] * key)[None].clone()
    tensors[layer + "query"] = (share[:, None] * query)[None].clone()
    tensors[layer + "output"] = output[:, None] * share[None]


def vocabulary_moved(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    """Tokens on each other, nearly on each other, or of extreme size."""
    table = tensors["data.vocabulary"]
    one, other = rng.integers(len(table), size=2)
    how = int(rng.integers(4))
    if how == 0:
        table[one] = table[other]
    elif how == 1:
        table[one] = table[other] * (1 + 2.0**-52 * float(rng.integers(1, 9)))
    elif how == 2:
        table[one] *= 10.0 ** float(rng.uniform(-99, 99))
    else:
        table *= 10.0 ** float(rng.uniform(-99, 99))


def tokens_moved(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    """Other sequences: repeated, in other shares, shorter, with holes."""
    tokens = tensors["data.tokens"]
    row, column = (int(rng.integers(size)) for size in tokens.shape)
    tokens[row, column] = float(rng.integers(-1, len(tensors["data.vocabulary"])))
    if rng.integers(2):
        tokens[row] = tokens[row, int(rng.integers(tokens.shape[1]))]


def labels_moved(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    if "data.labels" in tensors:
        labels = tensors["data.labels"]
        labels.view(-1)[int(rng.integers(labels.numel()))] += float(rng.choice([1, -1, 2**20, 0.25]))


def table_replaced(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    """Knots, coefficients and read-out of a memoriser: shifted, scaled against each other, or a unit that hides."""
    weight, bias, last = (f"network.readout.maps.{name}" for name in ("0.weight", "0.bias", "1.weight"))
    if weight not in tensors:
        return
    how, factor = int(rng.integers(4)), abs(extreme(rng)) or 1.0
    if how == 0:  # the same function where nothing is lost
        tensors[weight] *= factor
        tensors[bias] *= factor
        tensors[last] /= factor
    elif how == 1:  # a first unit that acts everywhere, far to the left
        tensors[bias][0] = abs(extreme(rng))
        tensors[last][:, 0] = extreme(rng)
    elif how == 2:
        tensors[last][:, -1] = extreme(rng)
    else:
        tensors[bias] += float(rng.normal()) * 1e-9


def data_scaled(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    """Of a descent."""
    for name in ("x", "y", "w0"):
        if name in tensors and rng.integers(2):
            tensors[name] *= float(rng.choice([1e-150, 1e-8, 0.1, 0.5, 1.5, 3.0, 1e4, 1e150, -1.0]))


def fields_exchanged(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    values: dict[str, list[Any]] = {
        "eta": [1e-300, 1e-3, 0.5, 0.9, 1.4, 1.99, 2.01, 5.0, -0.1], "ridge": [0.0, 1e-12, 1.0, 50.0],
        "tau": [None, 1e-12, 1e-3, 0.1, 1.0, -1.0, 0.0], "p": [16, 64, 100, 500, 3000], "knots": [2, 3, 64],
        "kind": ["soft", "hard", "relu"], "loss": ["squared", "logistic", "logcosh", "huber"],
        "steps": [1, 2, 7, 60], "d": [1, 2, 3], "n": [7, 8, 9],
    }  # fmt: skip
    for name in rng.choice(sorted(set(header) & set(values)), size=2) if "eta" in header else ():
        options = values[str(name)]
        header[str(name)] = options[int(rng.integers(len(options)))]
    config = header.get("config")
    if config and rng.integers(3) == 0:
        name = str(rng.choice(["mask", "share_key_value", "activation", "scales", "residual", "ffn_skip", "positions"]))
        new = {"mask": "causal", "share_key_value": True, "activation": "tanh", "scales": [0.0], "residual": False,
               "ffn_skip": False, "positions": "additive"}  # fmt: skip
        config[name] = new[name]


def scales_changed(rng: np.random.Generator, tensors: Tensors, header: Header) -> None:
    choices = (0.0, -0.0, 0.0, -1.0, 5e-324, 1e-308, 0.5, 1.0, 2.0, 1e308)
    scales = header["config"].get("scales") or [1.0] * len(header["config"]["heads"])
    header["config"]["scales"] = [float(rng.choice(choices)) if rng.integers(4) else 0.0 for _ in scales]


LIES: dict[str, tuple[Callable[[np.random.Generator, Tensors, Header], None], ...]] = {
    "map": (head_scaled, head_replaced, vocabulary_moved, tokens_moved, fields_exchanged),
    "memoriser": (head_scaled, table_replaced, table_replaced, vocabulary_moved, tokens_moved, labels_moved,
                  fields_exchanged),
    "descent": (data_scaled, fields_exchanged, fields_exchanged),
    "scales": (scales_changed,),
    **dict.fromkeys(trained.GROUPS, trained.LIES),
}  # fmt: skip


# the truth ------------------------------------------------------------------------------------------------------------


def smallest_distance(network: Any) -> float:
    """log10 of the largest number that the smallest distance of two ids can be."""
    flint.ctx.prec = 6000
    layer = network.network.attentions[0]
    key, query, value, output = (
        t.detach().numpy() for t in (layer.key[0], layer.query[0], layer.value[0], layer.output)
    )
    seen_by = network.contexts.visible
    states: dict[Any, list[Any]] = {}
    for row in network.contexts.tokens.tolist():
        for place, token in enumerate(row):
            if token < 0:
                continue
            seen = [t for k, t in enumerate(row) if t >= 0 and (seen_by is None or seen_by[place][k])]
            counts = Counter(seen)
            share = int(np.gcd.reduce(list(counts.values())))
            context = token, tuple(sorted((t, c // share) for t, c in counts.items()))
            if context not in states:
                states[context] = _id(network.contexts.vocabulary, token, counts, key, query, value, output)
    best = flint.arb("inf")
    for one, other in combinations(states.values(), 2):
        square = sum(((a - b) ** 2 for a, b in zip(one, other, strict=True)), flint.arb(0))
        best = best.min(square.upper())
    return float((best.log() / flint.arb(10).log() / 2).upper()) if best > 0 else -float("inf")


def _id(vocabulary: np.ndarray, token: int, counts: Counter[int], *matrices: np.ndarray) -> list[Any]:
    """x + W_O W_V X softmax(..) of one place, in balls."""
    key, query, value, output = matrices
    x = [flint.arb(v) for v in vocabulary[token].tolist()]
    asked = _times(query, x)
    keys = {t: [flint.arb(v) for v in vocabulary[t].tolist()] for t in counts}
    logits = {t: sum((a * b for a, b in zip(asked, _times(key, keys[t]), strict=True)), flint.arb(0)) for t in counts}
    top = max(logits.values(), key=lambda ball: float(ball.mid()))
    weights = {t: counts[t] * (logits[t] - top).exp() for t in counts}
    total = sum(weights.values(), flint.arb(0))
    mean = [
        sum((weights[t] * _times(value, keys[t])[i] for t in counts), flint.arb(0)) / total for i in range(len(value))
    ]
    return [a + b for a, b in zip(x, _times(output, mean), strict=True)]


def _times(matrix: np.ndarray, vector: list[Any]) -> list[Any]:
    return [sum((flint.arb(a) * b for a, b in zip(row, vector, strict=True)), flint.arb(0)) for row in matrix.tolist()]


def largest_miss(network: Any, rng: np.random.Generator) -> float:
    """|out - label| at every place, every sum in three orders."""
    state = {name: tensor.detach().numpy() for name, tensor in network.network.state_dict().items()}
    worst = 0.0
    for _ in range(3):
        for row, inputs, classes in zip(
            network.contexts.tokens, network.inputs, network.contexts.class_of, strict=True
        ):
            real = np.flatnonzero(row >= 0)
            X = inputs[real] + (state["position"][real] if "position" in state else 0.0)
            for k, place in enumerate(real):
                seen = np.arange(len(real))
                if network.contexts.visible is not None:
                    seen = np.flatnonzero(network.contexts.visible[place][real])
                out = _place(state, X[k], X[rng.permutation(seen)], rng)
                miss = np.abs(out - network.labels[classes[place]])
                worst = max(worst, float(np.nan_to_num(miss, nan=np.inf).max()))
    return worst


def _place(state: dict[str, np.ndarray], x: np.ndarray, seen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    layer = "attentions.0."
    axes = rng.permutation(len(x))

    def times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
        return np.array([sum(row[i] * vector[i] for i in axes) for row in matrix])

    asked = times(state[layer + "query"][0], x)
    logits = np.array([sum(a * b for a, b in zip(asked, times(state[layer + "key"][0], t), strict=True)) for t in seen])
    weights = np.exp(logits - logits.max())
    weights /= weights.sum()
    mean = sum(w * times(state[layer + "value"][0], t) for w, t in zip(weights, seen, strict=True))
    H = x + np.array([sum(a * b for a, b in zip(row, mean, strict=True)) for row in state[layer + "output"]])
    units = rng.permutation(len(state["readout.maps.0.bias"]))
    first, bias = state["readout.maps.0.weight"][units], state["readout.maps.0.bias"][units]
    hidden = np.maximum(np.array([sum(row[i] * H[i] for i in axes) for row in first]) + bias, 0.0)
    added = np.array(
        [sum(row[units[j]] * hidden[j] for j in range(len(units))) for row in state["readout.maps.1.weight"]]
    )
    return H + added + state["readout.maps.1.bias"]


def largest_deviation(network: Any) -> float:
    """The executed path against gradient descent in balls."""
    flint.ctx.prec = 600
    arb = flint.arb
    x = [[arb(v) for v in row] for row in network.problem.x.tolist()]
    y, w = ([arb(v) for v in t.tolist()] for t in (network.problem.y, network.problem.w0))
    eta, ridge, n = arb(network.eta), arb(network.ridge), len(y)
    slope: dict[str, Callable[[Any, Any], Any]] = {
        "squared": lambda s, t: s - t,
        "logistic": lambda s, t: -t / (1 + (t * s).exp()),
        "logcosh": lambda s, t: (s - t).tanh(),
        "huber": lambda s, t: (s - t).max(arb(-1)).min(arb(1)),
    }
    worst = 0.0
    for executed in network.run(network.problem).path[1:].tolist():
        scores = [sum((a * row[i] for a, row in zip(w, x, strict=True)), arb(0)) for i in range(n)]
        slopes = [slope[network.loss.name](s, t) for s, t in zip(scores, y, strict=True)]
        steps = [sum((row[i] * slopes[i] for i in range(n)), arb(0)) / n for row in x]
        w = [a - eta * (step + ridge * a) for a, step in zip(w, steps, strict=True)]
        distance = sum(((arb(a) - b) ** 2 for a, b in zip(executed, w, strict=True)), arb(0)).sqrt()
        worst = max(worst, float(distance.lower())) if distance.is_finite() else worst
    return worst


def built_miss(network: Any, header: Header, rng: np.random.Generator) -> float:
    target = parse(header["target"])
    low, high = target.domain
    X = np.concatenate([rng.uniform(low, high, size=(200, header["T"], target.dim)),
                        rng.choice([low, high], size=(200, header["T"], target.dim))])  # fmt: skip
    with torch.no_grad():
        out = network(torch.from_numpy(X)).numpy()
    miss = np.abs(out - target(X)).reshape(len(X), -1).max(1)
    return float(np.nan_to_num(miss, nan=np.inf).max())


# one file -------------------------------------------------------------------------------------------------------------


def judged(kind: str, path: Path, header: Header, rng: np.random.Generator) -> dict[str, Any]:
    """What `certify` says, and whether the truth breaks it."""
    try:
        network = load(path)
        own = kind in trained.GROUPS
        found = trained.certified(kind, network) if own else certify(network, seconds=0.01)
    except InfoFlowError as refusal:
        return {"answer": "refused", "words": str(refusal)[:200], "failed": "\n" in str(refusal)}
    if own and found.bound is not None:  # also where an attack broke it: a bound is a bound
        seen = trained.truth(kind, network, header, rng)
        words = f"bound {found.bound!r}, truth {seen!r}"
        failed = seen is not None and trained.broken(kind, found.bound, seen)
        failed = failed or trained.misread(kind, network, header, rng)
        return {"answer": "bound", "words": words, "failed": failed}
    if found.reasons or found.bound is None:
        return {"answer": "nothing proved", "words": found.why_not[0][:200], "failed": False}
    if kind == "map":
        truth = smallest_distance(network)
        broken = truth < min(found.bound, 300.0) - 1e-9 and found.bound > RESOLVED
    elif kind == "memoriser":
        with np.errstate(all="ignore"):
            truth = largest_miss(network, rng)
        broken = truth > found.bound
    elif kind == "descent":
        truth = largest_deviation(network)
        broken = truth > found.bound
    else:
        truth = built_miss(network, header, rng)
        broken = truth > found.bound
    answer = "bound within what was asked" if found.holds else "bound above what was asked"
    return {"answer": answer, "words": f"bound {found.bound!r}, truth {truth!r}", "failed": bool(broken)}


def lied(number: int, seed: int, originals: dict[str, Path], path: Path) -> dict[str, Any]:
    rng = np.random.default_rng([seed, number])
    name = sorted(originals)[number % len(originals)]
    group = {**dict.fromkeys(MAPS, "map"), **dict.fromkeys(MEMORISERS, "memoriser"), **dict.fromkeys(BUILT, "scales"),
             **dict.fromkeys(DESCENTS, "descent"), **{each: each for each in trained.GROUPS}}[name]  # fmt: skip
    kind, tensors, header = files.read(originals[name])
    tensors, header = {k: v.clone() for k, v in tensors.items()}, json.loads(json.dumps(header))
    if group in trained.GROUPS:
        trained.redrawn(rng, tensors)
    lies = [LIES[group][int(rng.integers(len(LIES[group])))] for _ in range(int(rng.choice([1, 1, 2, 3])))]
    for lie in lies:
        lie(rng, tensors, header)
    files.write(path, kind, tensors, header)
    try:
        said = judged(group, path, header, rng)
    except Exception as error:
        said = {"answer": "traceback", "words": "".join(traceback.format_exception(error)[-3:]), "failed": True}
    return {"file": number, "group": group, "lies": [lie.__name__ for lie in lies], **said}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "lies.json")
    options = parser.parse_args()
    answers = []
    with tempfile.TemporaryDirectory() as folder, Progress("lies", options.files) as bar:
        originals = {name: MAKERS[name](Path(folder) / f"{name}.safetensors")
                     for name in (*MAPS, *MEMORISERS, *DESCENTS, *BUILT)}  # fmt: skip
        originals |= {name: trained.original(name, Path(folder) / f"{name}.safetensors") for name in trained.GROUPS}
        for number in range(options.files):
            answers.append(lied(number, options.seed, originals, Path(folder) / "lie.safetensors"))
            if answers[-1]["failed"]:
                print(answers[-1], flush=True)
            bar.update(len(answers), f"{sum(a['failed'] for a in answers)} failed")
    table: dict[str, Counter[str]] = {}
    for one in answers:
        row = table.setdefault(one["group"], Counter())
        row.update(["files", "failed" if one["failed"] else one["answer"]])
    report = {"files": len(answers), "failed": sum(a["failed"] for a in answers), "groups": table}
    print(json.dumps(report, indent=1))
    write_json(options.out, {**report, "seed": options.seed, "provenance": provenance(("torch", "python-flint"))})


if __name__ == "__main__":
    main()
