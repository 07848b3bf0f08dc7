import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from infoflow.commands.own_code import asked_target
from infoflow.errors import InfoFlowError
from infoflow.targets import (
    NAMED,
    Extremum,
    Target,
    TreeScore,
    chain,
    d_retrieval,
    kth_largest,
    min_pair,
    pairwise_max,
    parse,
    position_sum,
    star,
    sum_of_maxima,
    triangle_center,
)
from infoflow.targets.named import read_positions, separated_points, spell_positions

X = np.random.default_rng(0).standard_normal((7, 4))


@pytest.mark.parametrize(
    "spelling",
    [
        *NAMED,
        "pairwise_max:D=2,d=3,seed=5",
        "d_retrieval:D=2,d=1,seed=0,sets=1..3+7/2",
        "position_sum:positions=2+4..6,d=3",
        "kth_largest:k=3",
        " chain:length=5 , d=2 ",
        "star:k=4",
    ],
)
def test_spellings_round_trip(spelling: str) -> None:
    F = parse(spelling)
    again = parse(F.spelling)
    assert again.spelling == F.spelling
    sample = F.sample(3, 8)
    assert np.array_equal(again(sample), F(sample))


@pytest.mark.parametrize("name", NAMED)
def test_the_registry_says_what_the_builder_does(name: str) -> None:
    named = NAMED[name]
    assert set(named.readers) == set(named.defaults)
    assert named.build(**named.defaults).spelling == named.build().spelling == parse(name).spelling


def test_formulas() -> None:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((2, 4, 4))
    assert pairwise_max(D=2, seed=3)(X) == pytest.approx(sum((X @ a @ X.T).max() for a in A))
    a = np.random.default_rng(1).standard_normal((3, 4))
    assert sum_of_maxima(D=3, seed=1)(X) == pytest.approx(sum((X @ v).max() for v in a))
    assert min_pair(d=4)(X) == pytest.approx((2 + 2 * X @ X.T).min())
    z = separated_points(2, 4, 0)
    sets = ((0, 1, 2), (4, 6))
    distances = ((X[:, None] - z) ** 2).sum(-1) / 4
    assert d_retrieval(D=2)(X) == pytest.approx(distances.min(0).sum())
    assert d_retrieval(D=2, sets=sets)(X) == pytest.approx(distances[:3, 0].min() + distances[[4, 6], 1].min())
    triples = X[:, None, None] + X[:, None] + X
    assert triangle_center(d=4)(X) == pytest.approx((triples**2).sum(-1).min())
    assert kth_largest(k=3, d=4)(X) == np.sort(X[:, 0])[-3]
    assert position_sum((1, 3), d=4)(X) == pytest.approx(X[1] + X[3])
    B = np.random.default_rng(0).standard_normal((2, 4, 4))
    pair = X @ B[0] @ X.T, X @ B[1] @ X.T
    assert star()(X) == pytest.approx((pair[0].max(0) + pair[1].max(0)).max())
    assert chain()(X) == pytest.approx((pair[0].max(0) + pair[1].max(1)).max())


def test_separated_points_are_separated() -> None:
    for D, d in ((4, 4), (8, 2), (16, 1)):
        z = separated_points(D, d, 0)
        gaps = np.linalg.norm(z[:, None] - z, axis=-1)[~np.eye(D, dtype=bool)]
        assert gaps.min() > 0.4 / D
        assert ((z > 0) & (z < 1)).all()


def test_positions_are_spelled_from_one() -> None:
    assert spell_positions((0, 1, 2, 6)) == "1..3+7"
    assert read_positions("1..3+7") == (0, 1, 2, 6)
    assert parse("position_sum:positions=1..3").spelling == position_sum().spelling


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("pairwise_mx:D=4", "did you mean 'pairwise_max'"),
        ("pairwise_max:E=4", "unknown key of pairwise_max 'E'"),
        ("pairwise_max:lenght=4", "key of pairwise_max"),
        ("chain:lenght=4", "did you mean 'length'"),
        ("pairwise_max:D=4,D=5", "comes twice"),
        ("pairwise_max:D", "key=value"),
        ("pairwise_max:", "key=value"),
        ("pairwise_max:D=", "key=value"),
        ("pairwise_max:D=four", "to be an integer"),
        ("pairwise_max:D=0", "at least 1"),
        ("pairwise_max:seed=-1", "at least 0"),
        ("chain:length=1", "at least 2"),
        ("max_plus_min:d=2", "without keys"),
        ("position_sum:positions=0..3", "positions like"),
        ("position_sum:positions=3..1", "positions like"),
        ("position_sum:positions=1..99999999999", "positions like"),
        ("d_retrieval:D=3,sets=1/2", "D=3 position sets"),
        ("", "unknown target"),
        ("nothing.py:F", "named target"),
        ("nothing.py", "named target"),
    ],
)
def test_malformed_spellings(spelling: str, message: str) -> None:
    with pytest.raises(InfoFlowError, match=message):
        parse(spelling)


@pytest.mark.parametrize(("spelling", "message"), [("nothing.py:F", "is no file"), ("nothing.py", "file.py:NAME")])
def test_malformed_arguments(spelling: str, message: str) -> None:
    with pytest.raises(InfoFlowError, match=message):
        asked_target(spelling)


def test_a_users_own_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from infoflow.targets import *\nF = pairwise_max(D=1)\nnumber = 3\n")
    F = asked_target(f"{file}:F")
    assert F.spelling == f"{file}:F"
    assert F(X) == pairwise_max(D=1)(X)
    for name, message in (("G", "did you mean|known: F"), ("number", "a function, got int"), ("1", "file.py:NAME")):
        with pytest.raises(InfoFlowError, match=message):
            asked_target(f"{file}:{name}")
    with pytest.raises(InfoFlowError, match="named target"):
        parse(f"{file}:F")
    file.write_text("1 / 0\n")
    with pytest.raises(InfoFlowError, match="ZeroDivisionError"):
        asked_target(f"{file}:F")
    file.write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(InfoFlowError, match="SystemExit"):
        asked_target(f"{file}:F")


def test_arrays_are_answered_without_torch() -> None:
    code = (
        "import sys, infoflow as iflow\n"
        "for name in iflow.targets.NAMED:\n"
        "    F = iflow.targets.parse(name); X = F.sample(2, 5); F(X), F.active(X), F.comparison(5)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_low_rank_matrices_are_factored() -> None:
    A = np.outer([1.0, 2.0, 0.0], [0.0, 1.0, -1.0])
    score = TreeScore.bilinear(A)
    assert score.edges[0].rank == 1
    Y = np.random.default_rng(0).standard_normal((5, 3))
    assert Target.sum(Extremum(score))(Y) == pytest.approx((Y @ A @ Y.T).max())
