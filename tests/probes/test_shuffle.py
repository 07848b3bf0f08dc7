"""Shuffled inputs: content heads follow the tokens, position heads stay; on planted, built and real heads."""

import os

import numpy as np
import pytest
import torch
from models import hugging_face, language, network

from infoflow import build, targets
from infoflow.errors import InfoFlowError
from infoflow.probes import Batch, head_modes, record, shuffle_evidence
from infoflow.probes.planted import KINDS, Planted
from infoflow.probes.shuffle import Followed, HeadShuffle, _draw, _moved, _products, by_label


def planted_evidence(planted: Planted) -> list[HeadShuffle]:
    followed = Followed(planted.heads, planted.documents, lambda d: torch.from_numpy(planted.order(d))[None])
    planted.feed(followed)
    return followed.evidence()


@pytest.mark.parametrize("causal", [False, True])
def test_planted_heads(causal):
    kinds = tuple(k for k in KINDS if k != "mixed" and not (causal and k == "next"))
    planted = Planted(6, 20, 2, causal=causal, twins=True, kinds=kinds)
    wanted = {"max": "tokens", "top": "tokens", "position": "places", "previous": "places", "next": "places"}
    for kind, found in zip(planted.planted_as, planted_evidence(planted), strict=True):
        assert found.reads == wanted.get(kind, "neither"), kind


def test_disturbed_planted_heads():
    """Noise that the twin does not share is no content: it lowers what follows and never makes a head stay."""
    kinds = ("max", "top", "previous")
    planted = Planted(8, 24, 4, 0.3, 1.0, twins=True, kinds=kinds)
    table = by_label(planted.planted_as, planted_evidence(planted))
    assert table["max"]["follows"] > 0.9
    assert table["top"]["follows"] > 0.5
    assert table["previous"]["stays"] > 0.9
    assert max(abs(table[k]["stays"]) for k in ("max", "top")) < 0.1
    assert abs(table["previous"]["follows"]) < 0.1


@pytest.mark.parametrize(
    ("spelling", "T", "reads"),
    [("pairwise_max:D=2,d=4,seed=0", 16, "tokens"), ("star", 16, "tokens"), ("position_sum", 10, "places")],
)
def test_built_networks(spelling, T, reads):
    target = targets.parse(spelling)
    net = build(target, T, 0.05)
    X = target.sample(12, T, 0, kind="torch").to(next(net.parameters()))
    found = shuffle_evidence(net, X)
    assert {head.reads for head in found} == {reads}
    exact = [(head.follows if reads == "tokens" else head.stays)[0] for head in found]
    assert min(exact) > 0.999  # a network without positions commutes with every order


def test_products_against_loops():
    rng = np.random.default_rng(0)
    K = 7
    a, b = rng.dirichlet(np.ones(K), size=(2, K))
    order = rng.permutation(K)
    moved = _moved(torch.tensor(b)[None, None], torch.tensor(order)[None])[0, 0].numpy()
    keys = rng.random((K, K)) < 0.8
    wanted = np.zeros(4)
    for t in range(K):
        own = np.flatnonzero(keys[t])
        assert all(moved[t, s] == b[order[t], order[s]] for s in range(K))
        if len(own) < 4:
            continue
        x, y = a[t, own], moved[t, own]
        weight = min(x.sum(), y.sum())
        x, y = x / x.sum() - 1 / len(own), y / y.sum() - 1 / len(own)
        wanted += weight * np.array([x @ y, x @ x, y @ y, 1])
    got = _products(
        *(torch.tensor(z)[None, None] for z in (a, moved)),
        torch.tensor(keys)[None, None],
        torch.ones(1, 1, K, dtype=torch.bool),
    )
    np.testing.assert_allclose(got[0, 0], wanted, rtol=1e-12)


def test_sinks_and_padding_keep_their_places():
    shown = torch.arange(9) < torch.tensor([[9], [6]])
    sinks = torch.zeros(2, 9, dtype=torch.bool)
    sinks[:, 0] = True
    batch = Batch({"input_ids": torch.zeros(2, 9)}, shown, sinks)
    order = _draw(batch, torch.Generator().manual_seed(0))
    assert (order[:, 0] == 0).all()
    assert order[1, 6:].tolist() == [6, 7, 8]
    assert all(sorted(row.tolist()) == list(range(9)) for row in order)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_batches_do_not_matter(family):
    """Padded documents, both masks; the same numbers from one batch and from three, and inside [-1, 1]."""
    model, inputs = hugging_face(family), language(documents=6)
    cut = [{name: value[i : i + 2] for name, value in inputs.items()} for i in (0, 2, 4)]
    one, three = shuffle_evidence(model, inputs), shuffle_evidence(model, cut)
    for a, b in zip(one, three, strict=True):
        assert (*a.follows, *a.stays) == pytest.approx((*b.follows, *b.stays), abs=1e-4)
        assert all(-1 - 1e-9 <= x <= 1 + 1e-9 for x in (*a.follows, *a.stays))
        assert a.to_json()["reads"] in ("tokens", "places", "both", "neither")


def test_short_inputs_and_wrong_ones():
    assert all(head.reads == "neither" for head in shuffle_evidence(network(), torch.randn(2, 3, 3)))
    with pytest.raises(InfoFlowError, match="tokens to shuffle"):
        shuffle_evidence(network(), {"pixels": torch.zeros(2, 5, 3)})


def test_the_real_story_model():
    folder = os.environ.get("INFOFLOW_STORIES")
    if folder is None:
        pytest.skip("INFOFLOW_STORIES does not name the folder of stories260K.bin and tok512.bin")
    from infoflow.probes.sources import open_source
    from infoflow.probes.texts import batches_of, sampled

    source = open_source(folder)
    rows = sampled(source.model, source.encoding, 8, 96, seed=0)
    batches = batches_of(rows, source.encoding, 8)
    found = shuffle_evidence(source.model, batches)
    labels = [mode.label for mode in head_modes(record(source.model, batches))]
    placed = [head for head, own in zip(found, labels, strict=True) if own in ("previous", "position")]
    assert len(placed) >= 2
    assert all(head.stays[0] > 0.4 > 0.2 > abs(head.follows[0]) for head in placed)
    assert any(head.reads == "tokens" for head in found if head.layer == 0)
