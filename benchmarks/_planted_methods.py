"""Every method of the table as a function from a planted network to its answers (the form of `score`).

What needs no threshold has none; scores of heads and edges are thresholded by the caller, at a value chosen on networks
that are not scored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import _planted_effects as effects
import _planted_movers as movers
import _planted_rivals as rivals
import _planted_token_sets as token_sets
from infoflow.probes.benchmark.engine import Engine, Pass
from infoflow.probes.benchmark.read import PlantedNetwork
from infoflow.probes.benchmark.truth import OUT, Edge, Node
from infoflow.probes.modes import head_modes
from infoflow.probes.record import record
from infoflow.probes.row_labels import layered, row_labels

Answers = dict[str, dict[str, Any]]  # method -> answer
RIDGE = 1e-4
HALF = 0.5
PAIRED = 40  # documents for heads and edges: half of them give what the other half is patched with


@dataclass
class TwoPasses:
    """One network with the two passes that every method of heads and edges shares."""

    network: PlantedNetwork
    engine: Engine
    clean: Pass
    other: Pass

    @classmethod
    def of(cls, network: PlantedNetwork) -> "TwoPasses":
        engine = Engine(network.model)
        with torch.no_grad():
            return cls(network, engine, *effects.two_runs(engine, network.X[:PAIRED]))


def answers(network: PlantedNetwork) -> Answers:
    """All methods on one network."""
    seen = TwoPasses.of(network)
    found: Answers = {}
    for method in (_modes, _heads_and_edges, _directions, _sets, _copies):
        for name, answer in method(seen).items():
            found.setdefault(name, {}).update(answer)
    return found


def _modes(seen: TwoPasses) -> Answers:
    recording, layers = record(seen.network.model, seen.network.batch), seen.engine.layers
    by_tokens = head_modes(recording, intervals=False)
    return {
        "infoflow: row labels": {"modes": layered(row_labels(recording, by_tokens, intervals=False), layers)},
        "infoflow: head modes": {"modes": layered(by_tokens, layers)},
        "pattern heuristics": {"modes": heuristics(seen)},
        "always max": {"modes": [["max"] * h for h in seen.engine.heads]},
    }


def heuristics(seen: TwoPasses) -> list[list[str]]:
    """The rules people use, on the patterns alone, with the symbols where there are some."""
    symbols = seen.network.symbols
    own = None if symbols is None else symbols[: len(seen.clean.output)]
    return [_heuristic(p, own) for p in seen.clean.weights]


def _prefixes(p: Tensor, symbols: Tensor | None) -> dict[str, list[float]]:
    """Prefix matching (Olsson et al., 2022): the mean mass behind, or at, earlier tokens of the query's symbol."""
    K = p.shape[-1]
    if symbols is None or p.shape[2] != K:
        return {}
    same = (symbols[:, :, None] == symbols[:, None, :]) & torch.ones(K, K, dtype=torch.bool).tril(-1)
    behind = torch.zeros_like(same)
    behind[..., 1:] = same[..., :-1]
    found = {}
    for name, keys in (("induction", behind), ("duplicate", same)):
        asked = keys.any(-1)[:, None].expand(-1, p.shape[1], -1)
        mass = (p * keys[:, None]).sum(-1)
        found[name] = (mass.where(asked, 0.0).sum((0, 2)) / asked.sum((0, 2)).clamp(min=1)).tolist()
    return found


def _heuristic(p: Tensor, symbols: Tensor | None) -> list[str]:
    """The usual rules on mean patterns: mass on a diagonal or the first token, on repeats, entropy, one heavy key."""
    K = p.shape[-1]
    tokens = p[:, :, :K] if p.shape[2] > 1 else p
    mean = tokens.mean(0)  # (h, Q, K)
    entropy = -(tokens.clamp(min=1e-12).log() * tokens).sum(-1).mean((0, 2)) / torch.log(torch.tensor(float(K)))
    found, matching = [], _prefixes(tokens, symbols)
    for i in range(p.shape[1]):
        named = {"sink": float(mean[i, :, 0].mean())} | {name: values[i] for name, values in matching.items()}
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


def _heads_and_edges(seen: TwoPasses) -> Answers:
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


def _directions(seen: TwoPasses) -> Answers:
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


def _sets(seen: TwoPasses) -> Answers:
    """Only where every token's part can be told: networks without circuits, whose averages hold all tokens."""
    return {} if seen.network.symbols is not None else token_sets.answers(seen.network)


def _copies(seen: TwoPasses) -> Answers:
    """Only where symbols have logits."""
    network = seen.network
    if not network.logits:
        return {}
    return {name: {"copies": found} for name, found in movers.answers(network, seen.engine).items()}
