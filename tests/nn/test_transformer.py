from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.nn import States, Transformer, TransformerConfig
from infoflow.nn.transformer import BUSY, FEWEST, look_up, pieces, product, tiles


def random_network(config, stack=(), seed=0, dtype=torch.float64):
    net = Transformer(config, stack).to(dtype)
    net.initialise(torch.Generator().manual_seed(seed))
    return net


def inputs(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@st.composite
def architectures(draw):
    layers = draw(st.integers(1, 3))
    sizes = st.lists(st.integers(1, 4), min_size=layers, max_size=layers)
    heads, dims = draw(sizes), draw(sizes)
    width = draw(st.one_of(st.none(), st.integers(1, 9)))
    positions = draw(st.sampled_from(["none", "additive"]))
    mask = draw(st.sampled_from(["none", "causal"]))
    embed = tuple(h * n for h, n in zip(heads, dims, strict=True))
    return Architecture(tuple(heads), embed, width, positions, mask).filled()


@settings(max_examples=60, deadline=None)
@given(architectures(), st.integers(1, 5), st.integers(1, 3), st.integers(1, 6))
def test_parameter_count_is_the_architectures(arch, d, outputs, T):
    net = Transformer(TransformerConfig.of(arch, d, outputs, T))
    assert sum(p.numel() for p in net.parameters()) == arch.parameters(d, outputs, T)


@settings(max_examples=30, deadline=None)
@given(architectures(), st.integers(1, 3), st.integers(1, 5), st.integers(1, 3))
def test_a_stack_is_its_models(arch, models, T, outputs):
    config = TransformerConfig.of(arch, 3, outputs, T, activation="gelu")
    stacked = random_network(config, (models,))
    X = inputs(models, 4, T, 3)
    together = stacked(X)
    for k in range(models):
        assert torch.allclose(together[k], stacked.select(k)(X[k]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_one_layer_is_multihead_attention(causal):
    """x + nn.MultiheadAttention(x, x, x) with the scale 1/sqrt(n), no biases: the same numbers."""
    h, n, T = 3, 2, 5
    E = h * n
    config = TransformerConfig(
        dim=E, heads=(h,), head_dims=(n,), widths=(1,), encoder="none", readout=False, cls=False,
        mask="causal" if causal else "none",
    )  # fmt: skip
    net = random_network(config)
    torch_layer = nn.MultiheadAttention(E, h, bias=False, batch_first=True, dtype=torch.float64)
    layer = net.attentions[0]
    stacked = torch.cat([w.reshape(E, E) for w in (layer.query, layer.key, layer.value)])
    torch_layer.load_state_dict({"in_proj_weight": stacked, "out_proj.weight": layer.output})
    X = inputs(4, T, E)
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else None
    expected, weights = torch_layer(X, X, X, attn_mask=hidden, average_attn_weights=False)
    states = States()
    assert torch.allclose(net(X, states), X + expected, rtol=0, atol=1e-12)
    assert torch.allclose(states.weights[0], weights, rtol=0, atol=1e-12)


def test_cls_layer_is_multihead_attention_of_one_query():
    config = TransformerConfig(dim=4, heads=(2,), head_dims=(2,), widths=(1,), encoder="none", readout=False)
    net = random_network(config)
    layer = net.attentions[0]
    torch_layer = nn.MultiheadAttention(4, 2, bias=False, batch_first=True, dtype=torch.float64)
    stacked = torch.cat([w.reshape(4, 4) for w in (layer.query, layer.key, layer.value)])
    torch_layer.load_state_dict({"in_proj_weight": stacked, "out_proj.weight": layer.output})
    X = inputs(3, 6, 4)
    cls = net.cls_token.expand(3, 1, 4)
    expected = cls + torch_layer(cls, X, X)[0]  # keys are the tokens, never the CLS
    assert torch.allclose(net(X), expected[:, 0], rtol=0, atol=1e-12)


def test_causal_rows_do_not_see_the_future_and_the_cls_sees_all():
    config = TransformerConfig(dim=2, heads=(2, 2), head_dims=(2, 2), widths=(5, 5), mask="causal", cls=False)
    net = random_network(config)
    X = inputs(1, 6, 2)
    changed = X.clone()
    changed[:, 4] += 1.0
    before, after = net(X), net(changed)
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).all()
    with_cls = random_network(TransformerConfig(dim=2, heads=(1,), head_dims=(3,), widths=(5,), mask="causal"))
    assert with_cls(X) != with_cls(changed)


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("hidden", ["nothing", "for all", "for each"])
def test_the_places_asked_answer_as_when_all_do(mask, hidden):
    config = TransformerConfig(dim=2, heads=(2, 2), head_dims=(2, 2), widths=(5, 5), mask=mask, cls=False)
    net, X, places = random_network(config), inputs(3, 6, 2), slice(2, 5)
    rows = {"nothing": None, "for all": torch.rand(3, 1, 6) > 0.3, "for each": torch.rand(3, 6, 6) > 0.3}[hidden]
    asked = net(X, visible=rows, places=places)
    assert asked.shape[1] == 3
    assert torch.allclose(asked, net(X, visible=rows)[:, places], rtol=0, atol=1e-13)


def test_without_positions_order_is_invisible_and_with_them_it_is_not():
    X = inputs(2, 5, 3)
    for positions, options in (("additive", {}), ("augmented", {"position_dim": 2})):
        shape = {"dim": 3, "heads": (2,), "head_dims": (3,), "widths": (7,)}
        plain = random_network(TransformerConfig(**shape))
        assert torch.allclose(plain(X), plain(X.flip(1)), rtol=0, atol=1e-13)
        placed = random_network(TransformerConfig(**shape, positions=positions, length=5, **options))
        placed.position.data.mul_(50)
        assert (placed(X) - placed(X.flip(1))).abs().min() > 1e-6
        assert placed.embed(X).shape == (2, 6, 6)
    states = States()
    placed(X, states)
    assert torch.equal(states.inputs[0][0, :5, 4:], placed.position)  # the last coordinates hold the position
    with pytest.raises(InfoFlowError, match="at most 5 tokens"):
        placed(inputs(1, 6, 3))


def test_hard_attention_is_the_limit_of_a_large_scale_and_splits_ties():
    shape = {"dim": 2, "heads": (1, 1), "head_dims": (3, 3), "widths": (6, 6)}
    hard = random_network(TransformerConfig(**shape, hard=True))
    sharp = random_network(TransformerConfig(**shape, scales=(1e9, 1e9)))
    X = inputs(20, 7, 2)
    assert torch.allclose(hard(X), sharp(X), rtol=0, atol=1e-9)
    states = States()
    hard(X[:1, :1].expand(1, 4, 2), states)
    assert torch.equal(states.weights[0], torch.full((1, 1, 5, 4), 0.25, dtype=torch.float64))


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_rank_one_transformers_of_any_depth(depth):
    """Head dimension 1, value = key, per-token outputs (rank-1 paper, eq. (20))."""
    config = TransformerConfig(
        dim=3, heads=(3,) * depth, head_dims=(1,) * depth, widths=(4,) * depth, outputs=2,
        cls=False, share_key_value=True, ffn_skip=True, ffn_layers=2, activation="relu",
    )  # fmt: skip
    net = random_network(config)
    assert not any("value" in name for name, _ in net.named_parameters())
    assert net(inputs(2, 5, 3)).shape == (2, 5, 2)


def test_layer_norm_follows_the_residual():
    """C.3: LayerNorm(c + attention), then the read-out."""
    config = TransformerConfig(dim=2, heads=(1,), head_dims=(4,), widths=(3,), layer_norm=True, readout=False)
    net = random_network(config)
    X = inputs(3, 5, 2)
    plain = random_network(replace(config, layer_norm=False))
    plain.load_state_dict({k: v for k, v in net.state_dict().items() if "norm" not in k})
    net.attentions[0].norm.weight.data.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    net.attentions[0].norm.bias.data.fill_(0.5)
    gain, shift = net.attentions[0].norm.weight, net.attentions[0].norm.bias
    expected = nn.functional.layer_norm(plain(X), (4,), gain, shift)
    assert torch.allclose(net(X), expected, rtol=0, atol=1e-12)


def test_states_hold_every_layer():
    net = random_network(TransformerConfig(dim=2, heads=(2, 3), head_dims=(2, 1), widths=(4, 5)), (2,))
    states = States()
    net(inputs(2, 6, 5, 2), states)
    assert [tuple(x.shape) for x in states.inputs] == [(2, 6, 6, 4), (2, 6, 6, 3)]
    assert [tuple(x.shape) for x in states.attended] == [(2, 6, 6, 4), (2, 6, 1, 3)]
    assert [tuple(w.shape) for w in states.weights] == [(2, 6, 2, 6, 5), (2, 6, 3, 1, 5)]
    assert states.readout.shape == (2, 6, 1, 3)
    assert torch.allclose(states.weights[0].sum(-1), torch.ones((), dtype=torch.float64))


def test_one_token():
    net = random_network(TransformerConfig(dim=1, heads=(1,), head_dims=(1,), widths=(1,)))
    assert net(inputs(2, 1, 1)).shape == (2,)


def test_wrong_shapes_are_sentences():
    net = random_network(TransformerConfig(dim=2, heads=(1,), head_dims=(2,), widths=(1,)))
    for X in (inputs(3, 4, 3), inputs(2), inputs(3, 0, 2)):
        with pytest.raises(InfoFlowError, match="expected input"):
            net(X)
    for fields in (
        {"dim": 0}, {"position_dim": 1}, {"positions": "augmented", "length": 4}, {"encoder": "none"},
        {"encoder": "mlp"}, {"heads": (1, 2), "head_dims": (2, 2), "widths": (1, 1), "ffn_skip": True},
    ):  # fmt: skip
        with pytest.raises(InfoFlowError, match="expected"):
            TransformerConfig(**{"dim": 3, "heads": (1,), "head_dims": (2,), "widths": (1,), **fields})
    with pytest.raises(InfoFlowError, match="predictions only"):
        TransformerConfig.of(Architecture((4,), (8,), kv_heads=2), 3)


def test_initialisation_law_and_reproducibility():
    config = TransformerConfig(dim=2, heads=(2,), head_dims=(50,), widths=(64,))
    one, two = random_network(config, seed=3), random_network(config, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    bound = 100**-0.5
    assert 0.99 * bound < one.attentions[0].output.abs().max() <= bound
    assert one.readout.maps[0].bias.abs().max() <= bound


@given(st.integers(1, 600), st.integers(1, 40_000))
def test_pieces_divide_the_rows_and_are_neither_too_many_nor_too_small(models, rows):
    count = pieces(models, rows)
    assert rows % count == 0
    assert count == 1 or (rows // count >= FEWEST and models * (count - 1) < BUSY)


def test_a_few_models_keep_a_gpu_busy():
    assert pieces(4, 256 * 24) * 4 >= 256
    assert pieces(512, 256 * 24) == 1


@pytest.mark.parametrize(("shape", "count"), [((3, 8, 8), 3), ((64, 64), 1), ((2, 65, 64), 4), ((3, 1024, 256), 192)])
def test_large_weights_are_many_products(shape, count):
    """Their gradient has work for many processors without being cut."""
    assert tiles(torch.empty(shape)) == count


@given(st.integers(0, 2), st.data())
def test_looking_up_is_a_product_with_ones_and_zeros(stack, data):
    """Values and the gradient of the table, which adds up what repeated and padded tokens bring."""
    size, E = 5, 3
    ids = torch.tensor(data.draw(st.lists(st.integers(-1, size - 1), min_size=12, max_size=12))).view(2, 6)[:, :4]
    table = inputs(*(2,) * stack, size, E)
    found = []
    for one_hot in (True, False):
        leaf, chosen = table.clone().requires_grad_(), ids.expand(*(2,) * stack, 2, 4)
        ones = torch.nn.functional.one_hot(chosen.clamp(min=0), size).to(leaf.dtype)
        rows = ones @ leaf.unsqueeze(-3) if one_hot else look_up(leaf, chosen)
        found.append((rows, *torch.autograd.grad((rows**3).sum(), [leaf])))
    for exact, got in zip(*found, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-12, atol=1e-12)


def test_a_product_in_pieces_is_the_product():
    """Values and both gradients, float64."""
    found = []
    for count in (1, 4):
        rows, weight = inputs(3, 12, 5).requires_grad_(), inputs(3, 5, 2, seed=2).requires_grad_()
        made = product(rows, weight, count)
        found.append((made, *torch.autograd.grad((made**3).sum(), [rows, weight])))
    for whole, parted in zip(*found, strict=True):
        torch.testing.assert_close(parted, whole, rtol=1e-12, atol=1e-12)
