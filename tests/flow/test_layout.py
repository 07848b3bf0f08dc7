"""Layouts: shapes of the theorems, schedules, named directions, refusals with every reason."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow import Architecture
from infoflow import targets as it
from infoflow.flow.jobs import assign, minimal_heads
from infoflow.flow.layout import Refused, lay_out, schedules
from infoflow.flow.normal_form import normal_form
from infoflow.flow.rank import independent_rows, reduce_rank
from infoflow.targets.score import factor


@pytest.mark.parametrize(("D", "d"), [(1, 3), (2, 4), (3, 2), (4, 4), (6, 5)])
def test_pairs_have_the_embedding_of_the_theorem(D, d):
    layout = lay_out(it.pairwise_max(D, d), 64)
    assert layout.heads == (D, D)
    assert layout.embed == (D * (d + -(-d // D)), 2 * D)


def test_theorem_4_and_its_directions():
    layout = lay_out(it.min_pair(), 8)
    assert (layout.heads, layout.embed) == ((1, 1), (6, 2))
    assert layout.directions[0] == ("x[1]", "x[2]", "x[3]", *(f"term1.message(2->1)[{k}]" for k in (1, 2, 3)))
    assert layout.directions[1] == ("term1.score(1)", "one")


@pytest.mark.parametrize(
    ("target", "heads", "embed"),
    [
        (it.star(3, 3), (2, 1), (10, 2)),
        (it.star(4, 4), (3, 1), (18, 2)),
        (it.chain(5, 3), (2, 2, 1), (10, 14, 2)),
        (it.sum_of_maxima(5, 3), (5,), (5,)),
        (it.d_retrieval(3, 2, sets=((0,), (1, 2), (3,))), (3,), (3,)),
        (it.position_sum(d=4), (1,), (5,)),
    ],
)
def test_shapes(target, heads, embed):
    layout = lay_out(target, 8)
    assert (layout.heads, layout.embed) == (heads, embed)


def test_depth_stands_in_for_heads():
    layout = lay_out(it.pairwise_max(4, 4), 64, Architecture((1,) * 5, (13,) * 5))
    assert [[job.name for job in jobs] for jobs in layout.jobs] == [
        ["term1.message(2->1)"],
        ["term2.message(2->1)", "term1.read"],
        ["term3.message(2->1)", "term2.read"],
        ["term4.message(2->1)", "term3.read"],
        ["term4.read"],
    ]
    assert all("cls" in names for names in layout.directions)
    with pytest.raises(Refused, match="more than heads=1,1,1,1 can serve"):
        lay_out(it.pairwise_max(4, 4), 64, Architecture((1,) * 4, (20,) * 4))


def test_low_rank_needs_less():
    rng = np.random.default_rng(0)
    A = np.outer(rng.standard_normal(6), rng.standard_normal(6))
    layout = lay_out(it.Target.sum(it.Extremum(it.TreeScore.bilinear(A))), 8)
    # both factors are carried: keys and queries come from the same stream
    assert layout.embed == (3, 2)


def test_layouts_do_not_see_T():
    assert lay_out(it.star(), 8).embed == lay_out(it.star(), 10**6).embed


def test_schedules_cannot_be_lowered():
    form = normal_form(it.pairwise_max(3, 2), 8)
    found = [layout.heads for layout in schedules(it.pairwise_max(3, 2), 4, 3)]
    assert (3, 3) in found
    assert (1, 1, 1, 1) in found
    for heads in found:
        for i, h in enumerate(heads):
            assert h == 1 or assign(form, (*heads[:i], h - 1, *heads[i + 1 :])) is None


def tree(parents: list[int]) -> it.Extremum:
    """A tree on vertices 0..k-1, vertex v + 1 hanging on parents[v]."""
    left, right = factor(np.eye(1))
    edges = tuple(it.Edge(parent, v, left, right) for v, parent in enumerate(parents, 1))
    unary = (it.Polynomial.linear([[1.0]]), *[None] * len(parents))
    return it.Extremum(it.TreeScore(unary, edges, 1))


SHAPES = st.integers(0, 3).flatmap(lambda n: st.tuples(*(st.integers(0, v) for v in range(n))))


@settings(max_examples=40, deadline=None)
@given(st.lists(SHAPES, min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 4))
def test_minimal_heads_equal_the_whole_enumeration(shapes, max_layers, max_heads):
    form = normal_form(it.Target.sum(*(tree(list(parents)) for parents in shapes)), 4)
    slow = []
    for layers in range(1, max_layers + 1):
        for heads in product(range(1, max_heads + 1), repeat=layers):
            lower = [(*heads[:i], h - 1, *heads[i + 1 :]) for i, h in enumerate(heads) if h > 1]
            if assign(form, heads) is not None and all(assign(form, smaller) is None for smaller in lower):
                slow.append(heads)
    assert list(minimal_heads(form, max_layers, max_heads)) == slow


def test_refusals_name_every_reason():
    bad = it.Target.sum(
        it.KthLargest(3, np.ones(2)),
        it.Extremum(it.NormOfSum(3, 2), "min"),
        it.Extremum(it.star(3, 2).terms[0].score, distinct=True),
    )
    with pytest.raises(Refused) as refused:
        lay_out(bad, 8)
    assert len(refused.value.reasons) == 3
    assert "3-th largest" in refused.value.reasons[0]


@pytest.mark.parametrize(
    ("arch", "reason"),
    [
        (Architecture((1, 1), (5, 2)), "layer 1 has embed=5, this schedule needs 6"),
        (Architecture((1,), (6,)), "needs 2 layers"),
        (Architecture((1, 1), (6, 2), rotary=True), "rotary"),
        (Architecture((2, 2), (12, 4), kv_heads=(1, 1)), "groups key-value heads"),
    ],
)
def test_small_architectures_are_told_what_is_missing(arch, reason):
    with pytest.raises(Refused, match=reason):
        lay_out(it.min_pair(), 8, arch)


def test_causal_mask():
    causal = Architecture((1, 1), (6, 2), mask="causal")
    lay_out(it.min_pair(), 8, causal)  # symmetric: every pair is seen from its later position
    with pytest.raises(Refused, match="position 1 never sees position 2"):
        lay_out(it.pairwise_max(1, 3), 8, causal)


def test_positions_are_needed_for_position_sets():
    with pytest.raises(Refused, match="names positions"):
        lay_out(it.position_sum(), 8, Architecture((1,), (8,)))
    with pytest.raises(Refused, match="positions"):
        lay_out(it.position_sum((7,)), 4)


@pytest.mark.parametrize("domain", ["ball", (1, 0), (0, np.inf), ((0, 0, 0), (1, 1)), 3])
def test_domains_that_are_not_boxes(domain):
    with pytest.raises(Refused, match="box"):
        lay_out(it.pairwise_max(1, 2), 4, domain=domain)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_rank_reduction_keeps_the_form(seed, m, rank, d):
    rng = np.random.default_rng(seed)
    psi = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, d))
    phi = rng.standard_normal((m, d))
    left, right = reduce_rank(psi, phi)
    assert np.allclose(left.T @ right, psi.T @ phi, atol=1e-9)
    assert len(left) <= max(1, min(m, rank, d))
    basis, coordinates = independent_rows(psi)
    assert np.allclose(coordinates @ basis, psi, atol=1e-9)
    assert len(basis) == np.linalg.matrix_rank(psi)
