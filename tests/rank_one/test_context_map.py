"""Theorem 2: ids separate at every scale, certificates agree with exact arithmetic, masks and duplicates included."""

import itertools
import math
import sys
from pathlib import Path

import flint
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.compiler.certification import certify
from infoflow.construct.rank_one import certificate as ce
from infoflow.construct.rank_one import contexts as cx
from infoflow.construct.rank_one import scales
from infoflow.construct.rank_one.context_map import ContextMap, separable
from infoflow.construct.rank_one.head import RankOneHead, attention_average, dyadic_shares
from infoflow.construct.rank_one.separation import check_contextual_mapping, same_token_gap
from infoflow.errors import InfoFlowError
from infoflow.nn import files


def distinct(V: int, d: int, n: int, N: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    vocabulary = rng.normal(size=(V, d))
    return vocabulary[np.array([rng.choice(V, n, replace=False) for _ in range(N)])]


def exact_averages(contexts: cx.Contexts, head: RankOneHead, bits: int) -> list:
    return ce.enclose(contexts, head, bits)[0]


@settings(max_examples=30)
@given(
    st.integers(2, 9), st.integers(1, 4), st.integers(1, 5), st.integers(1, 12), st.sampled_from(cx.MASKS),
    st.integers(0, 10**6),
)  # fmt: skip
def test_auto_separates_any_data_that_can_be_separated(
    V: int, d: int, n: int, N: int, mask: cx.Mask, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, V, size=(N, n))  # duplicates included
    if "padding" in mask:
        tokens[np.arange(n) >= rng.integers(1, n + 1, size=(N, 1))] = -1
    contexts = cx.contexts_of(rng.normal(size=(V, d)), tokens, mask)
    made = ContextMap.fit(contexts, merge=True, draws=4, seed=seed)
    assert made.certificate.holds
    assert made.certificate.float64
    r = made.apart.largest * (1 + 1e-9) + made.amplitude * made.apart.largest
    assert check_contextual_mapping(contexts, made.ids(), r, made.gap * 0.999, made.head.key) is None
    assert made.gap > 0


@pytest.mark.parametrize(
    ("V", "d", "n", "N", "known"),
    [
        (4, 2, 2, 4, {"auto": -1.9, "sufficient": -21, "paper": -6790}),
        (10, 3, 4, 20, {"auto": -3.4, "sufficient": -121, "paper": -6.3e5}),
        (50, 8, 8, 200, {"auto": -5.3, "sufficient": -14091}),
    ],
)
def test_the_three_scales_reach_the_known_gaps(V: int, d: int, n: int, N: int, known: dict[str, float]) -> None:
    X = distinct(V, d, n, N)
    for scale, log10_gap in known.items():
        made = ContextMap.fit(X, scale)
        assert made.log10_gap >= log10_gap
        assert made.log10_gap >= scales.paper_gap(made.contexts, made.apart)  # what (8) promises
        assert made.certificate.float64 == (scale == "auto" or made.certificate.method.startswith("a-priori"))
    assert made.contexts.size <= n * N


def test_the_papers_scale_is_provably_separate_and_bit_identical_in_float64() -> None:
    made = ContextMap.fit(distinct(6, 2, 3, 10), "paper")
    pair = same_token_gap(made.contexts.query, made.averages)
    assert pair is not None
    assert pair.gap == 0.0  # what float64 sees
    assert made.certificate.method == "minor identity"
    assert -1e7 < made.certificate.log10_gap < -1000
    assert not made.float64


@pytest.mark.parametrize("scale", ["auto", "sufficient"])
def test_every_certificate_agrees_with_high_precision(scale: str) -> None:
    made = ContextMap.fit(distinct(7, 2, 3, 12, seed=4), scale)
    contexts, head = made.contexts, made.head
    bits = 4000
    balls = exact_averages(contexts, head, bits)
    error = max(abs(float(ball - s)) for ball, s in zip(balls, made.averages.tolist(), strict=True))
    assert error <= ce.rounding_bound(contexts, head)
    before, flint.ctx.prec = flint.ctx.prec, bits
    try:
        truth = min(
            abs(balls[i] - balls[j])
            for i, j in itertools.combinations(range(contexts.size), 2)
            if contexts.query[i] == contexts.query[j]
        )
        log10 = float((truth.log() / flint.arb(10).log()).mid())
    finally:
        flint.ctx.prec = before
    for found in (
        ce.certify_by_balls(contexts, head, made.averages, 2000),
        ce.saturated_order(contexts, head),
        made.certificate,
    ):
        assert found.holds
        assert found.log10_gap <= log10 + 1e-9
        assert found.log10_gap >= log10 - (1e-6 if "a-priori" not in found.method else 0.1)


def test_balls_refuse_what_is_not_separate() -> None:
    """One dimension, values 1 2 4 and 1 3 3 with q = 0-like tiny beta: equal means cannot be told apart by 64 bits."""
    contexts = cx.contexts_of(np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([[0, 1, 3], [0, 2, 2], [1, 1, 2]]))
    head = RankOneHead(np.ones(1), np.full(1, 1e-40), np.ones(1))
    s = attention_average(contexts, contexts.vocabulary[:, 0], 1e-40 * contexts.vocabulary[:, 0])
    assert not ce.certify_by_balls(contexts, head, s, 64).holds
    assert not ce.saturated_order(contexts, head, 64).holds  # here the terms of the identity cancel to first order
    assert ce.certify_gap(contexts, head, s, 0.0).holds  # more bits see the 1e-41


def test_all_subsets_of_a_line_separate() -> None:
    """All n-subsets of {1..m}, d = 1, (12, 6): 5 544 contexts; beta = 0 gives gap 0 there, equal sums."""
    subsets = np.array(list(itertools.combinations(range(12), 6)))
    contexts = cx.contexts_of(np.arange(1.0, 13.0)[:, None], subsets)
    made = ContextMap.fit(contexts)
    assert contexts.size == 12 * math.comb(11, 5)
    assert made.relative_gap >= 9.4e-7
    assert made.float64
    mean = attention_average(contexts, contexts.vocabulary[:, 0], np.zeros(12))
    pair = same_token_gap(contexts.query, mean)
    assert pair is not None
    assert pair.gap < 1e-15


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 64])
def test_head_size_is_irrelevant_and_all_matrices_have_rank_one(size: int) -> None:
    X = distinct(8, 3, 4, 10)
    made = ContextMap.fit(X, head_size=size)
    one = ContextMap.fit(X)
    assert dyadic_shares(size).sum() == 1.0
    assert np.abs(made.ids() - one.ids()).max() == 0.0
    for name, matrix in made.head.matrices().items():
        rows = matrix if name != "W_O" else matrix.T
        ratio = rows / rows[0]
        assert (ratio == ratio[:, :1]).all(), name  # exact powers of two: rank 1 as stored
    with torch.no_grad():
        ids = made.network()(torch.from_numpy(X)).numpy()
    assert np.abs(ids - made.ids()).max() < 4e-15


def test_causal_classes_are_visible_ones() -> None:
    """(1,2,3) and (1,2,4) agree on positions 1 and 2 under a causal mask, whatever their vocabularies."""
    contexts = cx.contexts_of(np.arange(1.0, 5.0)[:, None], np.array([[0, 1, 2], [0, 1, 3]]), "causal")
    assert contexts.size == 4
    made = ContextMap.fit(contexts)
    ids = made.ids()
    assert (ids[0, :2] == ids[1, :2]).all()
    assert ids[0, 2] != ids[1, 2]


def test_masked_maps_keep_the_known_gaps() -> None:
    """Shared prefixes, (500, 16, 32, 300) scaled to a quarter of the sequences."""
    rng = np.random.default_rng(0)
    vocabulary, tokens = rng.normal(size=(500, 16)), rng.integers(0, 500, size=(75, 32))
    tokens[1::3, :20] = tokens[::3, :20]
    padded = tokens.copy()
    padded[np.arange(32) >= rng.integers(4, 33, size=(75, 1))] = -1
    for mask, table, known in (
        ("causal", tokens, 8.0e-6),
        ("padding", padded, 2.4e-5),
        ("causal+padding", padded, 8e-6),
    ):
        made = ContextMap.fit(cx.contexts_of(vocabulary, table, mask), draws=4)
        assert made.relative_gap >= known
        assert made.float64


def test_one_token_and_one_place_are_contexts_too() -> None:
    made = ContextMap.fit(np.ones((1, 1, 1)))
    assert made.contexts.size == 1
    assert math.isinf(made.certificate.log10_gap)
    assert made.to_json()["float64"]


def test_wrong_calls_are_one_sentence() -> None:
    x, y = [1.0, 0.0], [0.0, 1.0]
    with pytest.raises(InfoFlowError, match="proportional multisets at sequence 1 position 1"):
        ContextMap.fit([[x, y], [x, x, y, y]], mask="padding")
    assert ContextMap.fit([[x, y], [x, x, y, y]], mask="padding", merge=True).certificate.holds
    with pytest.raises(InfoFlowError, match="scale"):
        ContextMap.fit([[x, y]], scale="large")
    close = 1 + np.arange(6)[:, None] * 2.0**-50  # contexts of these differ by less than float64 can hold
    with pytest.raises(InfoFlowError, match=r"got 12 with ids .* would fit: use fewer sequences"):
        ContextMap.fit(cx.contexts_of(close, np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4], [2, 3, 5]])))
    with pytest.raises(InfoFlowError, match="head_size"):
        ContextMap.fit([[x, y]], head_size=0)


def test_without_ball_arithmetic_only_saturated_scales_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    assert ContextMap.fit(distinct(6, 2, 3, 10)).certificate.float64
    with pytest.raises(InfoFlowError, match="needs flint"):
        ContextMap.fit(distinct(6, 2, 3, 10), "paper")


def test_saved_head_loads_bit_for_bit(tmp_path: Path) -> None:
    made = ContextMap.fit(distinct(8, 3, 4, 10), head_size=3)
    network = made.network()
    loaded = files.load(made.save(tmp_path / "map.safetensors"))
    for name, value in network.state_dict().items():
        assert torch.equal(value, loaded.network.state_dict()[name])
    assert loaded.header["certificate"] == made.certificate.to_json()
    with pytest.raises(InfoFlowError, match="smallest gap"):
        certify(loaded, eps=0.1)
    found = certify(loaded)
    assert found.holds
    assert found.attacked is None
    assert found.measured["executed ids from x + a s"] < 1e-12
    assert found.claim.limit <= found.bound == made.log10_gap


def test_the_a_priori_bound_is_not_taken_on_trust() -> None:
    made = ContextMap.fit(distinct(7, 2, 3, 12, seed=4))
    error = ce.rounding_bound(made.contexts, made.head)
    for measured in (error, 2 * error):
        assert ce.certify_gap(made.contexts, made.head, made.averages, measured).method == "Arb enclosures"
    assert ce.certify_gap(made.contexts, made.head, made.averages, 3 * error).log10_gap <= math.log10(1.01 * error)


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_dropped_terms_of_the_identity_stay_inside_the_ball(seed: int) -> None:
    """With next to nothing kept, the difference is wide or undecided, but never wrong."""
    rng = np.random.default_rng(seed)
    contexts = cx.contexts_of(rng.normal(size=(6, 2)), rng.integers(0, 6, size=(6, 4)))
    head = RankOneHead(rng.normal(size=2), 3 * rng.normal(size=2), np.ones(2))
    exact = exact_averages(contexts, head, 400)
    minors = ce._Minors(contexts, head)
    minors.CUT = 0.0
    for i, j in itertools.combinations(range(contexts.size), 2):
        if contexts.query[i] != contexts.query[j]:
            continue
        try:
            value, centre = minors.difference(i, j)
        except ce._Undecided:
            continue
        shift = centre - minors.log_total(i) - minors.log_total(j)
        assert (value * shift.exp()).overlaps(exact[i] - exact[j])
        assert minors.difference(j, i)[0].overlaps(-value)


@pytest.mark.parametrize("seed", range(20))
def test_balls_only_where_float64_is_in_doubt_give_the_same_gap(seed: int) -> None:
    """Float64 averages with an error put into them: the bound of the true gap stands, near the true gap or below."""
    rng = np.random.default_rng(seed)
    contexts = cx.contexts_of(rng.normal(size=(5, 2)), rng.integers(0, 5, size=(30, 3)))
    head = RankOneHead(rng.normal(size=2), rng.normal(size=2), np.ones(2))
    s = attention_average(contexts, contexts.vocabulary @ head.key, contexts.vocabulary @ head.query)
    exact = exact_averages(contexts, head, 200)
    pairs = [p for p in itertools.combinations(range(contexts.size), 2) if len(set(contexts.query[list(p)])) == 1]
    truth = min(float(abs(exact[i] - exact[j])) for i, j in pairs)
    error = ce.rounding_bound(contexts, head)
    for noise in (np.zeros(contexts.size), rng.uniform(-0.9, 0.9, contexts.size) * error):
        found = ce.certify_by_balls(contexts, head, s + noise, 128)
        assert found.holds
        assert truth * (1 - 1e-6) <= found.gap <= truth
    # a wide rounding bound: float64 decides nothing, and wrong averages do no harm
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ce, "rounding_bound", lambda *_: 10.0)
        found = ce.certify_by_balls(contexts, head, rng.permutation(s), 128)
    assert truth * (1 - 1e-6) <= found.gap <= truth


def test_tokens_too_close_say_how_many_contexts_would_fit() -> None:
    X = [[[1 + 3e-16 * i], [2 + 5e-16 * j]] for i in range(10) for j in range(10)]
    with pytest.raises(InfoFlowError, match=r"about \d+ would fit") as refusal:
        ContextMap.fit(np.array(X))
    contexts = cx.read_contexts(np.array(X))
    fit = int(str(refusal.value).split("about ")[1].split()[0])
    assert len(contexts.vocabulary) <= fit < contexts.size  # one context of each token always fits


@given(st.integers(1, 30), st.floats(0, 1), st.integers(0, 10**6))
def test_separable_counts_greedily_what_brute_force_can_keep(M: int, error: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    contexts = cx.contexts_of(np.arange(1.0, 4.0)[:, None], rng.integers(0, 3, size=(M, 3)))
    s = rng.normal(size=contexts.size)
    best = 0
    for token in range(3):
        values = np.sort(s[contexts.query == token])
        longest = np.ones(len(values), dtype=int)  # the longest chain of values more than 2 error apart, ending here
        for k in range(len(values)):
            earlier = longest[:k][values[k] - values[:k] > 2 * error]
            longest[k] = 1 + (earlier.max() if len(earlier) else 0)
        best += int(longest.max(initial=0))
    assert separable(contexts, s, error) == best


def test_no_id_moves_further_than_a_quarter_of_the_distance_of_tokens() -> None:
    made = ContextMap.fit(np.random.default_rng(0).normal(size=(3, 4, 2)))
    furthest = made.amplitude * float(np.abs(made.contexts.vocabulary @ made.head.key).max())
    assert furthest == pytest.approx(min(made.apart.distance, 2 * made.apart.largest) / 4, rel=1e-12)
