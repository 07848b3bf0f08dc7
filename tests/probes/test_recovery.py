"""Closed-form recovery against a direct solve; planted information is found, absent information is not."""

import numpy as np
import pytest
import torch
from models import Plain, hugging_face, language, network

from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig
from infoflow.probes import Keep, record
from infoflow.probes.recovery import HELD_OUT, Sums, ratios, recovery, untrained


def rows_of(model, X, rank, layer=0, head=0):
    keep = Keep()
    record(model, X).feed(keep)
    step = keep.steps[layer]
    asked = step.counted()
    order = step.scores.sort(dim=-1, descending=True).indices[:, head, :, rank - 1]
    held = (torch.arange(len(X)) % HELD_OUT == HELD_OUT - 1)[:, None].expand_as(asked)
    y = X[torch.arange(len(X))[:, None], order]
    return step.after.double(), y.double(), asked & ~held, asked & held


@pytest.mark.parametrize("fit", ["relative", "plain"])
def test_one_pass_equals_a_direct_solve(fit):
    """Against numpy's least squares on all rows at once, with the weights of (56) or without."""
    model, X = network(), torch.randn(20, 6, 3)
    found = recovery(record(model, [X[:7], X[7:]]), ranks=(1, 2), layers=(0,), fit=fit, ridge=1e-12)
    for entry in found:
        z, y, kept, held = rows_of(model, X, entry.rank, 0, entry.head)
        ones = torch.ones(*z.shape[:2], 1, dtype=torch.float64)
        z = torch.cat([z, ones], -1)
        root = 1 / y[kept].norm(dim=-1, keepdim=True) if fit == "relative" else torch.ones(int(kept.sum()), 1).double()
        G = np.linalg.lstsq((root * z[kept]).numpy(), (root * y[kept]).numpy(), rcond=None)[0]
        left = (z[held].numpy() @ G - y[held].numpy()) ** 2
        wanted = float((left.sum(1) / (y[held].numpy() ** 2).sum(1)).mean())
        assert entry.error == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("weighted", [True, False])
def test_states_far_from_zero_with_thin_directions(weighted):
    """As in a network that collapsed: mean 80, deviations from 10 down to 0.01, and the answer in the thin ones."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.logspace(1, -2, 16)
    X = 80 + torch.randn(4000, 16, generator=generator) * spread
    y = ((X - 80) / spread)[:, -3:] + 0.1 * torch.randn(4000, 3, generator=generator)
    z = torch.cat([X, torch.ones(4000, 1)], 1)
    weight = 1 / y.square().sum(-1)
    sums, judged = Sums(16, 3), Sums(16, 3)
    for rows in torch.arange(4000).split(700):
        sums.add(z[rows], y[rows], weight[rows] if weighted else None)
        judged.add(z[rows], y[rows], weight[rows])
    root = weight.double().sqrt()[:, None] if weighted else torch.ones(4000, 1).double()
    G = np.linalg.lstsq((root * z).numpy(), (root * y).numpy(), rcond=None)[0]
    wanted = float((((z.double().numpy() @ G - y.double().numpy()) ** 2).sum(1) * weight.double().numpy()).mean())
    assert judged.error(sums.solve(1e-12)) == pytest.approx(wanted, rel=1e-5)


def test_a_constant_in_the_state_changes_nothing():
    X, y = torch.randn(500, 4), torch.randn(500, 2)
    found = []
    for shift in (0.0, 64.0):  # added without rounding below
        z = torch.cat([(X * 2**10).round() / 2**10 + shift, torch.ones(500, 1)], 1)
        sums = Sums(4, 2)
        sums.add(z, y, 1 / y.square().sum(-1))
        found.append(sums.error(sums.solve(1e-2)))
    assert found[1] == pytest.approx(found[0], rel=1e-9)


def test_a_state_that_never_changes_is_answered_by_the_mean():
    y = torch.randn(50, 2) + 3
    sums = Sums(4, 2)
    sums.add(torch.cat([torch.full((50, 4), 7.3), torch.ones(50, 1)], 1), y, None)
    G = sums.solve(1e-8)
    assert torch.allclose(G[:-1].T @ torch.full((4,), 7.3).double() + G[-1], y.double().mean(0), atol=1e-6)


def copying(beta):
    """One head that copies the token with the largest first coordinate into coordinates of its own, hard or soft."""
    config = TransformerConfig(dim=2, heads=(1, 1), head_dims=(4, 4), widths=(4, 4), scales=(beta, 1.0))
    model = Transformer(config)
    with torch.no_grad():
        model.encoder.maps[0].weight[:2] = torch.eye(2)
        model.attentions[0].query[0, 0, 3] = 0.0
        model.encoder.maps[0].bias[3] = 1.0  # a constant coordinate asks
        model.attentions[0].query[0, 0, 3] = 1.0
        model.attentions[0].key[0, 0, 0] = 1.0
        model.attentions[0].value[0, :2, :2] = torch.eye(2)
        model.attentions[0].output[2:, :2] = torch.eye(2)
    return model


def test_a_hard_head_holds_its_argmax_and_nothing_else():
    X = torch.randn(200, 12, 2, generator=torch.Generator().manual_seed(0))
    found = {r.rank: r.error for r in recovery(record(copying(1e4), X), layers=(0,))}
    assert found[1] < 1e-6
    assert found[2] > 0.1
    assert found["random"] > 0.5  # (the mean over (56) of a map that knows nothing is near 1)
    soft = {r.rank: r.error for r in recovery(record(copying(1.0), X), layers=(0,))}
    assert soft[1] > found[1]


def test_the_nonlinear_map_is_no_worse_where_nothing_is_left():
    X = torch.randn(100, 8, 2, generator=torch.Generator().manual_seed(0))
    for entry in recovery(record(copying(1e4), X), ranks=(1,), layers=(0,), nonlinear=400):
        assert entry.nonlinear == pytest.approx(entry.error, abs=5e-3)


def test_language_models_recover_the_first_state():
    model, inputs = hugging_face("llama"), language(documents=10, T=12)
    found = recovery(record(model, inputs), layers=(1,))
    assert [(r.layer, r.head, r.rank) for r in found][:3] == [(1, 0, 1), (1, 0, 2), (1, 0, "random")]
    assert all(np.isfinite(r.error) for r in found)


def test_masked_keys_are_never_drawn():
    """A causal model: the random key of query t is at most t; with one visible key it is that key."""
    from infoflow.probes.recovery import RecoverySums

    keep = Keep()
    record(hugging_face("gpt2"), language(padded=False)).feed(keep)
    keys = RecoverySums()._keys(keep.steps[0])["random"]
    assert (keys <= torch.arange(9)).all()
    assert len(set(keys[:, :, 8].flatten().tolist())) > 3


def test_untrained_copies():
    for model in (network(), hugging_face("bert"), Plain()):
        fresh = untrained(model, seed=1)
        again = untrained(model, seed=1)
        for a, b in zip(fresh.parameters(), again.parameters(), strict=True):
            assert torch.equal(a, b)
        assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), fresh.parameters(), strict=True))


def test_ratio_rows_and_refusals():
    model, X = network(), torch.randn(10, 5, 3)
    trained = recovery(record(model, X), layers=(0,))
    rows = ratios(trained, recovery(record(untrained(model), X), layers=(0,)))
    assert rows[0]["ratio"] == pytest.approx(rows[0]["error"] / rows[0]["initialized"])
    with pytest.raises(InfoFlowError, match="at least 5 documents"):
        recovery(record(model, X[:4]))
    with pytest.raises(InfoFlowError, match="ranks of at most 5"):
        recovery(record(model, X), ranks=(6,))


def test_zero_tokens_are_left_out():
    model, X = network(), torch.randn(10, 5, 3)
    X[:, 2] = 0
    assert all(np.isfinite(r.error) for r in recovery(record(model, X), layers=(0,)))
    assert np.isnan(Sums(2, 1).error(torch.zeros(3, 1)))
