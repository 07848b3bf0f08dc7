"""What people read off a network instead of intervening, each as a score for every source of the output.

    argmax      1 for the sources that are reached by following, in every head, the key of largest weight
    rollout     the row of the output in prod_l (A_l + I) / 2, A_l the mean weights of layer l (Abnar and Zuidema, 2020)
    flow        the largest flow from the source to the output in the same graph, capacities A_l / 2 and 1/2 (the same)
    gradient    |<d y_u / d x_0(s), x_0(s)>|, x_0 the stream in front of the first layer, u a random direction of the
                output; the mean over a few directions

They cost one pass (or a few). How well they find the content set is their precision and recall against interventions.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.probes.effects import Stage
from infoflow.probes.rerun import Rerun

UNITS = 1 << 20  # a capacity of one, as an integer
DIRECTIONS = 8
NAMES = ("argmax", "rollout", "flow", "gradient")
SHARE = 0.1  # of the largest score: from here on a source is said to matter


@dataclass(frozen=True)
class ProxyScore:
    """A proxy against the content set: at a share of its largest score, and as a ranking."""

    precision: float
    recall: float
    average_precision: float


def proxies(stage: Stage, read_row: int = -1) -> dict[str, Float[np.ndarray, " T"]]:
    """Scores of every source for the output, which is read at row `read_row` (the CLS, or the last token)."""
    graphs = attention_graphs(stage)
    return {
        "argmax": _followed(stage, read_row),
        "rollout": _rollout(graphs, read_row)[: stage.T],
        "flow": _flow(graphs, read_row)[: stage.T],
        "gradient": _gradient(stage)[: stage.T],
    }


def attention_graphs(stage: Stage) -> list[Float[np.ndarray, "rows rows"]]:
    """(A_l + I) / 2 over all rows; a row that only the CLS could ask is the last."""
    graphs = []
    for weights, rows in zip(stage.base.weights, stage.rows, strict=True):
        mean = weights[0].double().mean(0).cpu().numpy()
        Q, K = mean.shape
        graph = np.eye(rows)
        place = slice(rows - 1, rows) if Q == 1 else slice(0, Q)
        graph[place, :K] += mean
        graphs.append(graph / graph.sum(1, keepdims=True))
    return graphs


def _followed(stage: Stage, row: int) -> Float[np.ndarray, " T"]:
    sets = [np.eye(stage.rows[0], stage.T, dtype=bool)]
    for weights in stage.base.weights:
        best = weights[0].argmax(-1).cpu().numpy()  # (h, Q)
        new = sets[-1].copy()
        queries = [len(new) - 1] if best.shape[1] == 1 else range(best.shape[1])
        for column, t in enumerate(queries):
            new[t] |= sets[-1][best[:, column]].any(0)
        sets.append(new)
    return sets[-1][row].astype(float)


def _rollout(graphs: list[np.ndarray], row: int) -> Float[np.ndarray, " rows"]:
    reached = graphs[-1][row]
    for graph in reversed(graphs[:-1]):
        reached = reached @ graph
    return reached


def _flow(graphs: list[np.ndarray], row: int) -> Float[np.ndarray, " rows"]:
    """One maximum flow per source; nodes are (layer, row), edges run from a key to the one that reads it."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import maximum_flow

    rows, layers = len(graphs[0]), len(graphs)
    starts, ends, sizes = [], [], []
    for layer, graph in enumerate(graphs):
        t, s = np.nonzero(graph)
        starts.append(layer * rows + s)
        ends.append((layer + 1) * rows + t)
        sizes.append(np.round(graph[t, s] * UNITS))
    capacity = np.concatenate(sizes).astype(np.int32)
    nodes = (layers + 1) * rows
    network = coo_array((capacity, (np.concatenate(starts), np.concatenate(ends))), shape=(nodes, nodes)).tocsr()
    sink = layers * rows + row % rows
    found = [maximum_flow(network, source, sink).flow_value / UNITS for source in range(rows)]
    return np.array(found)


def _gradient(stage: Stage) -> Float[np.ndarray, " rows"]:
    rerun, generator = stage.rerun, torch.Generator().manual_seed(0)
    total = np.zeros(stage.rows[0])
    width = stage.base.output.shape[-1]
    with torch.enable_grad():
        leaf = stage.base.streams[0].detach().requires_grad_(True)
        output = _graph_of(rerun, stage, leaf)
        count = 1 if width == 1 else DIRECTIONS
        for _ in range(count):
            direction = torch.randn(width, generator=generator).to(output) if width > 1 else torch.ones(1).to(output)
            (slope,) = torch.autograd.grad((output[0] * direction).sum(), leaf, retain_graph=True)
            total += (slope * leaf).sum(-1)[0].abs().double().detach().cpu().numpy() / count
    return total


def _graph_of(rerun: Rerun, stage: Stage, leaf: Tensor) -> Tensor:
    """The output as a function of the stream in front of the first layer."""
    rerun.frozen, rerun.patched, rerun.kept = None, (0, leaf), ([], [], [], [])
    return rerun.read(stage.document.call(rerun.model))


def judged(score: Float[np.ndarray, " T"], content: Bool[np.ndarray, " T"]) -> ProxyScore:
    """Precision and recall of {score >= 10% of the largest}, and the average precision of the ranking by score."""
    said = score >= SHARE * score.max() if score.max() > 0 else np.zeros_like(content)
    hits = int((said & content).sum())
    return ProxyScore(
        hits / max(int(said.sum()), 1), hits / max(int(content.sum()), 1), average_precision(score, content)
    )


def average_precision(score: Float[np.ndarray, " T"], content: Bool[np.ndarray, " T"]) -> float:
    """sum_n (R_n - R_{n-1}) P_n over the distinct scores, falling: sources of equal score are taken together."""
    if not content.any():
        return 1.0
    order = np.argsort(-score, kind="stable")
    ranked, hits = score[order], np.cumsum(content[order])
    ends = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
    recall = hits[ends] / hits[-1]
    return float((np.diff(recall, prepend=0.0) * hits[ends] / (ends + 1)).sum())
