"""Methods on planted networks: each finds what it can find, and the format others read is the same network."""

import copy
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import _planted_effects as effects
import _planted_movers as movers
import _planted_rivals as rivals
import _planted_token_sets as token_sets
from infoflow.errors import InfoFlowError
from infoflow.probes import record
from infoflow.probes.benchmark.catalogue import Order, groups
from infoflow.probes.benchmark.circuits import SAYS
from infoflow.probes.benchmark.engine import Engine
from infoflow.probes.benchmark.faithful import mib
from infoflow.probes.benchmark.lens import PENALTY, lens_config, lens_state, lens_stream
from infoflow.probes.benchmark.make import Made, make, write
from infoflow.probes.benchmark.read import PlantedNetwork
from infoflow.probes.benchmark.score import judge
from infoflow.probes.benchmark.truth import OUT
from infoflow.probes.row_labels import row_labels


def order(name: str = "pairwise_max", heads: tuple[int, ...] = (1, 1), disguise: str = "decoys", T: int = 12) -> Order:
    group = next(g for g in groups() if g.name == name and g.heads == heads and g.T == T)
    return Order(0, group, disguise, 0.0, seed=2, hidden=False)


@pytest.fixture(scope="module")
def made() -> Made:
    return make(order())


@pytest.fixture(scope="module")
def seen(made: Made):
    engine = Engine(made.network)
    return engine, *effects.two_runs(engine, made.tensors["X"])


def separated(scores: dict, true: set) -> bool:
    inside = [value for key, value in scores.items() if key in true]
    outside = [value for key, value in scores.items() if key not in true]
    return min(inside) > max(outside)


def test_interchange_finds_the_heads_and_the_wiring(made: Made, seen) -> None:
    assert separated(effects.head_effects(*seen), made.truth.matter)
    assert separated(effects.edge_effects(*seen), set(made.truth.edges))


def test_rivals_find_the_wiring_too(made: Made, seen) -> None:
    true = set(made.truth.edges)
    assert separated(rivals.attribution(*seen, integrated=True), true)
    found = rivals.acdc(*seen)
    assert {edge for edge, value in found.items() if value >= rivals.ACDC_BOUND} == true
    heads, edges = rivals.routes(*seen[:2])
    assert heads.keys() == made.truth.heads.keys()
    assert edges.keys() == found.keys()
    gates = rivals.causal_gating(*seen[:2], made.tensors["X"][: len(seen[1].output)])
    ranked = sorted(gates, key=gates.__getitem__, reverse=True)
    assert set(ranked[: len(made.truth.matter)]) == made.truth.matter


def test_attribution_is_the_derivative_of_the_swap(seen) -> None:
    """For a change so small that the network is linear, an edge to the read-out has the effect it is attributed."""
    engine, clean, other = seen
    step, near = 1e-4, copy.copy(other)
    near.contributions = list(other.contributions)
    for l in range(engine.layers):
        near.contributions[l] = clean.contributions[l] + step * (other.contributions[l] - clean.contributions[l])
    swapped = {edge: value for edge, value in effects.edge_effects(engine, clean, near).items() if edge[1] == OUT}
    attributed = rivals.attribution(engine, clean, near, integrated=False)
    largest = max(swapped.values())
    for edge, value in swapped.items():
        assert attributed[edge] == pytest.approx(value, rel=0.05, abs=1e-2 * largest)


def test_a_perfect_ranking_is_most_faithful(made: Made) -> None:
    engine = Engine(made.network)
    clean, other = effects.two_runs(engine, made.tensors["X"])
    X = made.tensors["X"][: len(clean.output)]
    best = [[float((l, i) in made.truth.matter) for i in range(h)] for l, h in enumerate(engine.heads)]
    worst = [[-value for value in row] for row in best]
    good, bad = (mib(engine, clean, other, X, scores, {}) for scores in (best, worst))
    assert good["cpr"] > bad["cpr"]
    assert good["cmd"] < bad["cmd"]


def test_the_row_where_a_head_looks_gives_its_label() -> None:
    """Read by the CLS in front of the last layer: flat at the tokens, a maximum at the CLS."""
    built = make(order("sum_of_maxima", (1, 1), "plain", 16))
    found = {(mode.layer, mode.head): mode.label for mode in row_labels(record(built.network, built.tensors["X"]))}
    reads = [node for node, head in built.truth.heads.items() if ".read" in head.job]
    assert any(node[0] == 0 for node in reads)
    assert all(found[node] in built.truth.heads[node].labels for node in reads)


def test_a_one_layer_network_is_a_state_of_the_lens() -> None:
    """The library's attention, written out, gives the network's output; the library itself where it is installed."""
    built = make(order("max_plus_min", (2,), "turned", 8))
    network, X = built.network, built.tensors["X"]
    state, x = lens_state(network), lens_stream(network, X)
    q, k, v = (
        torch.einsum("bte,hed->bhtd", x, state[f"blocks.0.attn.W_{n}"]) + state[f"blocks.0.attn.b_{n}"][:, None]
        for n in "QKV"
    )
    weights = torch.softmax(q @ k.transpose(-1, -2), -1)
    assert float(weights[..., -1].max()) == 0.0  # nobody sees the CLS
    after = x + torch.einsum("bhtd,hde->bte", weights @ v, state["blocks.0.attn.W_O"])
    assert network.readout is not None
    wanted = network(X)
    assert torch.allclose(network.readout(after[:, -1, :-1])[:, 0], wanted, atol=1e-4 * float(wanted.std()))
    assert float((q @ k.transpose(-1, -2))[..., :-1].abs().max()) < PENALTY
    with pytest.raises(InfoFlowError, match="one layer"):
        lens_config(make(order()).network)


def test_the_library_itself_runs_a_one_layer_network() -> None:
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
    except ImportError:  # since version 4 the library has no such class
        pytest.skip("needs TransformerLens before version 4")
    built = make(order("max_plus_min", (2,), "turned", 8))
    network, X = built.network, built.tensors["X"]
    library = HookedTransformer(HookedTransformerConfig(**lens_config(network)))
    library.load_state_dict(lens_state(network), strict=False)
    assert network.readout is not None
    with torch.no_grad():
        y, wanted = network.readout(library.blocks[0](lens_stream(network, X))[:, -1, :-1]), network(X)
    assert torch.allclose(y.squeeze(), wanted, atol=1e-4 * float(wanted.std()))


def stored(tmp_path, built: Made) -> PlantedNetwork:
    write(built, tmp_path)
    return PlantedNetwork(0, tmp_path, hidden=False)


def test_heads_that_copy_are_told_from_those_that_suppress_and_translate(tmp_path) -> None:
    seeds = (make(replace(order(disguise="decoys"), seed=seed)) for seed in range(20))
    network = stored(tmp_path, next(made for made in seeds if int(made.tensors.get("logits", 0))))
    truth = network.truth()
    found = movers.answers(network, Engine(network.model))["infoflow: copying"]
    by_word = {word: [found[l][i] for (l, i), h in truth.heads.items() if h.says == word] for word in SAYS}
    rest = [found[l][i] for (l, i), h in truth.heads.items() if not h.says]
    assert min(by_word["copying"]) > 0.3
    assert max(by_word["suppressing"]) < -0.3
    assert max(by_word["translating"]) < 0
    assert max(map(abs, rest)) < 0.05
    judged = judge(truth, {"copies": found}, {"copies": 0.2}).found["copies"]
    assert judged["auroc"] == 1.0
    assert judged["counts"] == [2, 2, 2]


def test_trace_gives_the_sets_of_a_network_without_circuits(tmp_path) -> None:
    seeds = (make(replace(order("recall", (1, 1), "turned"), seed=seed)) for seed in range(30))
    network = stored(tmp_path, next(made for made in seeds if "symbols" not in made.tensors))
    found = token_sets.scores(network)
    truth = network.truth().about["sets"]
    said = [[int(s) + 1 for s in np.flatnonzero(row >= 0.01)] for row in found[token_sets.TRACE]]
    asked = [(a, b) for a, b in zip(truth, said, strict=False) if a is not None]
    assert len(asked) > 12
    assert np.mean([a == b for a, b in asked]) > 0.9
    assert found.keys() == {token_sets.TRACE, token_sets.SHARES, *token_sets.NAMES.values()}
    assert (found[token_sets.SHARES].max(1) == 1).all()


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="needs the onnx extra")
def test_a_planted_network_runs_from_its_onnx_file(made: Made, tmp_path) -> None:
    import onnxruntime

    from infoflow.nn.export import to_onnx

    X = made.tensors["X"]
    path = to_onnx(made.network, tmp_path / "0000.onnx", X.shape[1])
    (y,) = onnxruntime.InferenceSession(str(path)).run(None, {"X": X.numpy()})
    assert np.allclose(y, made.network(X).numpy(), atol=1e-3)


def test_a_planted_network_says_what_is_missing(tmp_path) -> None:
    with pytest.raises(InfoFlowError, match="inputs"):
        _ = PlantedNetwork(3, tmp_path, hidden=False).X
