"""`constructed` exactly when build succeeds for that architecture, with the same widths and the same bound."""

import pytest

import infoflow as iflow
from infoflow import Architecture, targets
from infoflow.construct.builders import build
from infoflow.errors import InfoFlowError
from infoflow.flow.layout import Refused
from infoflow.verdicts.predict import predict

CASES = [
    (targets.pairwise_max(D=2, d=2), Architecture((2, 2), 8)),
    (targets.pairwise_max(D=2, d=2), Architecture((2, 2), (6, 4))),
    (targets.pairwise_max(D=2, d=2), Architecture((2, 2), (4, 4))),
    (targets.pairwise_max(D=2, d=2), Architecture((1, 2), 16)),
    (targets.pairwise_max(D=2, d=2), Architecture((1, 1, 1), 16)),
    (targets.pairwise_max(D=2, d=2), Architecture((2, 2), 8, width=16)),
    (targets.pairwise_max(D=2, d=2), Architecture((2, 2), 8, width=4096)),
    (targets.pairwise_max(D=2, d=2), Architecture((2, 2), 8, mask="causal")),
    (targets.min_pair(), Architecture((1, 1), 6)),
    (targets.min_pair(), Architecture((1, 1), 6, mask="causal")),
    (targets.min_pair(), Architecture(1, 6)),
    (targets.star(k=3, d=2), Architecture((2, 1), 12)),
    (targets.sum_of_maxima(D=2, d=2), Architecture(2, 2)),
    (targets.sum_of_maxima(D=2, d=2), Architecture(1, 2)),
    (targets.d_retrieval(D=2, d=2), Architecture(2, 2)),
    (targets.triangle_center(), Architecture((2, 2), 24)),
    (targets.kth_largest(k=1), Architecture(1, 2)),
    (targets.kth_largest(k=2), Architecture(1, 2)),
    (targets.position_sum(), Architecture(2, 12, positions="augmented")),
    (targets.position_sum(), Architecture(2, 12)),
]


@pytest.mark.parametrize(("target", "arch"), CASES, ids=[f"{t.spelling} {a}" for t, a in CASES])
def test_constructed_exactly_when_build_succeeds(target, arch):
    found = predict(target, arch, T=8, eps=0.1)
    made = refusal = None
    try:
        made = build(target, T=8, eps=0.1, arch=arch)
    except Refused as refused:
        refusal = refused
    assert (found.verdict == "constructed") == (made is not None)
    if made is not None:
        assert made.certificate.bound == found.constructed.bound
    else:
        assert all(f"no construction: {reason}" in found.reasons for reason in refusal.reasons)


SHORT = ["pairwise_max:D=1,d=2", "min_pair:d=2", "star:k=3,d=1", "chain:length=4,d=1", "triangle_center:d=1"]


@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("spelling", SHORT)
def test_tuples_longer_than_the_sequence_repeat_tokens(spelling, T):
    """max over (t1..tk) in [T]^k is defined for T < k, and built: predict answers there as it does elsewhere."""
    for arch in ("heads=1,1,1,1", "heads=2,1", "heads=40"):
        verdict = iflow.predict(spelling, arch, T, eps=8.0, weight_bound=None).verdict
        try:
            iflow.build(spelling, T=T, eps=8.0, arch=arch, weight_bound=None)
            assert verdict == "constructed"
        except InfoFlowError:
            assert verdict != "constructed"
