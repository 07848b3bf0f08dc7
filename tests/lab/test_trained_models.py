"""The models behind the figures: what they compute, against the constructions they stand beside."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infoflow.construct.rank_one.text import TaggedText, ceilings
from infoflow.lab.item import Context
from infoflow.lab.papers.rank_one.figure1.model import Tagging, synthetic_text
from infoflow.lab.papers.softmax_attention.figure2 import item as figure2
from infoflow.lab.papers.softmax_attention.model import Guided
from infoflow.lab.papers.softmax_attention.tasks import Sequences, Truncated, slope
from infoflow.lab.sweep import schedule
from infoflow.train.fit import Recipe, Run, fit_many
from infoflow.train.loop import start, train
from infoflow.train.task import IGNORED


def test_the_guided_head_contains_theorem_3_4() -> None:
    """With q . key = 2 beta m_k z the guided head is the softmax over -beta (z - L_k)^2, so near Range(z)."""
    anchors = torch.linspace(-1, 1, 41, dtype=torch.float64)
    head = Guided(d=1, n=3, hidden=2, anchors=anchors, beta=4000.0, stack=()).double()
    with torch.no_grad():
        head.scale.fill_(1.0)
        head.embed.weight.fill_(2.0 * 4000.0)
        head.embed.bias.zero_()
        head.table.copy_((anchors - anchors[0]).unsqueeze(-1))
        z = torch.tensor([[-3.0, 0.33, 7.0]], dtype=torch.float64)
        out = head(z.unsqueeze(-1))
    torch.testing.assert_close(out, z.clamp(-1, 1), atol=0.026, rtol=0)


def test_both_conventions_of_the_error() -> None:
    task = Truncated(n=2, p=3, H=1, a=-1.0, b=1.0, d=2, hidden=4, count=10)
    output = torch.zeros(1, 1, 2, 4)
    output[..., 0], output[..., 3] = 2.0, 1.0
    errors = task.metrics(output, torch.zeros(1, 1, 2))
    assert errors["one channel"].item() == 4.0
    assert errors["all channels"].item() == pytest.approx(5.0 / 4)


def test_the_construction_stands_beside_with_its_rate() -> None:
    sizes = [32, 64, 128]
    beside = [Truncated(n=4, p=p, H=1, a=-5.0, b=5.0, count=500).beside(0) for p in sizes]
    assert slope([float(p) for p in sizes], [entry["sup"] for entry in beside]) == pytest.approx(-1, abs=0.3)
    assert slope([float(p) for p in sizes], [entry["construction"] for entry in beside]) == pytest.approx(-2, abs=0.4)
    for entry in beside:
        assert entry["construction"] <= entry["sup"] ** 2
        assert entry["linear regression"] < entry["mean predictor"]


def test_the_many_headed_construction_and_the_sequences() -> None:
    heads = Truncated(n=5, p=6, H=4, a=-5.0, b=5.0, count=50).beside(0)
    assert heads["sup"] < 10 / (3 * 4)  # spacing (b - a) / ((n - 2) H), half of it and what the softmax leaks
    short = Sequences(n=3, p=64, H=2, hidden=4, d=2, m=4, count=200).beside(0)
    assert short["construction"] < short["mean predictor"]


def test_the_sweeps_of_figure_2() -> None:
    full = figure2.plan(Context("full", Path()))
    assert len(full) == 14
    assert {task.n for task in full.values()} == {50}
    assert set(figure2.plan(Context("full", Path(), parts=("H",)))) == {("H", H) for H in (1, 2, 4, 8, 16)}


def tagging(depth: int = 1) -> Tagging:
    return Tagging(TaggedText([["a", "b"], ["b"]], [["X", "Y"], ["X"]]), "test", depth, size=4, width=8)


def test_padding_is_neither_seen_nor_counted() -> None:
    task = tagging(2)
    x, y, words, tags = task.table
    assert (words, tags) == (2, 2)
    assert (x[1, 1], y[1, 1]) == (IGNORED, IGNORED)
    network = task.network(None, None, Recipe(), (1,))
    for parameter in network.parameters():
        parameter.data.normal_(generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        padded, alone = (task.predict(network, ids, None) for ids in (x[None, 1:], x[None, 1:, :1]))
    torch.testing.assert_close(padded[:, :, :1], alone)
    right = torch.nn.functional.one_hot(y.clamp(min=0), 2).double()[None]
    for output, share in ((right, 1.0), (1 - right, 0.0)):
        measured = task.metrics(output, y[None])
        assert measured["accuracy"].sum().item() / task.text.size == share
        assert measured["error"].sum().item() / task.text.size == 1 - share


def test_the_loss_is_a_mean_over_real_tokens() -> None:
    task = tagging()
    _, y, _, _ = task.table
    loss = task.loss(torch.zeros(1, 2, 2, 2), y[None])
    assert loss.tolist() == pytest.approx([torch.tensor(2.0).log().item()])


def test_text_made_in_code_needs_the_sentence_and_never_the_order() -> None:
    found = ceilings(synthetic_text(60, seed=0))
    assert found["word"] < found["order_free"] == 1.0


def test_a_rank_one_model_memorises_a_little() -> None:
    (result,) = fit_many([Run(tagging(), recipe=schedule(60, 2, 3e-2, 60))])
    assert result is not None
    assert result.curve_of("accuracy")[-1] == pytest.approx(1.0)
    assert result.final == pytest.approx(0.0)


def test_trimming_takes_padding_only_and_changes_nothing() -> None:
    long = ["a"] * 40
    task = Tagging(TaggedText([["a", "b"], ["b"], long], [["X", "Y"], ["X"], ["X"] * 40]), "test", 1, size=4, width=8)
    x, y, _, _ = task.table
    network = task.network(None, None, Recipe(), (1,))
    for parameter in network.parameters():
        parameter.data.normal_(generator=torch.Generator().manual_seed(0))
    lengths = task.data(None, Recipe(), [0], torch.device("cpu")).lengths
    assert lengths is not None
    assert lengths.tolist() == [[16, 16, 48]]
    short_x, short_y = x[None, :2, :16], y[None, :2, :16]
    with torch.no_grad():
        whole, trimmed = (
            task.loss(task.predict(network, ids, None), tags)
            for ids, tags in ((x[None, :2], y[None, :2]), (short_x, short_y))
        )
    torch.testing.assert_close(whole, trimmed)


def test_batches_are_cut_to_their_longest_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a stack trained on cut batches ends as one trained on whole ones."""
    long = [f"w{i}" for i in range(40)]
    text = TaggedText([["a", "b"], ["b"], long, ["c"]], [["X", "Y"], ["X"], ["X", "Y"] * 20, ["Y"]])
    task, cpu = Tagging(text, "test", 1, size=4, width=8), torch.device("cpu")
    runs = [Run(task, recipe=schedule(3, 2, 1e-2))]
    cut, whole = start(runs, cpu, None), start(runs, cpu, None)
    widths = []
    step = cut.stack.train_step
    monkeypatch.setattr(cut.stack, "train_step", lambda data, chosen, n: (widths.append(n), step(data, chosen, n)))
    train(cut)
    assert sorted(set(widths)) == [16, 48]
    whole.data = replace(whole.data, lengths=None)
    train(whole)
    torch.testing.assert_close(cut.stack.weights, whole.stack.weights, rtol=1e-4, atol=1e-6)
