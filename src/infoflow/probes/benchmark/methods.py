"""Every method of the table as a function from a planted network to its answers (the form of `score`).

What needs no threshold has none; scores of heads and edges are thresholded by the caller, at a value chosen on networks
that are not scored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infoflow.probes.benchmark import effects, rivals
from infoflow.probes.benchmark.engine import Engine, Pass
from infoflow.probes.benchmark.read import PlantedNetwork
from infoflow.probes.benchmark.truth import OUT, Edge, Node
from infoflow.probes.modes import head_modes
from infoflow.probes.record import record
from infoflow.probes.row_labels import layered, row_labels

Answers = dict[str, dict[str, Any]]  # method -> answer
RIDGE = 1e-4
HALF = 0.5
DRAWN = 4  # other documents a token is taken from
PAIRED = 40  # documents for heads and edges: half of them give what the other half is patched with


@dataclass
class Seen:
    """One network with the two passes that every method of heads and edges shares."""

    network: PlantedNetwork
    engine: Engine
    clean: Pass
    other: Pass

    @classmethod
    def of(cls, network: PlantedNetwork) -> "Seen":
        engine = Engine(network.model)
        with torch.no_grad():
            return cls(network, engine, *effects.two_runs(engine, network.X[:PAIRED]))


def answers(network: PlantedNetwork) -> Answers:
    """All methods on one network."""
    seen = Seen.of(network)
    found: Answers = {}
    for method in (_modes, _heads_and_edges, _directions, _sets):
        for name, answer in method(seen).items():
            found.setdefault(name, {}).update(answer)
    return found


def _modes(seen: Seen) -> Answers:
    recording, layers = record(seen.network.model, seen.network.batch), seen.engine.layers
    return {
        "infoflow: row labels": {"modes": layered(row_labels(recording), layers)},
        "infoflow: head modes": {"modes": layered(head_modes(recording), layers)},
        "pattern heuristics": {"modes": [_heuristic(p) for p in seen.clean.weights]},
        "always max": {"modes": [["max"] * h for h in seen.engine.heads]},
    }


def _heuristic(p: Tensor) -> list[str]:
    """The usual rules on mean patterns: mass on a diagonal or the first token, entropy, one heavy key."""
    K = p.shape[-1]
    tokens = p[:, :, :K] if p.shape[2] > 1 else p
    mean = tokens.mean(0)  # (h, Q, K)
    entropy = -(tokens.clamp(min=1e-12).log() * tokens).sum(-1).mean((0, 2)) / torch.log(torch.tensor(float(K)))
    found = []
    for i in range(p.shape[1]):
        named = {"sink": float(mean[i, :, 0].mean())}
        if mean.shape[1] == K:
            for name, offset in (("self", 0), ("previous", -1), ("next", 1)):
                named[name] = float(mean[i].diagonal(offset).mean())
        best = max(named, key=named.__getitem__)
        heaviest = float(mean[i].amax(-1).mean())
        largest = float(tokens[:, i].amax(-1).mean())
        if named[best] >= HALF:
            found.append(best)
        elif float(entropy[i]) >= 0.9:
            found.append("global")
        elif heaviest >= HALF:
            found.append("position")
        else:
            found.append("max" if largest >= HALF else "top" if float(entropy[i]) < HALF else "mixed")
    return found


def _heads_and_edges(seen: Seen) -> Answers:
    engine, clean, other = seen.engine, seen.clean, seen.other
    X = seen.network.X[: len(clean.output)]
    eap, ig = (rivals.attribution(engine, clean, other, integrated) for integrated in (False, True))
    tried = rivals.acdc(engine, clean, other)
    by_route = rivals.routes(engine, clean)
    return {
        "infoflow: interchange": _both(
            engine, effects.head_effects(engine, clean, other), effects.edge_effects(engine, clean, other)
        ),
        "zero ablation": _both(engine, rivals.ablation(engine, clean, mean=False), None),
        "mean ablation": _both(engine, rivals.ablation(engine, clean, mean=True), None),
        "causal gating": _both(engine, rivals.causal_gating(engine, clean, X), None),
        "EAP": _both(engine, _through(eap), eap),
        "EAP-IG": _both(engine, _through(ig), ig),
        "ACDC": _both(engine, _through(tried), tried),
        "information-flow routes": _both(engine, *by_route),
    }


def _through(edges: Mapping[Edge, float]) -> dict[Node, float]:
    """A head by its strongest edge to a receiver."""
    found: dict[Node, float] = {}
    for (sender, _), value in edges.items():
        found[sender] = max(found.get(sender, 0.0), value)
    return found


def _both(engine: Engine, heads: Mapping[Node, float], edges: Mapping[Edge, float] | None) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "matter": [[heads.get((l, i), 0.0) for i in range(h)] for l, h in enumerate(engine.heads)]
    }
    if edges is not None:
        answer["edges"] = [[_plain(a), _plain(b), value] for (a, b), value in edges.items()]
    return answer


def _plain(node: Node) -> Any:
    return "out" if node == OUT else [node[0] + 1, node[1] + 1]


def _directions(seen: Seen) -> Answers:
    """The quantity is regressed on the stream (a linear probe), or the stream on it, alone or with all of its layer."""
    asked, Q = seen.network.asked, seen.network.quantities.double()
    found: dict[str, list[Any]] = {"joint regression": [], "covariance": [], "linear probe": []}
    with torch.no_grad():
        run = seen.engine.run(seen.network.X)
    for number, (layer, _) in enumerate(asked):
        T = Q.shape[1]
        x = _centred(run.streams[layer - 1][:, :T].double().flatten(0, 1))
        same = [k for k, (l, _) in enumerate(asked) if l == layer]
        q = _centred(Q.flatten(0, 1)[:, same])
        own = q[:, same.index(number)]
        found["joint regression"].append(torch.linalg.lstsq(q, x).solution[same.index(number)].tolist())
        found["covariance"].append((own @ x).tolist())
        ridge = RIDGE * x.square().sum() / x.shape[1] * torch.eye(x.shape[1], dtype=torch.float64)
        found["linear probe"].append(torch.linalg.solve(x.T @ x + ridge, x.T @ own).tolist())
    return {name: {"directions": vectors} for name, vectors in found.items()} if asked else {}


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(0)


def _sets(seen: Seen) -> Answers:
    """Only where every token's part can be told: networks without circuits, whose averages hold all tokens."""
    if seen.network.symbols is not None:
        return {}
    X = seen.network.X
    with torch.no_grad():
        run = seen.engine.run(X)
    found = {
        "infoflow: content sets": _content_sets(seen.engine, X, run),
        "attention argmax": _argmax_sets(run),
        "rollout": _rollout(run) >= 0.1,
        "gradient x input": _gradient_times_input(seen.engine, X),
    }
    return {name: {"sets": [(row.nonzero()[:, 0] + 1).tolist() for row in inside]} for name, inside in found.items()}


@torch.no_grad()
def _content_sets(engine: Engine, X: Tensor, run: Pass, threshold: float = 0.01) -> Tensor:
    """Token s is inside when, with all patterns held, what stands there in other documents moves the output: by more
    than `threshold` of the sum of these movements over all tokens."""
    B, T, _ = X.shape
    moved = torch.zeros(B, T)
    for draw in range(1, DRAWN + 1):
        for s in range(T):
            changed = X.clone()
            changed[:, s] = X.roll(draw, 0)[:, s]
            x = engine.model.embed(changed)
            for l in range(engine.layers):
                x = engine.behind(l, x, _held(engine, l, x, run.weights[l]))
            moved[:, s] += (x - run.output).square().sum(-1)
    return moved >= threshold * moved.sum(1, keepdim=True).clamp(min=1e-30)


def _held(engine: Engine, l: int, x: Tensor, weights: Tensor) -> Tensor:
    """The sum of the contributions of layer l with these patterns."""
    layer = engine.layer(l)
    T, (h, n, _) = weights.shape[-1], layer.query.shape
    assert layer.value is not None
    values = torch.einsum("bte,hne->bhtn", x[:, :T], layer.value)
    return torch.einsum("bhqn,ehn->bqe", weights @ values, layer.output.view(-1, h, n))


def _argmax_sets(run: Pass) -> Tensor:
    """From the CLS down: the heaviest key of every head of every token reached."""
    B, T = run.weights[0].shape[0], run.weights[0].shape[-1]
    reached = torch.zeros(B, T, dtype=torch.bool)
    for p in reversed(run.weights):
        best = torch.zeros_like(p, dtype=torch.bool).scatter_(-1, p.argmax(-1, keepdim=True), True).any(1)
        rows = torch.cat([reached, torch.ones(B, 1, dtype=torch.bool)], 1)[:, -best.shape[1] :]
        reached = reached | (best & rows[..., None]).any(1)
    return reached


def _rollout(run: Pass) -> Tensor:
    """Attention rollout: the mean over heads, half of it the residual stream, multiplied through the layers."""
    B, T = run.weights[0].shape[0], run.weights[0].shape[-1]
    flow = torch.eye(T + 1).expand(B, -1, -1)
    for p in run.weights:
        mean = p.mean(1)
        if mean.shape[1] == 1:
            mean = torch.cat([torch.eye(T).expand(B, -1, -1), mean], 1)
        full = torch.cat([mean, torch.zeros(B, T + 1, 1)], 2)
        flow = (0.5 * full + 0.5 * torch.eye(T + 1)) @ flow
    row = flow[:, -1, :T]
    return row / row.amax(1, keepdim=True).clamp(min=1e-12)


def _gradient_times_input(engine: Engine, X: Tensor) -> Tensor:
    with torch.enable_grad():
        tokens = X.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(engine.run(tokens).output.sum(), tokens)
    size = (slope * X).sum(-1).abs()
    return size >= 0.1 * size.amax(1, keepdim=True)
