"""Planted networks: what they compute, what hides them, and the truth that goes with them."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from _planted_effects import edge_effects
from _planted_twins import _asked, _matched, twins
from infoflow.errors import InfoFlowError
from infoflow.probes import Batch, head_modes, record
from infoflow.probes.benchmark import nearly
from infoflow.probes.benchmark.catalogue import MOST, SHARES, Order, groups, orders
from infoflow.probes.benchmark.circuits import ON_TOKENS, SAYS, Circuit, averages, draw, patterns, symbols
from infoflow.probes.benchmark.compiled import compiled
from infoflow.probes.benchmark.disguise import disguised
from infoflow.probes.benchmark.engine import Engine
from infoflow.probes.benchmark.make import base, make
from infoflow.probes.benchmark.plant import Planting
from infoflow.probes.benchmark.truth import OUT, Truth
from infoflow.probes.benchmark.union import union


def planting(
    T: int = 12, layers: int = 2, encoder: str = "linear", causal: bool = False, more: str = "", says: bool = False
) -> Planting:
    rng = np.random.default_rng(3)
    written = symbols(T, 2, False, rng)
    circuits = draw(layers, written, causal, rng, (*ON_TOKENS, *(SAYS if says else ())))
    if more:
        circuits.append(replace(circuits[0], role=more, stands_in=0))
    return Planting(circuits, written, layers, encoder, causal)


@pytest.mark.parametrize(
    ("layers", "encoder", "causal"), [(1, "linear", False), (2, "linear", True), (3, "mlp", False)]
)
def test_circuits_compute_their_averages_within_the_bound(layers: int, encoder: str, causal: bool) -> None:
    made = planting(layers=layers, encoder=encoder, causal=causal, says=True)
    tokens = made.written.sample(64, np.random.default_rng(0))
    gains = made.gains(tokens, 1.0)
    wanted = made.function(tokens, gains)
    found = made.write(gains)(torch.from_numpy(tokens)).numpy()
    bound = made.bound(gains)
    assert bound is not None
    assert found.shape == (64, 1 + made.written.count)  # the average, and a logit for every symbol
    assert np.abs(found - wanted).max() <= bound < 0.6 * wanted[:, 0].std() * len(gains)
    first = sum(
        g * averages(logits, tokens, causal)
        for g, c, logits in zip(gains, made.circuits, made.logits, strict=True)
        if c.kind != "before" and not c.says
    )
    assert np.allclose(wanted[:, 0], first)


def test_repeats_are_looked_for_where_the_definition_says() -> None:
    """On random orders of symbols: behind, or at, the earlier tokens of the own symbol, wherever there is one."""
    made = planting(T=16, layers=3)
    tokens = made.written.sample(32, np.random.default_rng(5))
    symbol = tokens[..., :-1].argmax(-1)
    at = {c.kind: patterns(made.logits[n], tokens, causal=False) for n, c in enumerate(made.circuits)}
    for document, row in enumerate(symbol):
        for t in range(16):
            same = [s for s in range(t) if row[s] == row[t]]
            behind = [s + 1 for s in same if s + 1 < t]
            for kind, keys in (("duplicate", same), ("induction", behind)):
                if keys:
                    assert at[kind][document, t, keys].sum() > 0.97, (kind, document, t)


def test_an_induction_head_reads_the_head_that_tells_the_symbol_in_front() -> None:
    made = planting(T=12, layers=3)
    gains = made.gains(made.written.sample(64, np.random.default_rng(0)), 1.0)
    number = {c.kind: n for n, c in enumerate(made.circuits)}
    before, induction = (made.nodes[number[kind]] for kind in ("before", "induction"))
    assert (before, induction) in made.truth(gains).edges
    engine = Engine(made.write(gains))
    X = torch.from_numpy(made.written.sample(64, np.random.default_rng(1)))
    found = edge_effects(engine, engine.run(X[:32]), engine.run(X[32:]))
    true = {b for a, b in made.truth(gains).edges if a == before}
    others = [value for (a, b), value in found.items() if a == before and b not in true]
    assert min(found[before, b] for b in true) > 100 * max(others)


def test_planted_heads_have_the_modes_the_truth_says() -> None:
    made = planting(T=16, layers=3)
    tokens = torch.from_numpy(made.written.sample(64, np.random.default_rng(1)))
    gains = made.gains(tokens.numpy(), 1.0)
    first = torch.zeros(tokens.shape[:2], dtype=torch.bool)
    first[:, 0] = True
    batch = Batch({"X": tokens}, sinks=first, kinds=tokens[..., :-1].argmax(-1))
    found = head_modes(record(made.write(gains), batch))
    truth = made.truth(gains)
    present = {label for head in truth.heads.values() for label in head.labels}
    assert present >= {"self", "previous", "top", "mixed", "duplicate", "induction"}
    for mode in found:
        assert mode.label in truth.heads[mode.layer, mode.head].labels


def test_a_backup_takes_over_when_its_head_writes_nothing_and_not_before() -> None:
    made = planting(more="backup")
    tokens = torch.from_numpy(made.written.sample(64, np.random.default_rng(1)))
    gains = made.gains(tokens.numpy(), 1.0)
    engine = Engine(made.write(gains))
    nodes = {role: node for node, role in ((n, h.role) for n, h in made.truth(gains).heads.items()) if role == "backup"}
    backup, main = nodes["backup"], made.nodes[0]

    def without(*gone: tuple[int, int]) -> torch.Tensor:
        def change(l: int, c: torch.Tensor) -> torch.Tensor:
            c = c.clone()
            c[:, [i for k, i in gone if k == l]] = 0
            return c

        return engine.run(tokens, change).output

    y = engine.run(tokens).output
    part = y.std() * 0.05
    assert (without(backup) - y).abs().max() < part
    assert (without(main) - y).abs().max() < part
    assert (without(main, backup) - y).abs().max() > 5 * part


def small(disguise: str = "turned", strength: float = 0.0, name: str = "pairwise_max"):
    fit = (g for g in groups() if g.name == name and g.heads == (1, 1) and g.T == 12)
    return Order(0, next(fit), disguise, strength, seed=1, hidden=False)


def test_disguises_keep_the_function_and_move_the_truth_along() -> None:
    start = base(small())
    network, truth = disguised(start.network, start.truth, 2, 1, seed=4)
    X = torch.from_numpy(start.draw(32, 0))
    with torch.no_grad():
        assert (network(X) - start.network(X)).abs().max() < 1e-8
    old, new = Engine(start.network).run(X), Engine(network).run(X)
    for before, after in zip(start.truth.directions, truth.directions, strict=True):
        one = old.streams[before.layer] @ torch.from_numpy(before.vector)
        two = new.streams[after.layer] @ torch.from_numpy(after.vector)
        assert torch.allclose(one, two, atol=1e-8)
    roles = [head.role for head in truth.heads.values()]
    assert roles.count("decoy") == 2
    assert len(truth.edges) == len(start.truth.edges)
    jobs = {head.job: node for node, head in start.truth.heads.items() if head.role == "computes"}
    for node, head in truth.heads.items():  # the same job has the same pattern at its new place
        if head.role == "computes":
            l, i = jobs[head.job]
            assert torch.allclose(old.weights[l][:, i], new.weights[node[0]][:, node[1]], atol=1e-8)


def test_edges_are_what_a_swap_of_the_sender_changes() -> None:
    """A head with an edge to the output or to a head that has one changes the output; the others do not."""
    made = make(small("decoys"))
    engine, X = Engine(made.network), made.tensors["X"]
    clean, other = engine.run(X[:32]), engine.run(X[32:])
    reach = {OUT}
    for _ in made.truth.edges:
        reach |= {a for a, b in made.truth.edges if b in reach}
    for node in made.truth.heads:
        moved = (engine.swapped(clean, other, node) - clean.output).square().mean()
        share = float(moved / clean.output.var())
        assert (share > 1e-3) == (node in reach), (node, share)


@pytest.mark.parametrize("disguise", ["noise", "fine-tuned"])
def test_nearly_kept_functions_leave_the_stated_error(disguise: str) -> None:
    made = make(small(disguise, 1e-3))
    left = made.truth.error["nmse_left_by_disguise"]
    assert left is not None
    assert 1e-4 < left < 3e-3
    assert all((head.agreement >= nearly.KEPT) == bool(head.labels) for head in made.truth.heads.values())


def test_a_head_that_a_disguise_destroyed_loses_its_label() -> None:
    start = base(small())
    network, truth = disguised(start.network, start.truth, 0, 0, seed=4)
    broken = nearly.rounded(network)
    node = next(iter(truth.matter))
    with torch.no_grad():
        broken.attentions[node[0]].query[node[1]] = 0.0
    checked = nearly.checked(network, broken, truth, torch.from_numpy(start.draw(64, 1)))
    assert checked.heads[node].labels == ()
    lost = {place for place, head in checked.heads.items() if not head.labels}
    assert lost <= {node} | {b for a, b in truth.edges if a == node}  # and who reads it


def test_orders_keep_their_promises() -> None:
    found = orders(1000, 0, "salt")
    counts = {group: sum(order.group == group for order in found) for group in {order.group for order in found}}
    assert max(counts.values()) <= MOST
    assert len({order.group.name for order in found}) == 12
    assert {(order.disguise, order.strength) for order in found} == set(SHARES)
    assert sum(order.hidden for order in found) == 200
    plain, other = orders(1000, 0, None), orders(1000, 0, "pepper")
    for mine, theirs in ((plain, found), (other, found)):
        assert all((a.seed == b.seed) == (not b.hidden) for a, b in zip(mine, theirs, strict=True))
    assert len(groups()) >= 200
    assert sum(len(order.group.heads) > 2 for order in found) > 400  # room for induction circuits


def test_compiled_truth_follows_the_layout() -> None:
    made = compiled("chain:length=4,d=1,seed=1", 8, 0.2, (2, 1, 1), False, False)
    computing = {node for node, head in made.truth.heads.items() if head.role == "computes"}
    assert computing == {(0, 0), (0, 1), (1, 0), (2, 0)}
    assert ((2, 0), OUT) in made.truth.edges
    assert ((1, 0), (2, 0)) in made.truth.edges
    assert len(made.truth.edges) == 4  # a tree of three messages and its read
    recall = compiled("recall:d=1,values=1,margin=0.1", 8, 0.2, (1, 1), False, True)
    assert recall.truth.heads[0, 0].labels == ("position",)  # every token fetches the last one, which asks


def test_side_by_side_outputs_add() -> None:
    made = planting()
    tokens = made.written.sample(16, np.random.default_rng(0))
    second = made.write(made.gains(tokens, 1.0))
    first = compiled("sum_of_maxima:D=2,d=2,seed=0", 12, 0.2, (1, 1), False, False).network
    X = torch.rand(16, 12, 2, dtype=torch.float64)
    both = union(first, second)(torch.cat([X, torch.from_numpy(tokens)], -1))
    assert torch.allclose(both, first(X) + second(torch.from_numpy(tokens)), atol=1e-9)


def test_truth_survives_its_file() -> None:
    truth = make(small("decoys")).truth
    again = Truth.from_json(truth.to_json())
    assert again.heads == truth.heads
    assert again.edges == tuple(sorted(truth.edges))
    with pytest.raises(InfoFlowError, match="truth"):
        Truth.from_json({"version": 1, "heads": [{"layer": 1}]})


def test_a_mixed_circuit_needs_room() -> None:
    rng = np.random.default_rng(0)
    assert [c.kind for c in draw(2, symbols(8, 2, False, rng), False, rng, ["mixed", "self"])] == ["self"]
    assert isinstance(draw(1, symbols(8, 2, False, rng), False, rng, ["self", "sink"])[0], Circuit)


def test_either_end_of_a_symmetric_pair_does_the_job_of_a_twin() -> None:
    """The read of the closest pair attains its score at both ends; a network finds all jobs of itself."""
    twin = next(twin for twin in twins(12) if twin.group.name == "min_pair")
    X = torch.from_numpy(twin.built.target.sample(64, twin.group.T, seed=3))
    jobs = _asked(twin.built, X)
    read = next(node for node in jobs if (node, OUT) in twin.built.truth.edges)
    assert (jobs[read][1].sum(-1) == 2).double().mean() > 0.9
    assert all(agreement == 1.0 for _, agreement in _matched(twin.built.network, X, jobs))
