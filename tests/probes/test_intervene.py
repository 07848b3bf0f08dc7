"""Costs are paired differences; the greedy path is what brute force finds on small models."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models import hugging_face, language, network

from infoflow.errors import InfoFlowError
from infoflow.probes import Batch, intervene, joint_path, measure_references, record, substitute
from infoflow.probes.intervals import ratio_interval
from infoflow.probes.intervene import JointPath, Point
from infoflow.probes.record import as_batches
from infoflow.probes.tasks import LanguageModelling, MaskedTokens, Measured, Retrieval, SquaredError, encode


def test_language_modelling_is_the_librarys_loss():
    model, inputs = hugging_face("gpt2"), language(padded=False)
    with torch.no_grad():
        wanted = model(**inputs, labels=inputs["input_ids"]).loss.item()
    assert LanguageModelling(as_batches(inputs)).measure(model).loss == pytest.approx(wanted, rel=1e-5)


def test_padding_is_not_counted():
    model = hugging_face("llama")
    measured = LanguageModelling(as_batches(language())).measure(model)
    assert measured.counts.tolist() == [8, 8, 5]


def test_masked_tokens_are_the_same_every_time_and_never_sinks():
    model, inputs = hugging_face("albert"), language(documents=5, T=16)
    sinks = torch.zeros(5, 16, dtype=torch.bool)
    sinks[:, 0] = True
    task = MaskedTokens([Batch(inputs, inputs["attention_mask"].bool(), sinks)], mask_id=0, rate=0.5)
    batch, ids, hidden = task.masked[0]
    assert not (hidden & sinks).any()
    assert torch.equal(batch.inputs["input_ids"] == 0, hidden)
    assert torch.equal(ids, inputs["input_ids"])
    assert task.measure(model).loss == task.measure(model).loss


def test_retrieval_counts_wrong_answers():
    model = hugging_face("bert")
    batch = Batch(language(padded=False))
    task = Retrieval([batch], [batch], np.array([0, 1, 2]), [(np.arange(3), np.arange(3))])
    assert task.measure(model).loss == 0.0
    task = Retrieval([batch], [batch], np.array([1, 2, 0]), [(np.arange(3), np.arange(3))])
    assert task.measure(model).loss == 1.0
    assert torch.allclose(encode(model, [batch]).norm(dim=-1), torch.ones(3))


def test_a_task_without_logits_is_refused():
    with pytest.raises(InfoFlowError, match="token logits"):
        LanguageModelling(as_batches(language())).measure(hugging_face("bert"))


def task_for(model, seed, documents=12):
    X = torch.randn(documents, 5, 3, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        y = model(X)
    return SquaredError([Batch({"X": X})], [y])


def test_costs_are_the_difference_of_losses():
    model = network()
    task = task_for(model, 1)
    other = torch.randn(16, 5, 3)
    found = intervene(model, other, task, modes=("uniform", "position"))
    references = measure_references(record(model, other))
    assert found.base[0] == pytest.approx(0, abs=1e-9)
    assert len(found.costs) == 2 * (1 + 2 + 5)
    for cost in found.costs:
        chosen = {
            (l, i): cost.mode
            for l, h in enumerate((2, 3))
            for i in range(h)
            if cost.layer in (None, l) and cost.head in (None, i)
        }
        loss = task.measure(substitute(model, chosen, references)).loss
        assert cost.cost == pytest.approx(loss, abs=1e-9)
        assert cost.low <= cost.cost <= cost.high
    entry = found.to_json()["costs"][-1]
    assert (entry["layer"], entry["head"]) == (2, 3)  # 1-based in JSON


def test_lazy_greedy_is_greedy():
    """Against a search that measures every candidate at every step."""
    model = network()
    task, held = task_for(model, 2), task_for(model, 3)
    references = measure_references(record(model, torch.randn(16, 5, 3)))
    modes = ("hardmax", "uniform")
    path = joint_path(model, task, held, references, modes)
    assert {(p.layer, p.head) for p in path.points} == {(l, i) for l, h in enumerate((2, 3)) for i in range(h)}
    taken = {}
    first = min(
        ((task.measure(substitute(model, {(l, i): m})).loss, (l, i), m))
        for (l, i), m in itertools.product([(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)], modes)
    )
    assert ((path.points[0].layer, path.points[0].head), path.points[0].mode) == first[1:]
    for point in path.points:
        taken[(point.layer, point.head)] = point.mode
        loss = task.measure(substitute(model, taken, references)).loss
        assert point.searched == pytest.approx(loss, abs=1e-6)
        assert point.cost == pytest.approx(held.measure(substitute(model, taken, references)).loss, abs=1e-6)


def test_budgets_and_residue():
    points = tuple(Point(0, i, "hardmax", cost, cost, 0, 1) for i, cost in enumerate((0.1, 0.3, 0.2, 0.9)))
    path = JointPath("nats", (5,), points)
    assert len(path.within(0.05)) == 0
    assert len(path.within(0.2)) == 3  # the third point is inside again
    assert path.residue(0.2) == [(0, 3), (0, 4)]
    summary = path.summary(0.2)
    assert (summary["forced"], summary["of"], summary["residue"]) == (3, 5, [[1, 4], [1, 5]])
    assert path.summary(0.0)["cost"] == 0.0


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(1, 9)), min_size=2, max_size=12))
def test_intervals_hold_the_value_of_constant_documents(rows):
    totals, counts = np.array([r[0] for r in rows]), np.array([float(r[1]) for r in rows])
    value, low, high = ratio_interval(totals, counts)
    assert low <= high
    assert value == pytest.approx(totals.sum() / counts.sum())
    same = ratio_interval(np.full(len(rows), 2.0), np.full(len(rows), 4.0))
    assert same == (0.5, 0.5, 0.5)


def test_interval_of_one_document_is_no_interval():
    assert ratio_interval(np.array([1.0]), np.array([2.0])) == (0.5, float("-inf"), float("inf"))


def test_interval_covers():
    """The interval of a mean of normals covers the truth about as often as it says."""
    generator = np.random.default_rng(0)
    hits = 0
    for seed in range(60):
        sample = generator.normal(size=40)
        _, low, high = ratio_interval(sample, np.ones(40), seed)
        hits += low <= 0 <= high
    assert hits >= 50
    assert Measured(np.ones(2), np.ones(2)).loss == 1.0
