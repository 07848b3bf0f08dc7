import pytest

import infoflow as iflow
from infoflow import targets
from infoflow.errors import InfoFlowError
from infoflow.verdicts.plan import PlannedShape, _pareto


def test_deeper_than_its_jobs_no_architecture_is_better():
    """A layer without a message or a read can be left out, so `plan` looks no deeper than there are jobs."""
    from infoflow.flow.jobs import minimal_heads
    from infoflow.flow.normal_form import normal_form

    for target in (targets.pairwise_max(D=1, d=2), targets.chain(length=3, d=1), targets.sum_of_maxima(D=3, d=1)):
        found = iflow.plan(target, 8, max_layers=10**6, max_heads=3)
        jobs = sum(len(term.messages) + 1 for term in normal_form(target, 8).terms)
        deeper = [heads for heads in minimal_heads(normal_form(target, 8), jobs + 2, 3) if len(heads) > jobs]
        assert deeper
        assert all(any(len(o.heads) < len(h) and sum(o.heads) <= sum(h) for o in found.options) for h in deeper)


def test_eq6_finds_width_and_depth():
    found = iflow.plan(targets.pairwise_max(D=4, d=4), T=64)
    assert found.kind == "layout"
    heads = [option.heads for option in found.options]
    assert (4, 4) in heads
    assert (1, 1, 1, 1, 1) in heads
    by_heads = {option.heads: option for option in found.options}
    assert "fewest layers" in by_heads[4, 4].reason
    assert "total heads" in by_heads[1, 1, 1, 1, 1].reason


def test_every_option_is_constructed_and_no_option_beats_another():
    F = targets.chain(length=4, d=2)
    found = iflow.plan(F, T=16, max_layers=5, max_heads=4)
    for option in found.options:
        assert iflow.predict(F, option.arch, T=16).verdict == "constructed"
        for other in found.options:
            if other is not option:
                assert any(a < b for a, b in zip(option.measures, other.measures, strict=True))


def test_lowering_a_head_or_an_embedding_of_an_option_is_refused():
    F = targets.pairwise_max(D=2, d=2)
    for option in iflow.plan(F, T=16, max_layers=3, max_heads=3).options:
        for l, (h, E) in enumerate(zip(option.heads, option.embed, strict=True)):
            embed = (*option.embed[:l], E - h, *option.embed[l + 1 :])
            if min(embed) > 0:
                assert iflow.predict(F, iflow.Architecture(option.heads, embed), T=16).verdict != "constructed"


def test_pareto_keeps_one_of_equals():
    a, b = PlannedShape((1, 2), (4, 4), 9, ""), PlannedShape((2, 1), (4, 4), 9, "")
    assert _pareto([b, a]) == [a]
    worse = PlannedShape((2, 2), (4, 4), 9, "")
    assert _pareto([worse, a]) == [a]


def test_other_targets_get_an_estimate():
    found = iflow.plan(targets.triangle_center(), T=64)
    assert found.kind == "estimate"
    assert any("estimate" in reason for reason in found.reasons)
    for option in found.options:
        assert iflow.predict(targets.triangle_center(), option.arch, T=64).counting.exponent == 0


@pytest.mark.parametrize("options", [{"max_layers": 1}, {"max_layers": 0}, {"max_heads": 0}])
def test_no_room(options):
    with pytest.raises(InfoFlowError):
        iflow.plan(targets.pairwise_max(), T=64, **options)


def test_text():
    text = str(iflow.plan(targets.min_pair(), T=8))
    assert "1,1" in text
    assert "layer 1: 1 message" in text
