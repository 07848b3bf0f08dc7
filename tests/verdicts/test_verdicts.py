"""Verdicts speak of the architecture in hand: what each one claims, for stated and for open sizes, by every builder."""

import json
from fractions import Fraction

import numpy as np
import pytest
import torch

import infoflow as iflow
from infoflow import Architecture, targets
from infoflow.cli import main
from infoflow.construct.builders import BUILDERS
from infoflow.flow.layout import Refused

SECOND = targets.kth_largest(k=2)
FEATURES = targets.d_retrieval(D=2, d=1)


def scores(arity, terms, d=1):
    """A target whose scores are Python functions: maxima of s^(2i+3) - s, s the sum of the coordinates."""

    def term(i):
        return targets.Extremum(targets.CallableScore(lambda x: power(x.sum((-1, -2)), 2 * i + 3), arity, d))

    def power(s, n):
        return s**n - s

    return targets.Target.sum(*(term(i) for i in range(terms)), spelling="mine")


@pytest.mark.parametrize(
    ("width", "verdict"), [(1_000_000, "open"), (1_813, "proved hard"), (1_814, "open"), (None, "open")]
)
def test_proved_hard_only_where_the_stated_width_is_below_the_proved_one(width, verdict):
    found = iflow.predict(SECOND, Architecture(1, 1, width), T=40, eps=0.002)
    assert found.verdict == verdict
    assert found.proved.width_at_eps == pytest.approx(1813.6, rel=1e-4)
    assert "every read-out width below 1.81e+03 is excluded" in str(found)
    assert any("leaves its width open" in reason for reason in found.reasons) == (width is None)


def test_an_open_embedding_is_never_proved_hard():
    found = iflow.predict(SECOND, "heads=1 width=2", T=40, eps=0.002)
    assert (found.verdict, found.proved) == ("open", None)
    assert any("stated embedding" in reason for reason in found.reasons)


def test_the_bound_prints_all_it_needs():
    text = " ".join(str(iflow.predict(SECOND, Architecture(1, 1, 100), T=40, eps=0.002)).split())
    for words in (
        "W_V, W_O and read-out: all weights at most 1",
        "embedded tokens of Euclidean norm at most 1",
        "one hidden layer",
        "no layer norm",
        "exact arithmetic",
    ):
        assert words in text


def test_an_augmented_code_that_nobody_reads_takes_a_coordinate():
    F = targets.d_retrieval(D=3, d=1)
    assert iflow.predict(F, "heads=3 embed=18 positions=augmented", T=8).verdict == "constructed"
    made = iflow.build(F, 8, 0.01, arch="heads=3 embed=18 positions=augmented")
    assert (made.config.embed, made.config.position_dim) == ((18,), 1)
    assert iflow.certify(made, seconds=0.1).holds
    assert iflow.predict(F, "heads=3 embed=3", T=8).verdict == "constructed"
    assert iflow.predict(F, "heads=3 embed=3 positions=augmented", T=8).verdict == "open"


@pytest.mark.parametrize(
    ("F", "arch", "builder"),
    [
        (FEATURES, "heads=1 embed=2", "exponential_head"),
        (FEATURES, "heads=1 embed=2 width=26", "exponential_head"),
        (targets.d_retrieval(D=2, d=1, sets=[[0, 1], [2]]), "heads=1 embed=8 positions=joint", "memory_head"),
        (targets.triangle_center(d=1), "heads=300", "occupancy"),
    ],
    ids=["exponential_head", "exponential_head_width", "memory_head", "occupancy"],
)
def test_every_builder_is_asked_and_the_weight_class_decides(F, arch, builder):
    eps = 0.1 if builder != "occupancy" else 1.0
    found = iflow.predict(F, arch, T=8, eps=eps, weight_bound=None)
    assert (found.verdict, found.constructed.builder) == ("constructed", builder)
    made = iflow.build(F, 8, eps, arch=arch, weight_bound=None)
    assert made.certificate.bound == found.constructed.bound <= eps
    X = np.random.default_rng(0).uniform(*F.domain, (64, 8, F.dim))
    assert np.abs(made(torch.from_numpy(X)).numpy() - F(X)).max() <= eps
    assert iflow.predict(F, arch, T=8, eps=eps).verdict == "open"
    with pytest.raises(Refused, match=builder):
        iflow.build(F, 8, eps, arch=arch)


def test_the_memory_head_needs_room_for_every_token_and_a_joint_encoder():
    F = targets.d_retrieval(D=2, d=1, sets=[[0, 1], [2]])
    for arch in ("heads=1 embed=7 positions=joint", "heads=1 embed=8 positions=augmented", "heads=1 embed=8"):
        assert iflow.predict(F, arch, T=8, eps=0.1, weight_bound=None).verdict == "open"
    found = iflow.predict(F, "heads=3 positions=joint", T=8, eps=0.1, weight_bound=1e6)
    assert (found.constructed.builder, found.embed) == ("compiler", (3,))
    spread = iflow.predict(F, "heads=1 positions=joint", T=8, eps=0.1, weight_bound=1e6)
    assert (spread.constructed.builder, spread.embed) == ("memory_head", (8,))
    assert iflow.predict(F, "heads=1 positions=joint", T=8, eps=0.1, weight_bound=20).verdict == "open"


def test_a_count_that_contradicts_a_construction_is_called_too_strict():
    F = targets.d_retrieval(D=4, d=1)
    found = iflow.predict(F, "heads=1 embed=64 positions=joint", T=64, eps=0.5, weight_bound=None)
    assert found.verdict == "constructed"
    assert found.counting.exponent is None
    assert any("count is too strict" in reason for reason in found.reasons)


def test_open_sizes_mean_some_and_the_sizes_found_serve_when_they_are_stated():
    F = targets.pairwise_max(D=4, d=4)
    for arch in ("heads=4,4", "heads=4,4 embed=24"):
        found = iflow.predict(F, arch, T=64)
        assert found.verdict == "constructed"
        stated = Architecture.parse(arch).with_(embed=found.embed, width=found.constructed.widths)
        assert iflow.predict(F, stated, T=64).verdict == "constructed"
        assert iflow.build(F, 64, 0.01, arch=stated).certificate.bound <= 0.01
        narrower = stated.with_(width=tuple(w // 2 for w in stated.widths))
        assert iflow.predict(F, narrower, T=64).verdict == "open"
    assert iflow.predict(F, "heads=4,4", T=64).embed == (20, 8)
    assert "embed        left open; 20,8 is the least" in str(iflow.predict(F, "heads=4,4", T=64))


def test_a_score_of_one_token_is_retrieved_whatever_it_is():
    """T d / E - 1 = 31 is global aggregation; two heads retrieve two maxima, and plan says so."""
    F = scores(arity=1, terms=2)
    found = iflow.predict(F, Architecture(2, 2), T=64)
    assert (found.flow.exponent, found.counting.exponent, found.flow.way) == (0, 0, "layout")
    assert found.flow.modes == ({"tokens": "skip", "cls": "max"},)
    assert iflow.predict(F, Architecture(1, 2), T=64).flow.exponent == Fraction(64, 2) - 1


def test_a_pair_score_without_a_tree_is_retrieved_in_two_layers():
    F = scores(arity=2, terms=2)
    found = iflow.predict(F, Architecture((2, 2), 4), T=16)
    assert (found.flow.way, found.flow.exponent, found.flow.cls_sets) == ("layout", 0, (0, 4))
    assert iflow.predict(F, Architecture((1, 2), 4), T=16).flow.way == "global"


@pytest.mark.parametrize(
    "F",
    [scores(1, 2), scores(2, 2), scores(3, 1), targets.triangle_center()],
    ids=["token", "pair", "triple", "triangle"],
)
def test_plan_and_predict_agree_where_only_estimates_speak(F):
    for option in iflow.plan(F, T=12, max_layers=3, max_heads=3).options:
        found = iflow.predict(F, option.arch, T=12)
        assert found.flow.exponent == 0
        assert iflow.predict(F, Architecture(option.heads), T=12).embed == option.embed


@pytest.mark.parametrize("arity", [1, 2])
def test_trace_follows_a_score_that_is_a_function(arity):
    F = scores(arity, terms=2)
    for X in np.random.default_rng(0).uniform(-1, 1, (8, 6, 1)):
        assert iflow.trace(F, Architecture((2,) * arity, 8), X).learns


@pytest.mark.parametrize("eps", [5e-324, 1e-308, 1e-30, 1e308])
@pytest.mark.parametrize("weight_bound", [None, 1, 1e308, 1e-300])
def test_absurd_numbers_are_refused_or_served_and_never_crash(eps, weight_bound):
    for F, arch in ((FEATURES, "heads=1"), (SECOND, "heads=1 embed=3 width=9"), (targets.max_plus_min(), "heads=2")):
        said = iflow.predict(F, arch, 8, eps, weight_bound)
        if said.verdict == "constructed":
            assert iflow.build(F, 8, eps, arch, weight_bound=weight_bound).certificate.bound <= eps
        else:
            with pytest.raises(Refused):
                iflow.build(F, 8, eps, arch, weight_bound=weight_bound)


def test_json_names_the_builder_and_why_the_others_refuse(capsys):
    with pytest.raises(SystemExit) as stop:
        main(
            ["predict", "d_retrieval:D=2,d=1", "heads=1", "-T", "8", "--eps", "0.1", "--weight-bound", "none", "--json"]
        )
    assert not stop.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["constructed"]["builder"] == "exponential_head"
    assert found["embed"] == [2]
    kinds = {refusal["builder"]: refusal["kind"] for refusal in found["refusals"]}
    assert kinds == {"compiler": "architecture", "memory_head": "architecture", "occupancy": "architecture"}
    assert set(kinds) | {"exponential_head"} == set(BUILDERS)
