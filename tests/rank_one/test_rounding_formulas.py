"""The rounding allowances are the formulas of their docstrings, to the last factor: written out once more here."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from infoflow.construct.rank_one import certificate, context_map, memorize
from infoflow.construct.rank_one import contexts as cx
from infoflow.construct.rank_one.head import RankOneHead, attention_average
from infoflow.errors import InfoFlowError, JobError

U = 2.0**-53
X = np.array([[[0.0, 3.0, -1.0], [0.5, 0.25, 2.0]], [[0.0, 3.0, -1.0], [-4.0, 0.125, 0.0]]])


def gamma(k: int) -> float:
    return k * U / (1 - k * U)


def setting(scale: float = 1.0, size: int = 3) -> tuple[cx.Contexts, RankOneHead]:
    head = RankOneHead(
        np.array([0.3, -0.7, 0.2]) * scale, np.array([0.6, 0.1, -0.4]), np.array([0.01, -0.03, 0.02]), size
    )
    return cx.read_contexts(X), head


def averages(contexts: cx.Contexts, head: RankOneHead) -> np.ndarray:
    return attention_average(contexts, contexts.vocabulary @ head.key, contexts.vocabulary @ head.query)


def projected(contexts: cx.Contexts, direction: np.ndarray, size: int) -> tuple[float, float]:
    error = gamma(3 + size + 2) * np.max(np.abs(contexts.vocabulary) @ np.abs(direction))
    return np.max(np.abs(contexts.vocabulary @ direction)) + error, error


@pytest.mark.parametrize("size", [1, 4])
def test_the_bound_of_an_average(size: int) -> None:
    contexts, head = setting(size=size)
    (P, dp), (Q, dq) = (projected(contexts, v, size) for v in (head.key, head.query))
    assert certificate.projected(contexts, head.key, size) == pytest.approx((P, dp), rel=1e-13, abs=0)
    e = dp * Q + P * dq + dp * dq + 8 * U * P * Q
    assert certificate.logit_error(contexts, head) == pytest.approx(e, rel=1e-13, abs=0)
    h, n = math.expm1(e) + 8 * U, contexts.members.shape[1]
    wanted = P * (h / (1 - h) + 2 * gamma(n + 2)) * (1 + 1e-9) + dp
    assert certificate.rounding_bound(contexts, head) == pytest.approx(wanted, rel=1e-13, abs=0)
    assert certificate.gamma(7) == pytest.approx(7 * U / (1 - 7 * U), rel=1e-15, abs=0)


def test_logits_that_rounding_blurs_leave_nothing() -> None:
    """Beyond an error of 1/2 of a logit the average may be anything: two points of [-P, P] are 2 P apart."""
    for scale, blurred in ((3e13, False), (4e13, True)):
        contexts, head = setting(scale)
        assert (certificate.logit_error(contexts, head) > 0.5) == blurred
        P = projected(contexts, head.key, head.size)[0]
        bound = certificate.rounding_bound(contexts, head)
        assert (bound == pytest.approx(2 * P, rel=1e-13, abs=0)) == blurred


def test_the_bounds_of_a_state_and_of_its_readout() -> None:
    contexts, head = setting()
    average, largest = certificate.rounding_bound(contexts, head), np.max(np.abs(contexts.vocabulary @ head.key))
    a = np.max(np.abs(head.output))
    size = np.max(np.abs(contexts.vocabulary)) + a * largest
    wanted = a * average + 2 * gamma(head.size + 6) * size
    assert memorize.state_error(contexts, head) == pytest.approx(wanted, rel=1e-13, abs=0)
    w = np.array([0.5, -1.5, 2.5])
    across = float(np.abs(w) @ np.abs(head.output))
    size = np.max(np.abs(contexts.vocabulary) @ np.abs(w)) + across * largest
    wanted = across * average + 2 * gamma(3 + head.size + 6) * size
    assert memorize._readout_error(contexts, head, w) == pytest.approx(wanted, rel=1e-13, abs=0)


def test_the_distance_of_ids() -> None:
    """Tokens 0.01 apart and 200 large: log10 sees 1e-13 of the size. Ids of one token: |a| times the averages' gap."""
    close = np.array([[[200.0, 0.0], [200.0, 0.01]]])
    contexts, head = (
        cx.read_contexts(close),
        RankOneHead(np.array([1e-6, 2e-6]), np.array([1.0, 1.0]), np.array([3.0, 4.0])),
    )
    far = certificate.GapCertificate(1.0, 0.0, "", 53, 2, True)
    P = float(np.max(np.abs(contexts.vocabulary @ head.key)))
    error = gamma(2 + 1 + 2) * float(np.max(np.abs(contexts.vocabulary) @ np.abs(head.key)))
    kept = math.log10(0.01 - 2 * 5 * (P + error) - 1e-13 * float(np.linalg.norm(contexts.vocabulary, axis=1).max()))
    assert context_map.ids_apart(contexts, head, far) == pytest.approx(kept - 1e-14 * (1 + abs(kept)), abs=1e-13)
    near = certificate.GapCertificate(1e-9, -9.0, "", 53, 2, True)
    same = -9.0 + math.log10(5)
    assert context_map.ids_apart(contexts, head, near) == same - 1e-14 * (1 + abs(same))
    assert context_map.ids_apart(contexts, RankOneHead(head.key, head.query, 0 * head.output), near) == -math.inf
    none = certificate.GapCertificate(math.inf, math.inf, "", 53, 2, True)
    assert context_map.ids_apart(contexts, RankOneHead(head.key, head.query, 10 * head.output), none) == -math.inf
    assert context_map.ids_apart(cx.read_contexts(close[:, :1]), head, none) == math.inf


def test_a_gap_below_float64_is_none() -> None:
    """10^-310 is no normal number, so its rounding is larger than the 1e-12 that is taken off."""
    assert certificate._power(-310.0) == certificate._power(-300.5) == 0.0
    assert 0.9999999 * 10.0**-299 < certificate._power(-299.0) <= 10.0**-299 * (1 - 1e-12)


def test_numbers_of_a_certificate_are_plain() -> None:
    made = certificate.GapCertificate(1e-9, -9.0, "balls", 64, 2, True)
    assert made.to_json() == {
        "gap": 1e-9, "log10_gap": -9.0, "method": "balls", "bits": 64, "classes": 2, "float64": True, "holds": True
    }  # fmt: skip
    none = certificate.GapCertificate(math.inf, math.inf, "", 53, 2, True).to_json()
    assert none["gap"] is none["log10_gap"] is None


def test_ids_are_apart_in_float64_where_the_gap_is_above_the_rounding_of_a_state() -> None:
    made = context_map.ContextMap.fit(X)
    a, x = np.abs(made.head.output), np.abs(made.contexts.vocabulary).max(0)
    needed = float((4 * U * (x + 2 * a * np.abs(made.averages).max()) / a).min())
    for gap, float64, kept in ((1.01 * needed, True, True), (0.99 * needed, True, False), (1.0, False, False)):
        stated = replace(made.certificate, gap=gap, float64=float64)
        assert replace(made, certificate=stated).float64 is kept
    assert replace(made, certificate=replace(made.certificate, gap=math.inf, float64=True)).float64


def test_the_blur_of_a_step_and_the_slack_of_the_estimates() -> None:
    contexts, head = setting()
    minors = certificate._Minors(contexts, head)
    size = float(np.max(np.abs(contexts.vocabulary) @ np.abs(head.key)))
    assert minors.blur == pytest.approx(2 * gamma(3 + head.size + 2) * size, rel=1e-13, abs=0)
    assert minors.slack == pytest.approx(4 * certificate.logit_error(contexts, head) + 1.0, rel=1e-15, abs=0)


def test_the_relative_gap_is_measured_against_the_largest_projection() -> None:
    made = context_map.ContextMap.fit(X)
    query, s = made.contexts.query, made.averages
    gap = min(abs(s[i] - s[j]) for i in range(len(s)) for j in range(i) if query[i] == query[j])
    largest = np.abs(made.contexts.vocabulary @ made.head.key).max()
    assert made.relative_gap == pytest.approx(gap / largest, rel=1e-12, abs=0)


def test_the_error_factor_of_a_long_sum_is_exact() -> None:
    """k u alone is below k u / (1 - k u); for 2^40 terms by 1e-4 of it."""
    ku = Fraction(2**40, 2**53)
    assert certificate.gamma(2**40) == pytest.approx(float(ku / (1 - ku)), rel=1e-15, abs=0)


@pytest.mark.parametrize("sequences", [1, 2])
def test_the_certificate_of_a_memoriser_is_its_formula(sequences: int) -> None:
    """residual + 4 u size, slope 2 blur + 2 state error, rounding of the lookup + 4 u size; no slope without steps."""
    made = memorize.memorize(X[:sequences], np.arange(1, 2 * sequences + 1).reshape(sequences, 2) % 3)
    contexts, stored = made.contexts, made.memory
    assert stored.lookup is not None
    assert stored.readout is not None
    spread = made.spread
    amplitude = spread.amplitude / float(spread.readout @ spread.readout)
    head = RankOneHead(spread.key, spread.query, amplitude * spread.readout)
    states = stored.class_states(contexts)
    blur = memorize._readout_error(contexts, head, stored.readout)
    size = float(np.abs(states).max() + np.abs(made.labels).max())
    slopes = np.abs(stored.lookup.slopes)
    steepest = float(slopes.max()) if slopes.size else 0.0
    furthest = float((states @ stored.readout).max())
    parts = memorize.certificate_of(stored, contexts, head, made.labels).parts
    residual = float(np.abs(stored.lookup_output(states) - made.labels).max())
    error = memorize.state_error(contexts, head)
    rounding = memorize.lookup.rounding_bound(stored.lookup, blur, furthest)
    assert parts["residual"] == pytest.approx(residual + 4 * U * size, rel=1e-12, abs=0)
    assert parts["slope"] == pytest.approx(2 * steepest * blur + 2 * error, rel=1e-12, abs=0)
    assert parts["rounding"] == pytest.approx(rounding + 4 * U * size, rel=1e-12, abs=0)


def test_two_contexts_closer_than_rounding_are_refused_and_one_is_not() -> None:
    two, one = (memorize.memorize(X[:1, :n], np.ones((1, n), dtype=int)) for n in (2, 1))
    assert (two.contexts.size, one.contexts.size) == (2, 1)
    memorize._refuse_tight(one.contexts, one.spread, 1e300)
    width = two.spread.gap * memorize._range(two.contexts, two.spread)
    memorize._refuse_tight(two.contexts, two.spread, 3.9 * width)
    with pytest.raises(InfoFlowError, match="contexts that float64 can separate"):
        memorize._refuse_tight(two.contexts, two.spread, 4.1 * width)


def test_no_place_need_be_checked_densely() -> None:
    assert memorize.memorize(X, np.array([[1, 0], [1, 2]]), dense_places=0).dense_places == 0


def test_steps_that_float64_does_not_see_are_not_lost() -> None:
    """Projections 1 and 1 + 1e-17: equal as floats, so the step is taken as large as rounding allows, never 0."""
    contexts = cx.contexts_of(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[0, 1, -1], [0, 0, 1]]), "padding")
    head = RankOneHead(np.array([1.0, 1e-17]), np.array([0.0, 0.0]), np.array([1.0, 1.0]))
    found = certificate.saturated_order(contexts, head)
    assert found.holds
    assert found.log10_gap == pytest.approx(math.log10(1e-17 / 6), abs=1e-9)


def test_a_class_has_no_distance_from_itself() -> None:
    with pytest.raises(JobError, match="proportional"):
        certificate._Minors(*setting())._difference(0, 0)


def test_moderate_logits_are_compared_in_balls() -> None:
    """Queries of 1e-4 make logits of 1e-4, not keys over queries of 1e4: enclosures decide, before the identity."""
    contexts, head = setting()
    head = replace(head, query=1e-4 * head.query)
    found = certificate.certify_gap(contexts, head, averages(contexts, head), 0.0)
    assert (found.method, found.holds) == ("Arb enclosures", True)
    loud = replace(head, query=1e5 * head.query, key=1e3 * head.key)
    found = certificate.certify_gap(contexts, loud, averages(contexts, loud), 0.0)
    assert (found.method, found.holds) == ("minor identity", True)


def test_what_products_below_float64_lose() -> None:
    """A direction of 0 has exact projections: 8 s count TINY (1 + |V|) is what stays of the formula."""
    contexts, head = setting(size=4)
    tiny, largest = 2.0**-1074, np.max(np.abs(contexts.vocabulary))
    assert largest == 4.0
    assert certificate.projected(contexts, 0 * head.key, 4) == (tiny * 8 * 4 * 9 * 5, tiny * 8 * 4 * 9 * 5)
    hidden = cx.read_contexts(X * np.array([0.0, 1.0, 1.0]))  # the read-out looks where every token is 0
    reach = float(np.max(np.abs(hidden.vocabulary @ head.key)))
    assert reach > 1
    error = memorize._readout_error(hidden, replace(head, output=0 * head.output), np.array([2.0**40, 0.0, 0.0]))
    assert error == pytest.approx(tiny * (3 + 8 * 4 * (1 + reach) * 2.0**40), rel=1e-12, abs=0)


def test_the_slack_of_the_estimates_is_four_logit_errors_and_one() -> None:
    contexts, head = setting(1e13)
    error = certificate.logit_error(contexts, head)
    assert error > 0.05
    assert certificate._Minors(contexts, head).slack == 4 * error + 1.0


def test_float64_keeps_averages_apart_that_differ_by_more_than_two_errors() -> None:
    """Neighbours three rounding bounds apart: balls separate them, and so does every execution."""
    for steps in range(1, 4000):
        vocabulary = np.array([[0.5], [1.0], [1.0 + steps * 2.0**-52]])
        contexts = cx.contexts_of(vocabulary, np.array([[0, 1], [0, 2]]))
        head = RankOneHead(np.array([1.0]), np.array([1.0]), np.array([1.0]))
        s, error = averages(contexts, head), certificate.rounding_bound(contexts, head)
        gaps = np.diff(np.sort(s[contexts.query == 0]))
        if gaps[0] > 2.5 * error:
            break
    assert 2.5 * error < gaps[0] < 3.5 * error
    assert certificate.certify_by_balls(contexts, head, s).float64


def test_an_average_of_nothing_but_underflow() -> None:
    """Keys of 0: the error of p, and n + 2 products that may underflow."""
    contexts, head = setting()
    silent = replace(head, key=0 * head.key)
    dp = certificate.projected(contexts, silent.key, head.size)[1]
    n = contexts.members.shape[1]
    assert 0 < dp < 1e-318
    assert certificate.rounding_bound(contexts, silent) == dp + (n + 2) * 2.0**-1074
