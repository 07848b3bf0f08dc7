"""The compiled part of a planted network: built with a certificate; its layout is the truth about its heads."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from infoflow.architecture import Architecture
from infoflow.construct.builders import build
from infoflow.flow.jobs import Job
from infoflow.flow.layout import Layout, lay_out
from infoflow.nn import States, Transformer
from infoflow.probes.benchmark.truth import OUT, Direction, Edge, Head, Node, Truth
from infoflow.targets.named import parse
from infoflow.targets.target import Target

TIED = 0.8  # of the largest weight
NARROW = 0.5  # the least side of a document's box, of the whole


@dataclass(frozen=True)
class Compiled:
    target: Target
    network: Transformer
    truth: Truth
    select: tuple[Edge, ...]  # edges that decide which token is read and bring nothing of their own to the output


def sample(target: Target, number: int, T: int, rng: np.random.Generator) -> Float[np.ndarray, "number T d"]:
    """Inside the box the certificate speaks of: every document is uniform on a smaller box of its own.

    Its sides are NARROW to 1 of the whole, anywhere inside. On the whole box extrema over many tokens hardly differ
    between documents, and there would be nothing to explain.
    """
    low, high = (np.broadcast_to(np.asarray(edge, dtype=np.float64), target.dim) for edge in target.domain)
    side = rng.uniform(NARROW, 1.0, (number, 1, 1)) * (high - low)
    corner = low + rng.uniform(0.0, 1.0, (number, 1, target.dim)) * (high - low - side)
    inside = rng.uniform(0.0, 1.0, (number, T, target.dim))
    if target.spelling.startswith("closest_pair"):
        inside = _apart(number, T, target.dim, rng)
    return np.asarray(corner + side * inside)


def _apart(number: int, T: int, d: int, rng: np.random.Generator) -> Float[np.ndarray, "number T d"]:
    """Points of a jittered grid of the unit box in random order: no two are as close as independent ones would be."""
    steps = int(np.ceil(T ** (1 / d)))
    axes = np.meshgrid(*[(np.arange(steps) + 0.5) / steps] * d)
    grid = np.stack([axis.ravel() for axis in axes], -1)
    order = np.argsort(rng.random((number, len(grid))), axis=1)[:, :T]
    return np.asarray(grid[order] + rng.uniform(-0.4, 0.4, (number, T, d)) / steps)


def compiled(spelling: str, T: int, eps: float, heads: tuple[int, ...], causal: bool, placed: bool) -> Compiled:
    """Build the target on these heads; `placed` says that it needs position codes."""
    target = parse(spelling)
    arch = Architecture(heads, positions="additive" if placed else "none", mask="causal" if causal else "none")
    network: Any = build(target, T, eps, arch=arch)
    layout = lay_out(target, T, arch)
    jobs = [job for jobs in layout.jobs for job in jobs]
    choosing = [job for job in jobs if job.message is not None and layout.form.terms[job.term].reads is not None]
    return Compiled(target, network, _truth(network, layout, target, T), tuple(_edges(jobs, layout, choosing)))


def _truth(network: Transformer, layout: Layout, target: Target, T: int) -> Truth:
    X = torch.from_numpy(sample(target, 64, T, np.random.default_rng(0)))
    fixed, tied = _fixed_rows(network, layout, X), _tied_rows(network, X)
    jobs = [job for jobs in layout.jobs for job in jobs]
    heads: dict[Node, Head] = {}
    for job in jobs:
        node = (job.layer, job.head)
        place = (job.layer, job.head, 1 if job.message is None else 0)
        own = ("position",) if fixed[place[0]][place[1:]] else ("max", "top") if tied[place[0]][place[1:]] else ("max",)
        before = heads.get(node)
        labels = own if before is None else tuple(dict.fromkeys((*before.labels, *own)))
        heads[node] = Head(labels, job.name if before is None else f"{before.job}; {job.name}", "computes")
    for l, h in enumerate(network.config.heads):
        for i in range(h):
            heads.setdefault((l, i), Head(("global",), "nothing", "idle"))
    bound = network.header["certificate"]["bound"]
    return Truth(heads, tuple(_edges(jobs, layout)), _directions(layout), {"certified": float(bound)})


def _fixed_rows(network: Transformer, layout: Layout, X: torch.Tensor) -> list[np.ndarray]:
    """Per layer (heads x 2): do all tokens ask for the same key on every input; does the CLS."""
    found = []
    for weights in _weights(network, X):
        best = weights.argmax(-1)  # (documents, heads, rows)
        same = (best == best[:1]).all(0)
        found.append(torch.stack([same[:, :-1].all(-1) if same.shape[1] > 1 else same[:, -1], same[:, -1]], -1).numpy())
    for job in (job for jobs in layout.jobs for job in jobs):  # a sum of fixed positions has several equal keys
        if job.message is None and layout.form.terms[job.term].positions is not None:
            found[job.layer][job.head, 1] = True
    return found


def _tied_rows(network: Transformer, X: torch.Tensor) -> list[np.ndarray]:
    """Per layer (heads x 2): do two keys share the largest weight at most tokens; for the CLS. Both tokens of the best
    pair of a symmetric score attain it, so that a read of it sees a tie: `max` and `top` are both right then."""
    found = []
    for weights in _weights(network, X):
        two = weights.topk(2, dim=-1).values
        close = (two[..., 1] / two[..., 0] >= TIED).double()  # (documents, heads, rows)
        tokens = close[..., :-1] if close.shape[-1] > 1 else close
        found.append(torch.stack([tokens.mean((0, 2)), close[..., -1].mean(0)], -1).numpy() >= 0.5)
    return found


def _weights(network: Transformer, X: torch.Tensor) -> list[torch.Tensor]:
    """The attention weights of every layer, (documents, heads, rows, keys)."""
    states = States()
    with torch.no_grad():
        network(X, states=states)
    return states.weights


def _edges(jobs: list[Job], layout: Layout, senders: list[Job] | None = None) -> list[Edge]:
    """A message into vertex p feeds whoever uses the score of p: the message to its parent, or the read of a root."""
    edges: list[Edge] = []
    for job in jobs if senders is None else senders:
        node = (job.layer, job.head)
        if job.message is None:
            edges.append((node, OUT))
            continue
        for other in jobs:
            uses = layout.form.terms[other.term].root if other.message is None else other.message.child
            if other.term == job.term and uses == job.message.parent and other.layer > job.layer:
                edges.append((node, (other.layer, other.head)))
    return sorted(set(edges))


def _directions(layout: Layout) -> tuple[Direction, ...]:
    """Scores that messages have changed and values that were read, where they are held before an attention."""
    found = []
    for l, state in enumerate(layout.states):
        for j in (*state.slots.values(), *state.values.values()):
            found.append(Direction(l, state.names[j], np.eye(layout.sizes[l])[j]))
    return tuple(found)
