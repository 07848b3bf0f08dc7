"""What a certificate says of its claim, and which claims of a file are read at all."""

import math
from dataclasses import replace

import pytest

from infoflow.certificates.certificate import Certificate, Claim
from infoflow.errors import InfoFlowError

ERROR = Claim("|F - model|", 0.1, "the box")
GAP = Claim("gap", 0.1, "the data", least=True)


@pytest.mark.parametrize(
    "change", [{"quantity": 3}, {"inputs": None}, {"least": "yes"}, {"least": 1}, {"limit": "0.1"}, {"limit": math.nan}]
)
def test_a_claim_of_other_types_is_refused(change):
    assert Claim.from_json(ERROR.to_json()) == ERROR
    with pytest.raises(InfoFlowError, match="damaged"):
        Claim.from_json(ERROR.to_json() | change)


@pytest.mark.parametrize("name", ["quantity", "limit", "inputs", "least"])
def test_a_claim_without_a_field_is_refused(name):
    with pytest.raises(InfoFlowError, match="damaged"):
        Claim.from_json({k: v for k, v in ERROR.to_json().items() if k != name})


@pytest.mark.parametrize(("claim", "good", "bad"), [(ERROR, 0.05, 0.15), (GAP, 0.15, 0.05)])
def test_a_bound_is_within_its_claim_up_to_equality(claim, good, bad):
    for bound, holds in ((good, True), (0.1, True), (bad, False), (None, False)):
        made = Certificate(claim, bound, "exact")
        assert made.holds is holds
        assert (made.why_not == ()) is holds
        assert made.verdict == ("holds" if holds else "does not hold")
    assert Certificate(claim, good, "exact", promises=("a", "b")).verdict == "holds if a and b"
    assert Certificate(claim, good, "exact").against("a stray weight").why_not == ("a stray weight",)
    assert not Certificate(claim, good, "exact").limited_to(None).holds


@pytest.mark.parametrize(("claim", "harmless", "breaking"), [(ERROR, 0.05, 0.051), (GAP, 0.05, 0.049)])
def test_an_attack_beyond_the_bound_is_never_hidden(claim, harmless, breaking):
    made = Certificate(claim, 0.05, "exact")
    assert made.with_attack(harmless).reasons == ()
    assert made.with_attack(harmless).ratio == 1.0
    assert "the attack found" in made.with_attack(breaking).reasons[0]


def test_an_output_that_is_no_number_breaks_a_bound_on_the_error():
    assert Certificate(ERROR, 0.05, "exact").with_attack(math.nan).attacked == math.inf
    assert not Certificate(ERROR, 0.05, "exact").with_attack(math.nan).holds
    assert not Certificate(GAP, 0.15, "exact").with_attack(math.nan).holds  # of a gap the worst value is the smallest


def test_a_claim_reads_as_a_sentence():
    assert str(ERROR) == "|F - model| at most 0.1 for the box"
    assert str(GAP) == "gap at least 0.1 for the data"
    assert str(Claim("error", None, "the box")) == "error (nothing was asked) for the box"


def test_what_is_printed_of_bound_attack_and_worst_input():
    made = Certificate(ERROR, 0.05, "exact")
    assert "bound 0.05, not attacked\n" in str(made)
    assert "bound none, not attacked\n" in str(Certificate(ERROR, None, "exact"))
    assert "bound 0.05, attacked 0.04, ratio 1.25\n" in str(made.with_attack(0.04))
    assert str(made.with_attack(5e-324)).splitlines()[2].endswith("attacked 4.941e-324")  # no ratio is that large
    worst = [[0.5, 1.0], [0.25, 1.0], [0.5, 1.0]]
    shown = str(replace(made, worst=worst)).splitlines()[-1]
    assert shown == "  attacked at 2 x (0.5, 1), 1 x (0.25, 1)"
