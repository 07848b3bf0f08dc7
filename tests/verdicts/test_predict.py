"""predict: the three verdicts, the exact numbers behind them, and their JSON."""

import json
from fractions import Fraction

import numpy as np
import pytest
import torch

import infoflow as iflow
from infoflow import Architecture, targets
from infoflow.commands.options import encode
from infoflow.errors import InfoFlowError
from infoflow.flow.trace import trace
from infoflow.nn import Transformer, TransformerConfig
from infoflow.verdicts.estimate import estimate_flow

EQ6 = targets.pairwise_max(D=4, d=4)


def test_public_names():
    assert iflow.predict(EQ6, Architecture((4, 4), 24), T=64).verdict == "constructed"
    assert callable(iflow.plan)
    assert callable(iflow.trace)
    assert callable(iflow.scale)


def test_constructed_with_widths_and_bound():
    found = iflow.predict(EQ6, Architecture((4, 4), 24), T=64, eps=1e-2)
    assert found.constructed.heads == (4, 4)
    assert found.constructed.embed == (20, 8)
    assert len(found.constructed.widths) == 2
    assert 0 < found.constructed.bound <= 1e-2
    assert found.proved is None
    assert found.counting.model == 18758
    assert found.counting.required["ordered"] == 4 * (64**2 - 1)


@pytest.mark.parametrize("heads", [(3, 4), (4, 3)])
def test_fewer_heads_are_open(heads):
    found = iflow.predict(EQ6, Architecture(heads, 24), T=64)
    assert found.verdict == "open"
    assert found.constructed is None
    assert found.flow.modes[-1] == {"tokens": "skip", "cls": "global"}
    assert found.flow.exponent == Fraction(64 * 4, 24) - 1
    assert any("no construction" in reason for reason in found.reasons)


def test_depth_stands_in_for_heads():
    assert iflow.predict(EQ6, Architecture((1,) * 5, 24), T=64).verdict == "constructed"


def test_small_embedding_or_width_is_refused_with_the_layer():
    small = iflow.predict(EQ6, Architecture((4, 4), (16, 8)), T=64)
    assert small.verdict == "open"
    assert any("layer 1" in reason and "16" in reason for reason in small.reasons)
    assert small.flow.modes[0]["tokens"] == "max"  # the flow is limited by heads, its cost by the embedding
    narrow = iflow.predict(EQ6, Architecture((4, 4), 24, width=8), T=64)
    assert narrow.verdict == "open"
    assert any("width" in reason for reason in narrow.reasons)


def test_proved_hard_states_width_exponent_and_class():
    found = iflow.predict(targets.min_pair(), Architecture(1, 6, width=100), T=64, eps=1e-4)
    assert found.verdict == "proved hard"
    assert found.proved.exponent == Fraction(27, 4)
    assert found.proved.width_at_eps > 1
    assert any("weights at most 1" in text for text in found.proved.assumes)
    assert any("100 is below" in reason for reason in found.reasons)


def test_an_exponent_alone_proves_nothing_at_a_usual_eps():
    found = iflow.predict(targets.min_pair(), Architecture(1, 6), T=64, eps=1e-2)
    assert found.verdict == "open"
    assert found.proved.width_at_eps is None
    assert found.proved.exponent == Fraction(27, 4)


def test_unbounded_weights_leave_no_lower_bound():
    found = iflow.predict(targets.min_pair(), Architecture(1, 6), T=64, eps=1e-6, weight_bound=None)
    assert found.verdict == "open"
    assert found.proved is None


def test_weights_within_one_serve_a_larger_bound():
    assert iflow.predict(EQ6, Architecture((4, 4), 24), T=64, weight_bound=3.0).verdict == "constructed"
    assert iflow.predict(EQ6, Architecture((4, 4), 24), T=64, weight_bound=0.5).verdict == "open"


def test_linear_features_fail_the_head_count_hypotheses_and_it_is_said():
    found = iflow.predict(targets.sum_of_maxima(), Architecture(1, 4), T=64, eps=1e-8)
    assert found.verdict == "open"
    assert found.proved is None
    assert any("head-count theorem says nothing" in reason for reason in found.reasons)


def test_triangle_center_numbers():
    arch = Architecture((2, 2), 24)
    ordered = iflow.predict(targets.triangle_center(), arch, T=64)
    assert (ordered.counting.smallest_set, ordered.counting.exponent) == (16, Fraction(1, 3))
    lower = iflow.predict(targets.triangle_center(), arch, T=64, count="lower")
    assert (lower.counting.smallest_set, lower.counting.exponent) == (8, 0)
    assert lower.counting.used == "lower"
    assert ordered.counting.dimension == ordered.counting.order == 3


def test_flow_cost_of_the_explicit_network_is_d_minus_one_at_least_embedding():
    """(2D) tokens of dimension d in E_2 = 2D directions: the framework charges d - 1, the network costs polylog."""
    flow = estimate_flow(EQ6, Architecture((4, 4), (20, 8)), 64)
    assert flow.cls_sets == (0, 8)
    assert flow.token_sets == (5, 5)
    assert flow.exponent == 3


def test_a_token_forgets_what_it_has_passed_on():
    """Path of 5: both sides send inwards; behind layer 2 a token keeps, as the centre, itself and two pairs."""
    flow = estimate_flow(targets.chain(length=5, d=2), Architecture((2, 2, 1), 80), 64)
    assert flow.token_sets == (3, 5, 5)
    assert flow.cls_sets == (0, 0, 5)
    deep = estimate_flow(EQ6, Architecture((1,) * 5, 24), 64)
    assert deep.token_sets == (2, 2, 2, 2, 2)
    assert deep.cls_sets == (0, 2, 4, 6, 8)


@pytest.mark.parametrize(
    ("F", "heads"),
    [
        (EQ6, (4, 4)),
        (EQ6, (1, 1, 1, 1, 1)),
        (targets.star(k=4, d=2), (3, 1)),
        (targets.chain(length=5, d=2), (2, 2, 1)),
        (targets.sum_of_maxima(), (4,)),
    ],
    ids=lambda value: getattr(value, "spelling", None) or str(value),
)
def test_closed_form_sets_lie_between_what_is_active_and_what_is_simulated(F, heads):
    """The chosen flow forgets what is spent: never more than the plain simulation, never less than the active set."""
    arch = Architecture(heads, tuple(48 * h for h in heads))
    T = 40
    flow = estimate_flow(F, arch, T)
    sizes = np.zeros((len(heads), 2), dtype=int)
    for X in F.sample(30, T, seed=4):
        traced = trace(F, arch, X)
        for l in range(1, len(heads) + 1):
            sizes[l - 1, 0] = max(sizes[l - 1, 0], max(len(traced.members(t, l)) for t in range(1, T + 1)))
            sizes[l - 1, 1] = max(sizes[l - 1, 1], len(traced.members(T + 1, l)))
        assert traced.active.sum() <= flow.cls_sets[-1]
    if len(heads) <= 2:
        assert (sizes[:, 1] <= flow.cls_sets[-1] * max(flow.token_sets)).all()
        assert flow.token_sets[0] == sizes[0, 0]


def test_short_sequences_take_the_cheaper_flow():
    flow = estimate_flow(EQ6, Architecture((4, 4), (4, 4)), 4)
    assert flow.exponent == min(Fraction(4 * 4, 4) - 1, flow.exponent)
    assert max(flow.cls_sets) <= 4


def test_position_targets():
    with_code = iflow.predict(targets.position_sum(), Architecture(2, 8, positions="additive"), T=8)
    assert with_code.flow.modes == ({"tokens": "skip", "cls": "specific"},)
    assert with_code.flow.cls_sets == (3,)
    assert with_code.counting.required["lower"] == 0
    without = iflow.predict(targets.position_sum(), Architecture(2, 8), T=8)
    assert without.verdict == "open"
    assert any("permuted" in reason for reason in without.reasons)


@pytest.mark.parametrize(
    ("arch", "same"),
    [
        (Architecture((2, 1), 8), True),
        (Architecture(2, 8, mask="causal"), True),  # the CLS, which sees all tokens, reads them once
        (Architecture((2, 1), 8, mask="causal"), False),
        (Architecture((2, 1), 8, rotary=True), False),
    ],
    ids=str,
)
def test_permutations_are_named_only_where_they_change_nothing(arch, same):
    found = iflow.predict(targets.position_sum(), arch, T=8)
    assert any("permuted" in reason for reason in found.reasons) == same
    if not arch.rotary:
        config = TransformerConfig(2, arch.heads, arch.head_dims, (4,) * arch.layers, mask=arch.mask)
        net = Transformer(config).double()
        torch.manual_seed(0)
        with torch.no_grad():
            for tensor in net.parameters():
                tensor.normal_().mul_(0.3)  # tanh is far from flat
        X = torch.randn(1, 8, 2, dtype=torch.float64)
        with torch.no_grad():
            assert torch.allclose(net(X), net(X.flip(1)), rtol=0.0, atol=1e-12) == same


def test_causal_mask_names_the_position_and_the_way_out():
    found = iflow.predict(EQ6, Architecture((4, 4), 24, mask="causal"), T=64)
    assert found.verdict == "open"
    assert any("position 1" in reason for reason in found.reasons)
    assert any("one for A and one for A'" in reason for reason in found.reasons)
    symmetric = iflow.predict(targets.min_pair(), Architecture((1, 1), 6, mask="causal"), T=64)
    assert symmetric.verdict == "constructed"


def test_json_shape():
    payload = json.loads(json.dumps(encode(iflow.predict(targets.min_pair(), Architecture(1, 6), 64, 1e-4).to_json())))
    assert set(payload) >= {"verdict", "reasons", "counting", "flow", "proved", "constructed"}
    assert "temperature" not in payload
    assert set(payload["counting"]) >= {
        "dimension",
        "order",
        "required",
        "used",
        "model",
        "smallest_set",
        "feasible",
        "exponent",
        "kind",
    }
    assert set(payload["counting"]["required"]) == {
        "lower",
        "ordered",
        "unordered_with_repetition",
        "unordered_distinct",
    }
    assert set(payload["flow"]) >= {"learns", "modes", "token_sets", "cls_sets", "count", "exponent", "kind"}
    assert set(payload["proved"]) >= {"statement", "exponent", "eps", "width_at_eps", "assumes"}
    assert payload["proved"]["exponent"] == "27/4"
    assert payload["constructed"] is None
    constructed = encode(iflow.predict(targets.min_pair(), Architecture((1, 1), 6), 64).to_json())["constructed"]
    assert set(constructed) >= {"heads", "embed", "widths", "bound"}


def test_text_is_a_table():
    text = str(iflow.predict(EQ6, Architecture((4, 4), 24), T=64))
    assert "verdict      constructed" in text
    assert "(estimate)" in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"T": 0}, "at least 1"),
        ({"T": 64, "eps": 0.0}, "eps to be a finite number above 0"),
        ({"T": 64, "eps": float("nan")}, "eps to be a finite number above 0"),
        ({"T": 64, "weight_bound": -1.0}, "weight bound"),
        ({"T": 64, "count": "all"}, "'all'"),
    ],
)
def test_wrong_calls(call, words):
    with pytest.raises(InfoFlowError, match=words):
        iflow.predict(EQ6, Architecture((4, 4), 24), **call)


def test_a_count_that_is_not_proved_is_not_used():
    with pytest.raises(InfoFlowError, match="lower"):
        iflow.predict(targets.kth_largest(), Architecture(1, 4), T=64, count="lower")


def test_a_million_tokens():
    found = iflow.predict(EQ6, Architecture((4, 4), 24), T=10**6)
    assert found.verdict == "constructed"
    assert found.counting.required["ordered"] == 4 * (10**12 - 1)
