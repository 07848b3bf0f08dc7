"""The models behind the figures: what they compute, against the constructions they stand beside."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infoflow.construct.rank_one.text import TaggedText, ceilings
from infoflow.construct.softmax_attention.figures import slope
from infoflow.lab.item import Context, printed
from infoflow.lab.papers.rank_one.figure1.model import Tagging, synthetic_text
from infoflow.lab.papers.softmax_attention.figure2 import item as figure2
from infoflow.lab.papers.softmax_attention.model import Guided, SingleLayer
from infoflow.lab.papers.softmax_attention.tasks import Sequences, Truncated, apart
from infoflow.lab.sweep import schedule
from infoflow.train.fit import Recipe, Run, fit_many
from infoflow.train.loop import start, train
from infoflow.train.task import IGNORED


def test_the_lift_is_a_map_then_a_scale_then_learned_tokens() -> None:
    """As published: A(x) has p columns, of which the last p - n are the same for every input, from -1 to 1."""
    network = SingleLayer(d=3, n=4, p=7, hidden=8, H=2, stack=())
    network.initialise(torch.Generator().manual_seed(0))
    x = torch.randn(5, 4, 3)
    lifted = network.lift(x)
    assert lifted.shape == (5, 7, 8)
    torch.testing.assert_close(lifted[:, 4:], torch.linspace(-1, 1, 3)[None, :, None].expand(5, 3, 8))
    torch.testing.assert_close(lifted[:, :4], x @ network.lift.embed.weight.mT + network.lift.embed.bias)
    with torch.no_grad():
        network.lift.scale[2].zero_()
    assert not network.lift(x)[:, 2].any()
    assert network(x).shape == (5, 4, 8)


def test_one_layer_is_torchs_attention() -> None:
    """The published layer is PyTorch's multi-head attention, asked by the first n columns."""
    network = SingleLayer(d=3, n=4, p=7, hidden=8, H=2, stack=())
    network.initialise(torch.Generator().manual_seed(1))
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    attend = network.attend
    with torch.no_grad():
        maps = (attend.query, attend.key, attend.value)
        theirs.in_proj_weight.copy_(torch.cat([m.weight for m in maps]))
        theirs.in_proj_bias.copy_(torch.cat([m.bias for m in maps]))
        theirs.out_proj.weight.copy_(attend.output.weight)
        theirs.out_proj.bias.copy_(attend.output.bias)
        x = torch.randn(5, 4, 3)
        lifted = network.lift(x)
        torch.testing.assert_close(network(x), theirs(lifted, lifted, lifted)[0][:, :4])


def test_the_guided_head_has_the_anchors_in_its_keys_and_values() -> None:
    anchors = torch.linspace(-0.5, 1.5, 4)
    head = Guided(d=2, n=4, hidden=5, anchors=anchors, beta=25.0, column=3, stack=())
    head.initialise(torch.Generator().manual_seed(0))
    x = torch.randn(6, 4, 2)
    with torch.no_grad():
        attended, tokens = head.attended(x), head.lift(x)
        torch.testing.assert_close(attended.values[..., 3], attended.weights @ anchors)
        keys = head.key(tokens)
        keys[..., -1] = torch.arange(4.0) * (anchors + anchors[0]) - 2 * torch.arange(4.0)
        wanted = torch.softmax(25.0 * head.query(tokens) @ keys.mT / 5**0.5, -1)
    torch.testing.assert_close(attended.weights, wanted)


def test_samples_are_drawn_as_published() -> None:
    """Tokens, weights, offsets and the split come from PyTorch's generator in the order of the published code."""
    task = Truncated(n=3, p=4, H=1, a=-2.0, b=2.0, d=2, count=10)
    torch.manual_seed(1234)
    tokens, w, t = 10 * torch.rand(10, 3, 2) - 5, torch.randn(1, 3, 2), torch.randn(1, 3, 1)
    labels = (tokens * w).sum(-1, keepdim=True).add(t).clamp(-2, 2).squeeze(-1)
    train, test = torch.utils.data.random_split(list(range(10)), [8, 2])
    order = [*train.indices, *test.indices]
    x, y = task.draw(1234)
    torch.testing.assert_close(x.float(), tokens[order])
    torch.testing.assert_close(y.float(), labels[order])
    sequences = Sequences(n=3, p=4, H=1, hidden=4, d=2, m=4, count=10)
    torch.manual_seed(42)
    W_1, b_1, W_2, b_2 = torch.randn(4, 6), torch.randn(4), torch.randn(6, 4), torch.randn(6)
    x, y = sequences.draw(0)
    torch.testing.assert_close(x.sum(0).float(), torch.rand(10, 3, 2).sum(0))
    torch.testing.assert_close(y.flatten(1).float(), torch.relu(x.flatten(1).float() @ W_1.mT + b_1) @ W_2.mT + b_2)


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
    paper = figure2.plan(Context("paper", Path()))
    known = {
        (row["sweep"], row["value"]) for row in printed("infoflow.lab.papers.softmax_attention.figure2")["published"]
    }
    assert set(paper) == known
    assert {task.n for task in paper.values()} == {50}
    assert set(figure2.plan(Context("paper", Path(), parts=("H",)))) == {("H", H) for H in (1, 2, 4, 8, 16)}


def test_points_are_compared_in_combined_standard_errors() -> None:
    row = {"published": 1.0, "published std": 0.3, "MSE": 1.6, "std": 0.4, "seeds": 4}
    assert apart(row, 9) == pytest.approx(0.6 / (0.01 + 0.04) ** 0.5)
    assert apart(row | {"published": None}, 9) is None


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
