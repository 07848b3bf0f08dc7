"""Make the networks of a benchmark: compile, plant circuits, disguise, check the truth again, write.

DIR/asked.json                   count, seed and a fingerprint of the salt; written first
DIR/index.json                   what is there: numbers, seed, whether a part is hidden; written last
DIR/networks/0007.safetensors    the model (float32), a plain `infoflow.nn.Transformer`
DIR/inputs/0007.safetensors      X (64, T, d) to run it on; where there are symbols, `symbols` and the number of
                                 `logits` (the last outputs, one for each symbol); `quantities`, the numbers whose
                                 directions are asked for, at every token
DIR/truth/0007.json              the truth; not written for the hidden part
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from infoflow.apart import end_with_parent, processes
from infoflow.cost import cores
from infoflow.errors import InfoFlowError
from infoflow.files import atomic_path, write_json
from infoflow.nn import Transformer
from infoflow.probes.benchmark import nearly
from infoflow.probes.benchmark.catalogue import EPS, FIFTH, SMALL, Order, number_of, orders
from infoflow.probes.benchmark.circuits import Circuit, draw, symbols
from infoflow.probes.benchmark.compiled import Compiled, compiled, sample
from infoflow.probes.benchmark.disguise import disguised
from infoflow.probes.benchmark.engine import Engine, nmse
from infoflow.probes.benchmark.plant import Planting
from infoflow.probes.benchmark.truth import OUT, Direction, Edge, Node, Truth, join, widened
from infoflow.probes.benchmark.union import union
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.reading import json_of

DOCUMENTS = 64
WORTH = 32  # networks from which on more processes are worth their start
CHECKED = 256  # inputs that strengths, agreements and errors are measured on
PURE = 0.15  # share of the networks without planted circuits, where the disguise needs none
OTHERS = ("position", "sink", "top")  # circuits beside those that only tokens can ask for, drawn
INSIDE, OUTSIDE = 0.2, 0.02  # attention mass of a token that the output holds, and of one that it does not
NEARLY = ("noise", "fine-tuned", "float16")
NEED_CIRCUITS = ("backup", "two jobs", "superposed")
SPEAKING = 0.35  # share of the networks with circuits that have a logit for every symbol, of VOCABULARY symbols
VOCABULARY = 4
MOVERS = ("copying", "copying", "suppressing", "translating")


@dataclass
class Made:
    """A network with its truth and what a method may see."""

    number: int
    network: Transformer
    truth: Truth
    tensors: dict[str, Tensor]
    hidden: bool


@dataclass
class Base:
    """A network before its disguise: how to draw inputs, and what it should compute."""

    network: Transformer
    truth: Truth
    draw: Callable[[int, int], np.ndarray]
    function: Callable[[np.ndarray], np.ndarray]
    select: tuple[Edge, ...] = ()  # edges that only choose what is read
    symbols: int = 0  # of the circuits, one-hot coordinates that end in front of the last
    logits: int = 0  # the last outputs, one for each symbol


def base(order: Order) -> Base:
    """The compiled target with its planted circuits beside it."""
    g, rng = order.group, np.random.default_rng(order.seed)
    eps = float(rng.choice(EPS)) if g.name not in SMALL else min(EPS)
    made = compiled(g.spelling(int(rng.integers(1000))), g.T, eps, g.heads, g.causal, g.placed)
    about = {
        "target": made.target.spelling, "family": g.name, "T": g.T, "layout": list(g.heads), "causal": g.causal,
        "eps": eps, "disguise": order.disguise, "strength": order.strength, "hidden": order.hidden,
    }  # fmt: skip
    made.network.header = {}
    truth = replace(made.truth, about=about)
    if order.disguise not in NEED_CIRCUITS and rng.random() < PURE:
        return Base(
            made.network,
            truth,
            lambda n, s: sample(made.target, n, g.T, np.random.default_rng(s)),
            _shaped(made),
            made.select,
        )
    return _planted(order, made, truth, rng)


def _shaped(made: Compiled) -> Callable[[np.ndarray], np.ndarray]:
    def function(X: np.ndarray) -> np.ndarray:
        y = np.asarray(made.target(X))
        return y if y.ndim > 1 else y[:, None]

    return function


def _planted(order: Order, made: Compiled, truth: Truth, rng: np.random.Generator) -> Base:
    g, layers = order.group, len(order.group.heads)
    speaking = rng.random() < SPEAKING
    copies = int(rng.choice([c for c in (2, 3, 4) if g.T % c == 0 and g.T // c >= 4]))
    written = symbols(g.T, g.T // VOCABULARY if speaking else copies, order.disguise == "superposed", rng)
    circuits = draw(layers, written, g.causal, rng, _kinds(order, speaking, rng))
    if order.disguise == "backup":
        circuits += _backup(circuits, layers)
    if not circuits:
        circuits = [Circuit("sink", layers - 1, 9.0, 0)]
    planting = Planting(circuits, written, layers, made.network.config.encoder, g.causal)

    def draws(number: int, seed: int) -> np.ndarray:
        own = np.random.default_rng(seed)
        return np.concatenate([sample(made.target, number, g.T, own), written.sample(number, own)], axis=-1)

    target, d = _shaped(made), made.target.dim
    some = draws(CHECKED, number_of("gains", order.seed))
    gains = planting.gains(some[..., d:], float(target(some[..., :d])[:, 0].std()))
    network = union(made.network, planting.write(gains))

    def function(X: np.ndarray) -> np.ndarray:
        y, more = np.array(target(X[..., :d])), planting.function(X[..., d:], gains)
        y[:, 0] += more[:, 0]
        return np.concatenate([y, more[:, 1:]], axis=1)

    known = widened(
        join(truth, planting.truth(gains), made.network.config.heads, made.network.config.embed), network.config.embed
    )
    return Base(network, known, draws, function, made.select, written.count, planting.spoken)


def _kinds(order: Order, speaking: bool, rng: np.random.Generator) -> list[str]:
    """Circuits to plant: those that only tokens can ask for always, of the others some."""
    found = ["self", "next", "mixed", "mixed", "duplicate"]
    found += ["induction"] if len(order.group.heads) > 2 and order.disguise != "superposed" else ["previous"]
    found += ["next"] if rng.random() < 0.5 else []
    others = rng.permutation(OTHERS)[: int(rng.integers(1, 4))].tolist()
    found += [kind for kind in others if not speaking or kind == "top"]  # movers look at places themselves
    found += ["two_jobs"] if order.disguise == "two jobs" else []
    return found + (list(MOVERS) if speaking else [])


def _backup(circuits: list[Circuit], layers: int) -> list[Circuit]:
    """A copy, with its own strength of logits, of the first circuit between tokens."""
    for n, c in enumerate(circuits):
        if c.layer < layers - 1 and c.kind not in ("global", "two_jobs", "before", "induction"):
            return [replace(c, role="backup", stands_in=n)]
    return []


def make(order: Order) -> Made:
    """One network of the benchmark, as it will be stored (float32)."""
    start = base(order)
    X = start.draw(CHECKED, number_of("checked", order.seed))
    rng = np.random.default_rng(number_of("disguise", order.seed))
    network, truth = start.network, start.truth
    tensors = _inputs(start, order)
    sets = {} if start.symbols else {"sets": _sets(start, tensors["X"])}
    truth = replace(truth, directions=_asked(truth, tensors), about={**truth.about, **sets})
    if order.disguise != "plain":
        decoys = int(rng.integers(2, 5)) if order.disguise == "decoys" else int(order.disguise in NEARLY)
        network, truth = disguised(network, truth, decoys, int(rng.integers(1, 3)), int(rng.integers(2**31)))
    before, tokens = network.float(), torch.from_numpy(X).float()
    if order.disguise in NEARLY:
        network = _nearly(order, before, tokens[: CHECKED // 2])
        truth = nearly.checked(before, network, truth, tokens[CHECKED // 2 :])
    return Made(order.number, network, _errors(truth, before, network, start, X), tensors, order.hidden)


def _nearly(order: Order, before: Transformer, tokens: Tensor) -> Transformer:
    seed = number_of("nearly", order.seed) % 2**31
    if order.disguise == "noise":
        return nearly.noisy(before, tokens, order.strength, seed)
    if order.disguise == "fine-tuned":
        return nearly.tuned(before, tokens, order.strength, seed)
    return nearly.rounded(before)


def _errors(truth: Truth, before: Transformer, network: Transformer, start: Base, X: np.ndarray) -> Truth:
    """The certified error of the network as built and, measured on the disguised one as it is stored, the largest
    error and the NMSE against the function, and the NMSE the disguise left."""
    tokens, wanted = torch.from_numpy(X).float(), torch.from_numpy(start.function(X))
    y, y0 = nearly.outputs(network, tokens).double(), nearly.outputs(before, tokens).double()
    error = dict(truth.error)
    parts = [error.pop("certified"), error.pop("planted_bound", 0.0)]
    certified = None if any(part is None for part in parts) else float(sum(p for p in parts if p is not None))
    measured = {
        "certified_before_disguise": certified,
        "certified_target": parts[0],
        "largest_measured": float((y - wanted).abs().max()),
        "nmse": nmse(y, wanted),
        "nmse_left_by_disguise": nmse(y, y0),
    }
    return replace(truth, error=measured)


def _inputs(start: Base, order: Order) -> dict[str, Tensor]:
    X = start.draw(DOCUMENTS, number_of("inputs", order.seed))
    found = {"X": torch.from_numpy(X).float()}
    if start.symbols:
        found["symbols"] = torch.from_numpy(X[..., -1 - start.symbols : -1].argmax(-1).copy())
        found["logits"] = torch.tensor(start.logits)
    with torch.no_grad():
        seen = Engine(start.network).run(torch.from_numpy(X))
    kept = [seen.streams[d.layer][:, : X.shape[1]] @ torch.from_numpy(d.vector) for d in start.truth.directions]
    found["quantities"] = (torch.stack(kept, -1) if kept else torch.zeros(*X.shape[:2], 0)).float()
    return found


@torch.no_grad()
def _sets(start: Base, X: Tensor) -> list[list[int] | None]:
    """Per document the positions (1-based) whose tokens the output holds: from the read-out back along the edges, with
    the attention mass of the whole way. A token is inside from INSIDE on and outside up to OUTSIDE; a document with a
    token between the two is a near tie and is not asked (None). Tokens that only choose which one is read do not
    count."""
    seen = Engine(start.network).run(X.double())
    T = X.shape[1]
    found = torch.zeros(len(X), T, dtype=torch.float64)

    def follow(node: Node, mass: Tensor) -> None:
        weights = seen.weights[node[0]][:, node[1]]
        keys = torch.einsum("bq,bqk->bk", mass[:, -weights.shape[1] :], weights)
        found.copy_(torch.maximum(found, keys))
        for feeder, receiver in start.truth.edges:
            if receiver == node and (feeder, receiver) not in start.select:
                follow(feeder, torch.cat([keys, torch.zeros(len(X), 1)], 1))

    cls = torch.zeros(len(X), T + 1, dtype=torch.float64)
    cls[:, T] = 1.0
    for feeder, receiver in start.truth.edges:
        if receiver == OUT:
            follow(feeder, cls)
    clear = ((found >= INSIDE) | (found <= OUTSIDE)).all(1).tolist()
    return [
        (row.nonzero()[:, 0] + 1).tolist() if known else None for row, known in zip(found >= INSIDE, clear, strict=True)
    ]


def _asked(truth: Truth, tensors: dict[str, Tensor]) -> tuple[Direction, ...]:
    """Directions that hold something at the tokens: the CLS' own are not asked for."""
    rows = tensors["quantities"].flatten(0, 1).double()
    varies = (rows - rows.mean(0)).square().mean(0).sqrt() > 1e-4
    tensors["quantities"] = tensors["quantities"][..., varies]
    return tuple(d for d, keep in zip(truth.directions, varies.tolist(), strict=True) if keep)


def write(made: Made, folder: Path) -> None:
    name = f"{made.number:04d}"
    made.network.save(folder / "networks" / f"{name}.safetensors")
    asked = [[d.layer + 1, d.name] for d in made.truth.directions]
    with atomic_path(folder / "inputs" / f"{name}.safetensors") as temporary:
        plain = {key: value.contiguous() for key, value in made.tensors.items()}
        save_file(plain, str(temporary), metadata={"quantities": json.dumps(asked)})
    if not made.hidden:
        write_json(folder / "truth" / f"{name}.json", made.truth.to_json())


def _job(task: tuple[Order, Path]) -> dict[str, Any]:
    order, folder = task
    torch.set_num_threads(1)
    made = make(order)
    write(made, folder)
    return {"number": order.number, "hidden": order.hidden}


def make_benchmark(folder: Path, count: int, seed: int, salt: str | None, first: int | None = None) -> dict[str, Any]:
    """Make every network (or the `first` of them) that is not there yet; the index is written last."""
    asked = orders(count, seed, salt)
    if len(asked) < count:
        raise InfoFlowError(
            f"expected at most {len(asked)} networks of {len({o.group for o in asked})} groups, got {count}."
        )
    asked = asked[:first]
    _claim(folder, {"version": 1, "count": count, "seed": seed, "salt": salt and f"{number_of('salt', salt):x}"})
    tasks = [(order, folder) for order in asked if not _there(order, folder)]
    with Progress("planting", len(asked), before=len(asked) - len(tasks)) as bar:
        for done, _ in enumerate(_mapped(tasks), len(asked) - len(tasks) + 1):
            bar.update(done)
    index = {
        "version": 1, "count": count, "made": len(asked), "seed": seed, "salted": salt is not None,
        "hidden": [o.number for o in asked if o.hidden], "every": FIFTH, "provenance": provenance(),
    }  # fmt: skip
    write_json(folder / "index.json", index)
    return index


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    """Say at once whose folder this is: a call with another seed, count or salt must not mix its networks in."""
    path = folder / "asked.json"
    if path.exists() and json_of(path, "what a benchmark was asked for") != wanted:
        raise InfoFlowError(
            f"expected an empty folder or one of the same count, seed and salt, {folder} holds another benchmark; "
            "give another folder."
        )
    write_json(path, wanted)


def _there(order: Order, folder: Path) -> bool:
    name = f"{order.number:04d}"
    parts = [folder / "networks" / f"{name}.safetensors", folder / "inputs" / f"{name}.safetensors"]
    parts += [] if order.hidden else [folder / "truth" / f"{name}.json"]
    return all(part.is_file() for part in parts)


def _mapped(tasks: list[tuple[Order, Path]]) -> Iterator[Any]:
    """In as many processes as there are cores."""
    if len(tasks) < WORTH or cores() < 2:
        yield from map(_job, tasks)
        return
    with processes() as spawn, ProcessPoolExecutor(cores(), spawn, end_with_parent) as pool:
        yield from pool.map(_job, tasks, chunksize=4)
