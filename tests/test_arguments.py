"""Python callers meet the sentences of the command line: every verb, every argument, whatever is handed in."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import infoflow as iflow
from infoflow import arguments, targets
from infoflow.errors import InfoFlowError

F, ARCH = targets.pairwise_max(D=1, d=2), iflow.Architecture((1, 1), 4)
RECIPE = iflow.Recipe(samples=8, validation=4, batch=4, epochs=1)
NETWORK = iflow.build(F, 4, 0.5)
X = F.sample(1, 6)[0]
ODD = [None, "64", -0.5, True, -1, float("nan"), 10**400, (4,), {}, b"4", 1j, np.array([3]), object(), "x" * 10_000]
CALLS: dict[str, Callable[[Any], Any]] = {
    "predict target": lambda v: iflow.predict(v, ARCH, 6),
    "predict arch": lambda v: iflow.predict(F, v, 6),
    "predict T": lambda v: iflow.predict(F, ARCH, v),
    "predict eps": lambda v: iflow.predict(F, ARCH, 6, eps=v),
    "predict count": lambda v: iflow.predict(F, ARCH, 6, count=v),
    "plan T": lambda v: iflow.plan(F, v),
    "plan max_layers": lambda v: iflow.plan(F, 6, max_layers=v),
    "plan max_heads": lambda v: iflow.plan(F, 6, max_heads=v),
    "scale lengths": lambda v: iflow.scale(F, ARCH, v),
    "scale length": lambda v: iflow.scale(F, ARCH, [v]),
    "trace X": lambda v: iflow.trace(F, ARCH, v),
    "trace ties": lambda v: iflow.trace(F, ARCH, X, v),
    "build T": lambda v: iflow.build(F, v, 0.5),
    "build eps": lambda v: iflow.build(F, 4, v),
    "build domain": lambda v: iflow.build(F, 4, 0.5, domain=v),
    "build end": lambda v: iflow.build(F, 4, 0.5, domain=(0, v)),
    "build rule": lambda v: iflow.build(F, 4, 0.5, rule=v),
    "certify network": lambda v: iflow.certify(v),
    "certify T": lambda v: iflow.certify(NETWORK, F, v, seconds=0),
    "certify seconds": lambda v: iflow.certify(NETWORK, F, 4, seconds=v),
    "certify seed": lambda v: iflow.certify(NETWORK, F, 4, seconds=0, seed=v),
    "refute model": lambda v: iflow.refute(v, F, 4, seconds=0.1),
    "refute T": lambda v: iflow.refute(NETWORK, F, v, seconds=0.1),
    "refute seconds": lambda v: iflow.refute(NETWORK, F, 4, seconds=v),
    "fit T": lambda v: iflow.fit(F, ARCH, v, 1, RECIPE),
    "fit seeds": lambda v: iflow.fit(F, ARCH, 4, v, RECIPE),
    "fit recipe": lambda v: iflow.fit(F, ARCH, 4, 1, RECIPE if v is None else v),
    "fit device": lambda v: iflow.fit(F, ARCH, 4, 1, RECIPE, device=v),
    "fit store": lambda v: iflow.fit(F, ARCH, 4, 1, RECIPE, store=None if isinstance(v, str) else v),
    "fit_many": iflow.fit_many,
    "fit_many run": lambda v: iflow.fit_many([v]),
    "Run arch": lambda v: iflow.Run(F, v, 4, 0, RECIPE),
    "Run target": lambda v: iflow.Run(v, ARCH, 4, 0, RECIPE),
    "Run seed": lambda v: iflow.fit_many([iflow.Run(F, ARCH, 4, v, RECIPE)]),
    "load": iflow.load,
    "parse": targets.parse,
    "sample batch": lambda v: F.sample(v, 6),
    "sample T": lambda v: F.sample(2, v),
    "sample seed": lambda v: F.sample(2, 6, seed=v),
    "sample kind": lambda v: F.sample(2, 6, kind=v),
    "sample dtype": lambda v: F.sample(2, 6, dtype=v),
    "value": F,
    "winners": F.winners,
    "active": F.active,
    "comparison": F.comparison,
    "D": lambda v: targets.pairwise_max(D=v),
    "d": lambda v: targets.d_retrieval(d=v),
    "seed": lambda v: targets.star(seed=v),
    "k": lambda v: targets.kth_largest(k=v),
    "length": lambda v: targets.chain(length=v),
    "positions": lambda v: targets.position_sum(positions=v),
    "sets": lambda v: targets.d_retrieval(D=1, sets=v),
    "heads": iflow.Architecture,
    "embed": lambda v: iflow.Architecture((1, 1), v),
    "mask": lambda v: iflow.Architecture((1, 1), 4, mask=v),
    "memorize X": lambda v: iflow.memorize(v, [[1.0]]),
    "memorize head_size": lambda v: iflow.memorize([[[0.1], [0.2]]], [[1.0, 2.0]], head_size=v),
    "memorize seed": lambda v: iflow.memorize([[[0.1], [0.2]]], [[1.0, 2.0]], seed=v),
    "ContextMap draws": lambda v: iflow.ContextMap.fit([[[0.1], [0.2]]], draws=v),
    "approximate_equivariant d": lambda v: iflow.approximate_equivariant(lambda x: x, v, 2, 3),
    "approximate_equivariant D": lambda v: iflow.approximate_equivariant(lambda x: x, 1, 2, v),
    "hardmax_collision d": lambda v: iflow.hardmax_collision(v, 4),
    "hardmax_collision n": lambda v: iflow.hardmax_collision(2, v),
    "probe": lambda v: iflow.probe(NETWORK, v),
    "Extremum sets": lambda v: targets.Extremum(F.terms[0].score, "max", v),
    "KthLargest": lambda v: targets.KthLargest(v, np.ones(2)),
    "linear": targets.TreeScore.linear,
    "bilinear": targets.TreeScore.bilinear,
    "Target.sum": targets.Target.sum,
    "domain": lambda v: targets.Target.sum(F.terms[0], domain=v),
}
CALLS |= {f"Recipe {name}": partial(lambda name, v: RECIPE.with_(**{name: v}), name) for name in RECIPE.__dict__}
MAY_BE_NONE = {
    "fit recipe",
    "fit store",
    "Run arch",
    *(name for name in CALLS if name.startswith("Recipe")),
    "certify T",
    "sample dtype",
    "sets",
    "embed",
    "ContextMap draws",
    "build domain",
    "Extremum sets",
}


@pytest.mark.parametrize("name", CALLS)
def test_whatever_is_handed_in_is_refused_in_one_sentence(name: str) -> None:
    for value in ODD:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                CALLS[name](value)
            except InfoFlowError as error:
                assert "\n" not in str(error)  # noqa: PT017
                assert len(str(error)) < 2100  # noqa: PT017
                continue
        assert value is not None or name in MAY_BE_NONE, f"{name} took {value!r}"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: iflow.predict(F, ARCH, "64"), "expected T to be an integer of at least 1, got '64'"),
        (lambda: iflow.predict(F, ARCH, 64.0), "expected T to be an integer of at least 1, got 64.0"),
        (lambda: iflow.predict(F, ARCH, True), "got True"),
        (lambda: iflow.predict(F, (4, 4), 64), "its spelling 'heads=4,4 embed=24', got \\(4, 4\\)"),
        (lambda: iflow.predict(F, ARCH, 64, eps=float("nan")), "eps to be a finite number above 0, got nan"),
        (lambda: iflow.Recipe(activation="foo"), "activation to be one of tanh, .*, got 'foo'"),
        (lambda: iflow.fit(F, ARCH, 4, 1, recipe={"epochs": 3}), "expected a Recipe"),
        (lambda: targets.parse(None), "its spelling such as 'pairwise_max:D=4,d=4', got None"),
        (lambda: F.sample(-1, 8), "batch to be an integer of at least 0, got -1"),
        (lambda: F.sample(1, 8, seed=-1), "seed to be an integer of at least 0, got -1"),
        (lambda: F(np.ones((3, 2)) * 1j), "real numbers"),
        (lambda: iflow.trace(F, ARCH, np.ones((3, 2)) * 1j), "real numbers"),
        (lambda: F(np.zeros((3, 2), "M8[s]")), "real numbers"),
        (lambda: arguments.array("x", np.zeros(3, "m8[s]")), "real numbers"),
    ],
)
def test_what_was_met(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(InfoFlowError, match=says):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    assert iflow.predict(F, ARCH, np.int64(6), np.float32(0.5)).verdict == iflow.predict(F, ARCH, 6, 0.5).verdict
    assert targets.pairwise_max(D=np.int32(2)).spelling == targets.pairwise_max(D=2).spelling


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("64", [64]),
        ("3,4,5", [3, 4, 5]),
        ("8..64", [8, 16, 32, 64]),
        ("8..65", [8, 16, 32, 64, 65]),
        ("5..5", [5]),
        ("1..1", [1]),
        ("8..30:8", [8, 16, 24]),
        ("3..1000", [3, 6, 12, 24, 48, 96, 192, 384, 768, 1000]),
    ],
)
def test_lengths(text: str, found: list[int]) -> None:
    assert arguments.lengths(text) == found


@pytest.mark.parametrize(
    "text", ["", "x", "8..", "..8", "8..4", "0..8", "-8..8", "8..64:0", "8..64:-1", "1..2..3", "0"]
)
def test_wrong_lengths(text: str) -> None:
    with pytest.raises(InfoFlowError, match="expected"):
        arguments.lengths(text)
