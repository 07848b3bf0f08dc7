"""Budgets: bounds below eps, widths that do not see T, their growth with 1/eps, refusals."""

import math

import numpy as np
import pytest

from infoflow import Architecture
from infoflow import targets as it
from infoflow.certificates.rules import softmax_gap
from infoflow.compiler.blocks import choose
from infoflow.compiler.budget import budget
from infoflow.compiler.wiring import SLOT_GAINS
from infoflow.flow.layout import Refused, lay_out

THEOREM_4 = it.min_pair()


def spend(target, T, eps, arch=None, **options):
    return budget(lay_out(target, T, arch), eps, **options)


@pytest.mark.parametrize("eps", [0.5, 0.1, 0.01, 1e-3, 1e-6])
def test_bound_is_the_sum_of_its_parts_and_below_eps(eps):
    plan = spend(THEOREM_4, 16, eps)
    assert plan.bound == pytest.approx(sum(plan.parts.values()), rel=1e-9)
    assert plan.bound <= eps
    assert plan.parts["softmax"] == pytest.approx(eps / 4, rel=1e-6)


def test_widths_are_below_the_printed_ones():
    printed = {0.5: (36, 55), 0.1: (60, 56), 0.03: (60, 56), 0.01: (108, 94)}
    printed |= {1e-3: (144, 94), 1e-4: (144, 130), 1e-6: (300, 165)}
    for eps, widths in printed.items():
        spent = spend(THEOREM_4, 4, eps)
        assert sum(spent.widths) <= sum(widths)
        assert spent.betas[0] < 18 * (0.25 / spent.wiring.gain) * softmax_gap(4) / (0.25 * eps)


@pytest.mark.parametrize("target", [THEOREM_4, it.pairwise_max(D=2, d=2, seed=0), it.star(k=3, d=2, seed=0)])
@pytest.mark.parametrize("eps", [0.1, 1e-3])
def test_no_neighbouring_gain_needs_fewer_units(target, eps):
    layout = lay_out(target, 8)
    units = [sum(budget(layout, eps, gain=gain).widths) for gain in SLOT_GAINS]
    found = budget(layout, eps)
    here = SLOT_GAINS.index(found.wiring.gain)
    assert sum(found.widths) == units[here]
    assert units[here] == min(units[max(here - 1, 0) : here + 2])
    assert units[here] <= units[SLOT_GAINS.index(0.25)]


def test_a_gain_is_taken_that_fits_the_given_widths():
    """The fewest units at eps = 0.03 are 60 + 53; an architecture with less room in the first block is served, too."""
    assert spend(THEOREM_4, 4, 0.03).widths == (60, 53)
    narrow = spend(THEOREM_4, 4, 0.03, Architecture((1, 1), (6, 6), (48, 100)))
    assert narrow.widths == (48, 76)


def test_widths_do_not_see_T_and_beta_does():
    small, large = spend(it.pairwise_max(2, 3), 8, 0.01), spend(it.pairwise_max(2, 3), 10**6, 0.01)
    assert small.widths == large.widths
    assert large.betas[0] / small.betas[0] == pytest.approx(softmax_gap(10**6) / softmax_gap(8), rel=1e-3)


def test_growth_of_the_two_rules():
    eps = [10.0**-k for k in range(1, 5)]
    plain = [sum(spend(THEOREM_4, 4, e, rule="plain").widths) for e in eps[:3]]
    smart = [sum(spend(THEOREM_4, 4, e).widths) for e in eps]
    slope = math.log(plain[2] / plain[1]) / math.log(10)
    assert 0.8 < slope < 1.1  # width ~ 1/eps
    assert smart[-1] < 1.0 * smart[0] * (math.log(eps[-1]) / math.log(eps[0])) ** 2  # at most log^2(1/eps)


def test_unbounded_weights_need_constant_width():
    assert spend(THEOREM_4, 4, 1e-2, weight_bound=None).widths == spend(THEOREM_4, 4, 1e-4, weight_bound=None).widths


def test_one_token_needs_no_temperature():
    assert spend(THEOREM_4, 1, 0.1).parts["softmax"] == 0.0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"eps": 0.0}, "eps must be a positive number"),
        ({"eps": -1.0}, "eps"),
        ({"eps": float("nan")}, "eps"),
        ({"weight_bound": 0.5}, "weight bound is 0.5"),
        ({"rule": "magic"}, "rule"),
        ({"eps": 1e-15}, "float64"),
    ],
)
def test_refusals(options, reason):
    eps = options.pop("eps", 0.1)
    with pytest.raises(Refused, match=reason):
        spend(THEOREM_4, 4, eps, **options)


def test_widths_must_fit():
    with pytest.raises(Refused) as refused:
        spend(THEOREM_4, 4, 0.01, Architecture((1, 1), (6, 6), width=10))
    assert len(refused.value.reasons) == 2


def test_a_network_beyond_memory_is_refused_with_its_size():
    steep = it.Target(it.pairwise_max(1, 4).terms, it.Polynomial.linear([[1e6]]), 4)
    with pytest.raises(Refused, match="GiB"):
        spend(steep, 4, 1e4)


@pytest.mark.parametrize("kind", ["plain", "chebyshev"])
def test_choose_keeps_its_tolerance_and_the_weight_bound(kind):
    for tolerance in (1e-2, 1e-3):
        choice = choose(2, 0.7, (0.5, 0.8), (1.0, 1.0), tolerance, 1.0, kind)
        assert choice.error <= tolerance
        assert max(choice.scales) <= 1.0
        factor = 0.7 / (4 * math.prod(choice.scales))
        assert (factor * np.abs(choice.rule.coefficients) <= np.array(choice.copies) * (1 + 1e-12)).all()
