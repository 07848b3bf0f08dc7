"""Targets by name, targets of one's own functions, and the spelling of both.

Named: `pairwise_max(D=4, d=4, seed=0)`, spelled `pairwise_max:D=4,d=4,seed=0`. Every function of the first part is a
target; its keyword arguments are the keys of its spelling. `NAMED` holds what `infoflow targets` prints. Random
matrices are drawn once from `numpy.random.default_rng(seed)`.

Any function: `function(f, d)` for one of a whole sequence, `function(f, d, arity, extremum)` for the best score over
tuples of tokens.

    import infoflow as iflow
    spread = iflow.targets.function(lambda X: X.amax(-2).sum(-1) - X.amin(-2).sum(-1), d=3)

A function gets torch tensors (batched, differentiable) and gives one number a sequence, or `outputs` numbers. Values
and active index sets are exact, the sets by automatic differentiation (eq. (4) of the InfoFlow paper speaks of every
almost everywhere differentiable target). How many tokens a comparison takes cannot be read from a function: it is
estimated on samples (`targets.estimates`) and every output that uses it says so.

A spelling may come from anywhere: a header, a store, a request. Nothing here can run a user's file; what can
(`file.py:NAME` as an argument) stands in `infoflow.commands.own_code`, which no room can import.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

import numpy as np

from infoflow import arguments, cost
from infoflow.architecture import Architecture
from infoflow.arguments import integer, shown
from infoflow.errors import InfoFlowError, first_line, unknown
from infoflow.targets.arrays import Array, is_torch, on_host
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import CallableScore, Edge, NormOfSum, TreeScore, factor
from infoflow.targets.target import Target
from infoflow.targets.terms import Extremum, KthLargest, PositionSum, ValueAtExtremum, WholeSequence

CANDIDATES = 1024  # random points from which separated minimisers are chosen
MOST_POSITIONS = 10**6  # named one by one in a target; beyond this a run is a slip of the finger
MOST_COMPARED = 1000  # tokens of one tuple: the counts of comparisons are T^k
FARTHEST_RATE = 1e8  # candidate coordinates compared in a second (measured on one core)
RANK_RATE = 1e9  # d^3 of a d x d matrix whose rank is found, in a second


def d_retrieval(D: int = 4, d: int = 4, seed: int = 0, sets: Sequence[Sequence[int]] | None = None) -> Target:
    """sum_i min_{t in S_i} |x(t) - z_i|^2 / d, generalized D-retrieval with separated z_i.

    `sets` holds D sets S_i of 0-based positions (default: all). The head-count theorem's hypotheses hold.
    """
    _at_least(D=(D, 1), d=(d, 1), seed=(seed, 0))
    if sets is not None:
        sets = [_checked(positions) for positions in sets] if isinstance(sets, Sequence) else ()
        if len(sets) != D:
            raise InfoFlowError(f"expected D={D} position sets, got {len(sets)}.")
    terms = []
    for i, z in enumerate(separated_points(D, d, seed)):
        unary = Polynomial.quadratic(np.eye(d) / d, -2 * z / d, float(z @ z) / d)
        only = None if sets is None else (tuple(sets[i]),)
        terms.append(Extremum(TreeScore((unary,), (), d), "min", only, name=f"min_{i + 1}"))
    keys = {"D": D, "d": d, "seed": seed} | ({} if sets is None else {"sets": spell_sets(sets)})
    return Target.sum(*terms, spelling=spell("d_retrieval", keys), domain=(0.0, 1.0))


def sum_of_maxima(D: int = 4, d: int = 4, seed: int = 0) -> Target:
    """sum_i max_t a_i' x(t), the slides' synthetic target."""
    _at_least(D=(D, 1), d=(d, 1), seed=(seed, 0))
    directions = np.random.default_rng(seed).standard_normal((D, d))
    terms = [Extremum(TreeScore.linear(a), name=f"max_{i + 1}") for i, a in enumerate(directions)]
    return Target.sum(*terms, spelling=spell("sum_of_maxima", {"D": D, "d": d, "seed": seed}), sampler="normal")


def pairwise_max(D: int = 4, d: int = 4, seed: int = 0) -> Target:
    """sum_i max_{s,t} x(s)' A_i x(t), eq. (6)."""
    _at_least(D=(D, 1), d=(d, 1), seed=(seed, 0))
    matrices = np.random.default_rng(seed).standard_normal((D, d, d))
    terms = [Extremum(TreeScore.bilinear(A), name=f"max_{i + 1}") for i, A in enumerate(matrices)]
    return Target.sum(*terms, spelling=spell("pairwise_max", {"D": D, "d": d, "seed": seed}), sampler="normal")


def min_pair(d: int = 3) -> Target:
    """min_{s,t} 2 (1 + x(s)' x(t)), eq. (8)."""
    _at_least(d=(d, 1))
    score = TreeScore.bilinear(np.eye(d), constant=2.0, scale=2.0)
    shape = Architecture(heads=(1, 1), embed=(2 * d, 2 * d))  # Theorem 4 states one head dimension for both layers
    return Target.sum(Extremum(score, "min", name="min"), spelling=spell("min_pair", {"d": d}), stated_shape=shape)


def closest_pair(d: int = 2) -> Target:
    """min_{s != t} |x(s) - x(t)|^2, two different positions."""
    _at_least(d=(d, 1))
    closest = Extremum(_squared_distance(d), "min", distinct=True, name="min")
    return Target.sum(closest, spelling=spell("closest_pair", {"d": d}))


def _squared_distance(d: int) -> TreeScore:
    """|x - y|^2 of two tokens."""
    square, (left, right) = Polynomial.quadratic(np.eye(d)), factor(-2.0 * np.eye(d))
    return TreeScore((square, square), (Edge(0, 1, left, right),), d)


def value_at_argmax(d: int = 2, margin: float = 0.1) -> Target:
    """x_2..d(t*), t* = argmax_t x_1(t): the rest of the token whose first coordinate is largest.

    Certificates speak of inputs on which the largest first coordinate leads by `margin`.
    """
    _at_least(d=(d, 2))
    score = TreeScore.linear(np.eye(d)[0])
    term = ValueAtExtremum(Extremum(score), Polynomial.linear(np.eye(d)[1:]), margin=margin, name="value")
    return Target((term,), Polynomial.identity(d - 1), d, spell("value_at_argmax", {"d": d, "margin": margin}))


def recall(d: int = 2, values: int = 1, margin: float = 0.1) -> Target:
    """value(t*), t* = argmax_{t < T} key(t)' key(T): associative recall, the last token asks.

    A token is a key of d numbers and a value; certificates speak of inputs on which the best match leads by `margin`.
    """
    _at_least(d=(d, 1), values=(values, 1))
    _at_least(d=(d + values, 1))  # a token holds both
    unit = np.eye(d + values)
    key = Polynomial.linear(unit[:d])
    score = TreeScore((None, None), (Edge(0, 1, key, key),), d + values)
    match = Extremum(score, sets=(slice(None, -1), slice(-1, None)))
    term = ValueAtExtremum(match, Polynomial.linear(unit[d:]), margin=margin, name="value")
    keys = {"d": d, "values": values, "margin": margin}
    return Target((term,), Polynomial.identity(values), d + values, spell("recall", keys))


def after_match(d: int = 2, margin: float = 0.1) -> Target:
    """x(s* + 1), s* = argmin_{s < T} |x(s) - x(T)|^2: induction, what came after the last token's best match.

    Certificates speak of inputs on which the nearest earlier token is nearer than every other by `margin`.
    """
    _at_least(d=(d, 1))
    match = Extremum(_squared_distance(d), "min", sets=(slice(None, -1), slice(-1, None)))
    term = ValueAtExtremum(match, Polynomial.identity(d), margin=margin, name="next", shift=1)
    return Target((term,), Polynomial.identity(d), d, spell("after_match", {"d": d, "margin": margin}))


def triangle_center(d: int = 2) -> Target:
    """min_{t1,t2,t3} |x(t1) + x(t2) + x(t3)|^2, eq. (7)."""
    _at_least(d=(d, 1))
    term = Extremum(NormOfSum(3, d), "min", name="min")
    return Target.sum(term, spelling=spell("triangle_center", {"d": d}), sampler="clamped_normal")


def kth_largest(k: int = 2, d: int = 1) -> Target:
    """The k-th largest first coordinate, Theorem 5."""
    _at_least(k=(k, 1), d=(d, 1))
    term = KthLargest(k, np.eye(d)[0], name="kth")
    return Target.sum(term, spelling=spell("kth_largest", {"k": k, "d": d}), domain=(0.0, 1.0))


def position_sum(positions: Sequence[int] = (0, 1, 2), d: int = 2) -> Target:
    """x(p_1) + ... + x(p_m), eq. (57).

    `positions` are 0-based here and 1-based in the spelling.
    """
    _at_least(d=(d, 1))
    term = PositionSum(_checked(positions), d, name="sum")
    keys = {"positions": spell_positions(term.positions), "d": d}
    return Target((term,), Polynomial.identity(d), d, spell("position_sum", keys), sampler="normal")


def max_plus_min() -> Target:
    """max_t x(t) + min_t x(t) for numbers x(t), Figure 2."""
    line = TreeScore.linear(np.ones(1))
    return Target.sum(Extremum(line, "max", name="max"), Extremum(line, "min", name="min"), spelling="max_plus_min")


def star(k: int = 3, d: int = 4, seed: int = 0) -> Target:
    """max_{t1..tk} sum_{v != 2} x(t_v)' A_v x(t_2), every token paired with the second."""
    _at_least(k=(k, 2, MOST_COMPARED), d=(d, 1), seed=(seed, 0))
    matrices = np.random.default_rng(seed).standard_normal((k - 1, d, d))
    leaves = [v for v in range(k) if v != 1]
    edges = tuple(Edge(v, 1, *factor(A)) for v, A in zip(leaves, matrices, strict=True))
    term = Extremum(TreeScore((None,) * k, edges, d), name="max")
    return Target.sum(term, spelling=spell("star", {"k": k, "d": d, "seed": seed}), sampler="normal")


def chain(length: int = 3, d: int = 4, seed: int = 0) -> Target:
    """max_{t1..tk} sum_v x(t_v)' A_v x(t_{v+1}), a chain of k = length tokens."""
    _at_least(length=(length, 2, MOST_COMPARED), d=(d, 1), seed=(seed, 0))
    matrices = np.random.default_rng(seed).standard_normal((length - 1, d, d))
    edges = tuple(Edge(v, v + 1, *factor(A)) for v, A in enumerate(matrices))
    term = Extremum(TreeScore((None,) * length, edges, d), name="max")
    return Target.sum(term, spelling=spell("chain", {"length": length, "d": d, "seed": seed}), sampler="normal")


@dataclass(frozen=True)
class Named:
    """What `infoflow targets` prints of a named target beside its keys, which are the builder's arguments."""

    build: Callable[..., Target]
    law: str  # of its random matrices, or "-"
    readers: dict[str, Callable[[str], Any]]  # key -> reader of its spelling
    defaults: dict[str, Any]


def separated_points(D: int, d: int, seed: int) -> np.ndarray:
    """D points of the open cube, each the farthest of many random candidates from those already chosen."""
    count = max(CANDIDATES, 4 * D)
    cost.work(D * count * d, FARTHEST_RATE, f"choosing {D} points of dimension {d} far from each other", "D or d")
    candidates = np.random.default_rng(seed).uniform(0.1, 0.9, (count, d))
    chosen = [candidates[0]]
    distance = np.full(len(candidates), np.inf)
    for _ in range(D - 1):
        distance = np.minimum(distance, ((candidates - chosen[-1]) ** 2).sum(1))
        chosen.append(candidates[distance.argmax()])
    return np.array(chosen)


def _checked(positions: Sequence[int]) -> tuple[int, ...]:
    try:
        found = list(positions)
    except TypeError:
        raise InfoFlowError(f"expected a list of positions, got {arguments.shown(positions)}.") from None
    return tuple(arguments.integer("a position", p, 0, MOST_POSITIONS - 1) for p in found)


def spell(name: str, keys: dict[str, Any]) -> str:
    """`name:key=value,...`."""
    return f"{name}:" + ",".join(f"{key}={value}" for key, value in keys.items())


def spell_positions(positions: Sequence[int]) -> str:
    """0-based positions as 1-based runs: (0, 1, 2, 6) is `1..3+7`."""
    runs: list[list[int]] = []
    for p in sorted({int(p) for p in positions}):
        if runs and runs[-1][1] == p:
            runs[-1][1] = p + 1
        else:
            runs.append([p + 1, p + 1])
    return "+".join(str(low) if low == high else f"{low}..{high}" for low, high in runs)


def spell_sets(sets: Sequence[Sequence[int]]) -> str:
    """Sets of positions as a spelling has them, separated by slashes."""
    return "/".join(spell_positions(positions) for positions in sets)


def read_positions(text: str) -> tuple[int, ...]:
    """`1..3+7` is (0, 1, 2, 6)."""
    found: set[int] = set()
    for run in text.split("+"):
        low, _, high = run.partition("..")
        first, last = int(low), int(high or low)
        if not 1 <= first <= last <= MOST_POSITIONS:
            raise ValueError(text)
        found.update(range(first - 1, last))
    return tuple(sorted(found))


def read_sets(text: str) -> tuple[tuple[int, ...], ...]:
    """The sets of such a spelling."""
    found = []
    for part in text.split("/"):
        found.append(read_positions(part))
        if sum(map(len, found)) > MOST_POSITIONS:
            raise ValueError(text)
    return tuple(found)


def _at_least(**keys: tuple[int, ...]) -> None:
    """Every key an integer from its least value on (up to its largest, where one is given), and the target of these
    sizes one that this machine can hold.

    The outer map of D terms has a D x D table of exponents; each of the k - 1 edges of a term has five matrices of
    d x d numbers, and the rank of one of them is found.
    """
    sizes = {key: arguments.integer(key, *given) for key, given in keys.items() if key != "seed"}
    if "seed" in keys:
        arguments.seed(keys["seed"][0])
    D, d, k = sizes.get("D", 1), sizes.get("d", 1), sizes.get("k", sizes.get("length", 2))
    what, lower = f"a target with {', '.join(f'{key}={n}' for key, n in sizes.items())}", " or ".join(sizes)
    cost.memory(24 * D**2 + 48 * D * k * d**2, what, lower)
    cost.work(D * k * d**3, RANK_RATE, what, lower)


_D_D_SEED: dict[str, Callable[[str], Any]] = {"D": int, "d": int, "seed": int}
NAMED: dict[str, Named] = {
    "d_retrieval": Named(
        d_retrieval,
        "z_i: farthest-point choice from uniform points of [0.1,0.9]^d",
        _D_D_SEED | {"sets": read_sets},
        {"D": 4, "d": 4, "seed": 0, "sets": None},
    ),
    "sum_of_maxima": Named(sum_of_maxima, "a_i: independent N(0,1) entries", _D_D_SEED, {"D": 4, "d": 4, "seed": 0}),
    "pairwise_max": Named(pairwise_max, "A_i: independent N(0,1) entries", _D_D_SEED, {"D": 4, "d": 4, "seed": 0}),
    "min_pair": Named(min_pair, "-", {"d": int}, {"d": 3}),
    "closest_pair": Named(closest_pair, "-", {"d": int}, {"d": 2}),
    "triangle_center": Named(triangle_center, "-", {"d": int}, {"d": 2}),
    "kth_largest": Named(kth_largest, "-", {"k": int, "d": int}, {"k": 2, "d": 1}),
    "position_sum": Named(position_sum, "-", {"positions": read_positions, "d": int}, {"positions": (0, 1, 2), "d": 2}),
    "value_at_argmax": Named(value_at_argmax, "-", {"d": int, "margin": float}, {"d": 2, "margin": 0.1}),
    "recall": Named(recall, "-", {"d": int, "values": int, "margin": float}, {"d": 2, "values": 1, "margin": 0.1}),
    "after_match": Named(after_match, "-", {"d": int, "margin": float}, {"d": 2, "margin": 0.1}),
    "max_plus_min": Named(max_plus_min, "-", {}, {}),
    "star": Named(
        star,
        "A_v: independent N(0,1) entries",
        {"k": int, "d": int, "seed": int},
        {"k": 3, "d": 4, "seed": 0},
    ),
    "chain": Named(
        chain,
        "A_v: independent N(0,1) entries",
        {"length": int, "d": int, "seed": int},
        {"length": 3, "d": 4, "seed": 0},
    ),
}


def function(
    f: Callable[[Any], Any],
    d: int,
    arity: int | None = None,
    extremum: Literal["max", "min"] | None = None,
    *,
    outputs: int = 1,
    distinct: bool = False,
    lipschitz: float | None = None,
    domain: tuple[float, float] = (-1.0, 1.0),
    sampler: str = "uniform",
    name: str = "",
) -> Target:
    """A target from a function of torch tensors.

    Without `arity`, f maps whole sequences (..., T, d) to (...), or to (..., outputs). With `arity` k and `extremum`, f
    is a score: it maps k tokens (..., k, d) to (...), and the target is its largest or smallest value over all k-tuples
    of positions (`distinct`: of different positions). `lipschitz`, with respect to each token, opens the occupancy
    construction to `build`. `name` is its identity where results are stored: another function needs another name.
    Without one it has an identity of this process alone, so that no store answers for a function that has changed.
    """
    integer("d", d)
    if not callable(f):
        raise InfoFlowError(f"expected a function of torch tensors, got {type(f).__name__}.")
    if (arity is None) != (extremum is None):
        raise InfoFlowError(
            "expected arity and extremum together (a score of k tokens, its max or min over tuples), or neither (a "
            "function of the whole sequence)."
        )
    called = getattr(f, "__name__", type(f).__name__).strip("<>")
    identity = name or f"{called}@{uuid4().hex[:8]}"
    options: dict[str, Any] = {"domain": domain, "sampler": sampler, "spelling": f"function:{identity}"}
    if arity is None:
        if distinct or lipschitz is not None:
            raise InfoFlowError("expected distinct and lipschitz for a score of k tokens alone; give an arity.")
        term = WholeSequence(OnTensors(f), d, integer("outputs", outputs))
        return Target((term,), Polynomial.identity(outputs), d, **options)
    if outputs != 1:
        raise InfoFlowError(f"expected one output of an extremum, got outputs={outputs}.")
    score = CallableScore(OnTensors(f), integer("arity", arity), d, lipschitz)
    assert extremum is not None
    return Target.sum(Extremum(score, extremum, distinct=distinct), **options)


def of_callable(f: Callable[..., Any]) -> Target:
    """A plain function of whole sequences, `def F(X, d=3)`: the default of `d` is the dimension of its tokens."""
    try:
        stated = inspect.signature(f).parameters.get("d")
    except (TypeError, ValueError):
        stated = None
    called = getattr(f, "__name__", type(f).__name__)
    if stated is None or stated.default is inspect.Parameter.empty:
        raise InfoFlowError(
            f"expected the dimension of the tokens as a default of the function's argument d (def {called}(X, d=2)), "
            "got none; or pass infoflow.targets.function(f, d=2)."
        )
    return function(f, stated.default)


@dataclass(frozen=True, eq=False)
class OnTensors:
    """A function of tensors that takes arrays, too, and whose failures are one sentence."""

    function: Callable[[Any], Any]

    def __call__(self, x: Array) -> Array:
        import torch

        tensor = x if is_torch(x) else torch.from_numpy(np.ascontiguousarray(x))
        try:
            y = self.function(tensor)
        except InfoFlowError:
            raise
        except Exception as error:  # a stranger's function may raise anything
            raise InfoFlowError(
                f"expected the function to take a tensor of shape {tuple(x.shape)}, it failed: {first_line(error)}"
            ) from None
        if not isinstance(y, torch.Tensor):
            raise InfoFlowError(f"expected the function to return a tensor, got {type(y).__name__}.")
        return y if is_torch(x) else on_host(y)


TargetLike = Target | str | Callable[..., Any]


def target_of(target: TargetLike) -> Target:
    """A target as it is, the one a spelling names, or a plain function `def F(X, d=3)`: every verb takes all three."""
    if isinstance(target, Target):
        return target
    return of_callable(target) if callable(target) else parse(target)


def parse(spelling: str) -> Target:
    """The named target a spelling stands for, wherever the spelling comes from."""
    if not isinstance(spelling, str):
        raise InfoFlowError(f"expected a target or its spelling such as 'pairwise_max:D=4,d=4', got {shown(spelling)}.")
    name, colon, rest = spelling.strip().partition(":")
    if ".py" in spelling:
        raise InfoFlowError(
            f"expected a named target, got {spelling!r}; code is run only when an argument of the command names it "
            "(--target FILE.py:NAME), and in Python you import it and pass the target itself."
        )
    if name not in NAMED:
        raise unknown("target", name, list(NAMED))
    if colon and not rest:
        raise InfoFlowError(f"expected key=value after the colon of {spelling!r}, got nothing.")
    return NAMED[name].build(**_read_keys(name, rest))


def _read_keys(name: str, text: str) -> dict[str, Any]:
    readers = NAMED[name].readers
    found: dict[str, Any] = {}
    for key, value in arguments.pairs(text.split(",") if text else (), f"separated by commas after {name}:").items():
        if key not in readers:
            if not readers:
                raise InfoFlowError(f"expected {name} without keys, got {key!r}.")
            raise unknown(f"key of {name}", key, list(readers))
        try:
            found[key] = readers[key](value)
        except ValueError:
            kinds = {int: "an integer", float: "a number"}
            kind = kinds.get(readers[key], "positions like 1..3+7 (from 1 on; sets joined by /)")  # type: ignore[call-overload]
            raise InfoFlowError(f"expected {key} to be {kind}, got {value!r}.") from None
    return found
