"""A target in the compiler's normal form: maxima over rooted trees, with functionals on monomials of the tokens.

Tokens of the box are written x = centre + half * u with u in [-1, 1]^d (the centre only for boxes far from 0). A
functional is a vector over features: monomials of u (degree >= 1), position sets (0 on the set, -1 off it) and single
positions (1 there, 0 elsewhere). A term is

    sign * [constant + max over t_1..t_k of sum_v unary_v(t_v) + sum_edges <psi(t_parent), phi(t_child)>],

rooted at a centre of its tree. Minima are maxima of the negated score. A pair of different positions is a message that
leaves out the token that asks (`Message.excludes`); the second largest value is min_s max_{t != s} a'x(t), a message
that is subtracted (`Message.sign`).

A term that is read at its winner (`Term.reads`: a value at an extremum, or fixed positions, whose score is 0 on the set
and -1 off it) is not its score but a functional of the tokens there: the mean over the winners, times their number. The
score only says who wins, and by how much: `Term.margin`. Where what is read stands `shift` positions away from the
winner, every token first fetches it (`Term.fetch`), by the codes of the single positions.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from infoflow import cost
from infoflow.errors import InfoFlowError
from infoflow.flow.rank import reduce_rank
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import TreeScore, tree_form
from infoflow.targets.target import OuterNetwork, Target
from infoflow.targets.terms import Extremum, KthLargest, PositionSum, ValueAtExtremum, WholeSequence

# feature -> coefficient; a feature is an exponent tuple, a frozenset of positions or one position (an int)
Functional = dict[Any, float]
FARTHEST = 1e50  # ends of the domain: beyond it products of a few coordinates leave float64
HELD = -1  # the first of the components that a token fetched from a neighbour, where vertices are numbered
MOST_CODES = 1024  # positions with a direction of their own: four attention matrices of T^2 numbers, 32 MiB
ROOTS_A_SECOND = 2e6  # cubes of the vertices of a tree whose every root is tried, measured on one core

RefusalKind = Literal["target", "architecture", "weights", "accuracy"]


class Refused(InfoFlowError):
    """What a builder cannot serve; `reasons` holds every reason, `kind` says what stands in the way."""

    def __init__(self, reasons: list[str] | tuple[str, ...], kind: RefusalKind = "target") -> None:
        self.reasons, self.kind = tuple(dict.fromkeys(reasons)), kind
        super().__init__("refused: " + "; ".join(self.reasons) + ".")


@dataclass(frozen=True)
class Message:
    """One edge of a rooted tree: the child's best continuation, sent to the parent."""

    term: int
    child: int
    parent: int
    psi: Float[np.ndarray, "rank features"]
    phi: Float[np.ndarray, "rank features"]
    bound: float  # sup |<psi, phi>|
    defect: float  # sup of what rank reduction left out
    excludes: bool = False  # the maximum is over the other tokens, not the one that asks
    sign: float = 1.0  # with which the maximum enters the parent's score
    shift: int = 0  # not 0: no comparison, the token that stands this far away is fetched (`Term.fetch`)

    @property
    def rank(self) -> int:
        """Products that its score sums."""
        return len(self.psi)

    @property
    def coded(self) -> bool:
        """It needs a direction for every position."""
        return self.excludes or self.shift != 0

    @property
    def name(self) -> str:
        """As the layout's directions spell it."""
        if self.shift:
            return f"term{self.term + 1}.fetch({self.shift:+d})"
        return f"term{self.term + 1}.message({self.child + 1}->{self.parent + 1})"


@dataclass(frozen=True)
class Term:
    """One value of the target (several, where the winner is read): a rooted tree."""

    index: int
    sign: float
    constant: Float[np.ndarray, " values"]
    root: int
    unary: Float[np.ndarray, "vertices features"]
    messages: tuple[Message, ...]  # children before parents
    height: tuple[int, ...]
    positions: tuple[int, ...] | None = None  # the winners, where they are always the same
    reads: Float[np.ndarray, "values features"] | None = None  # what is read at the winners
    margin: float = 0.0  # by how much the scores of winners exceed the others, where they are read
    shift: int = 0  # how far from the winner the token stands that is read

    @property
    def values(self) -> int:
        """Numbers that are read at its winner."""
        return 1 if self.reads is None else len(self.reads)

    @property
    def fetch(self) -> Message | None:
        """What every token must fetch before it can be read; its components are held as "vertices" HELD, HELD - 1.."""
        if not self.shift:
            return None
        none = np.zeros((0, self.unary.shape[1]))
        return Message(self.index, HELD, self.root, none, none, 0.0, 0.0, shift=self.shift)

    @property
    def sent(self) -> tuple[Message, ...]:
        """Everything that tokens fetch from each other."""
        return self.messages if self.fetch is None else (*self.messages, self.fetch)

    @property
    def winners(self) -> int:
        """Positions that win together."""
        return 1 if self.positions is None else len(self.positions)

    def incoming(self, vertex: int) -> tuple[Message, ...]:
        """The messages into a vertex."""
        return tuple(m for m in self.messages if m.parent == vertex)

    def carries(self, vertex: int) -> bool:
        """True when b_v = unary + incoming messages is not identically zero."""
        return vertex > HELD and (bool(np.any(self.unary[vertex])) or bool(self.incoming(vertex)))

    def bound(self, vertex: int) -> float:
        """sup |b_v|, vertex by vertex up the tree."""
        own = float(np.abs(self.unary[vertex]).sum())
        return own + sum(m.bound + self.bound(m.child) for m in self.incoming(vertex))

    def spread(self, message: Message) -> float:
        """How far two scores that one token compares for a message may be apart."""
        return 2.0 * (message.bound + self.bound(message.child))


@dataclass(frozen=True)
class NormalForm:
    """The terms, the features they speak of and the box."""

    terms: tuple[Term, ...]
    features: tuple[Any, ...]
    centre: Float[np.ndarray, " d"]
    half: Float[np.ndarray, " d"]
    target: Target = field(repr=False)
    T: int = 0

    @property
    def dim(self) -> int:
        """Coordinates of a token."""
        return len(self.centre)

    @property
    def linear(self) -> bool:
        """True when every monomial has degree one, so that a linear encoder is exact."""
        return all(names_positions(f) or sum(f) == 1 for f in self.features)

    @property
    def position_features(self) -> tuple[int, ...]:
        """Places of the features that name positions."""
        return tuple(i for i, f in enumerate(self.features) if names_positions(f))

    @property
    def single_positions(self) -> tuple[int, ...]:
        """The features that are 1 at one position: there for messages that leave out the token that asks."""
        return tuple(i for i, f in enumerate(self.features) if isinstance(f, int))

    def position_code(self, index: int) -> Float[np.ndarray, " T"]:
        """A position feature as a column of the position table."""
        feature = self.features[index]
        if isinstance(feature, int):
            made: np.ndarray = np.eye(self.T)[feature]
            return made
        return np.array([0.0 if t in feature else -1.0 for t in range(self.T)])


def names_positions(feature: Any) -> bool:
    """A feature of where a token stands, not of what it holds."""
    return not isinstance(feature, tuple)


def box(domain: Any, d: int) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of a box given as two numbers or two vectors."""
    try:
        low, high = domain
        low = np.broadcast_to(np.asarray(low, dtype=np.float64), (d,)).copy()
        high = np.broadcast_to(np.asarray(high, dtype=np.float64), (d,)).copy()
    except (TypeError, ValueError, OverflowError):
        raise Refused([f"the domain must be a box (low, high), numbers or {d} numbers each, got {domain!r}"]) from None
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise Refused([f"the domain must be a bounded box with low < high, got {domain!r}"])
    if max(np.abs(low).max(), np.abs(high).max()) > FARTHEST or (high - low).min() < 1 / FARTHEST:
        raise Refused(
            [f"the domain must lie within +-{FARTHEST:g} with sides of at least {1 / FARTHEST:g}, got {domain!r}"]
        )
    return low, high


def normal_form(target: Target, T: int, domain: Any = None) -> NormalForm:
    """Validate, collecting every reason, then write every term over common features."""
    low, high = box(target.domain if domain is None else domain, target.dim)
    centre, half = _centre(low, high)
    vertices = sum(term.arity**3 for term in target.terms if isinstance(term, Extremum))
    cost.work(vertices, ROOTS_A_SECOND, f"rooting trees of {target.arity} tokens", "the tokens a term compares")
    reasons = [] if isinstance(T, int) and T >= 1 else [f"T must be a positive integer, got {T!r}"]
    drafts = []
    for index, term in enumerate(target.terms):
        draft, why = _draft(index, term, max(int(T), 1) if isinstance(T, int) else 1, centre, half)
        reasons += why
        drafts.append(draft)
    if isinstance(target.outer, OuterNetwork) and not math.isfinite(target.outer.lipschitz):
        reasons.append("the outer map needs a finite Lipschitz constant")
    if reasons:
        raise Refused(reasons)
    features = _features(drafts, T)
    column = {feature: i for i, feature in enumerate(features)}
    terms = tuple(_finish(draft, column) for draft in drafts if draft is not None)
    return NormalForm(terms, features, centre, half, target, T)


@dataclass
class _Draft:
    index: int
    sign: float
    constant: list[float]
    root: int
    unary: list[Functional]
    edges: list[tuple[int, int, list[Functional], list[Functional]]]  # (child, parent, psi, phi), leaves first
    height: list[int]
    positions: tuple[int, ...] | None = None
    excludes: bool = False  # of its messages, see Message
    message_sign: float = 1.0
    reads: list[Functional] | None = None
    margin: float = 0.0
    shift: int = 0


def _centre(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Boxes around or near 0 are scaled only (features stay pure); boxes far from 0 are shifted as well."""
    half = (high - low) / 2
    reach = np.maximum(np.abs(low), np.abs(high))
    shift = reach > 2.0 * half * (1.0 + 1e-12)
    return np.where(shift, (low + high) / 2, 0.0), np.where(shift, half, reach)


def _draft(index: int, term: Any, T: int, centre: np.ndarray, half: np.ndarray) -> tuple[_Draft | None, list[str]]:
    name = f"term {index + 1}"
    if isinstance(term, KthLargest):
        if term.k == 2:
            return _second_largest(index, term, T, centre, half)
        if term.k > 2:
            return None, [
                f"{name} is the {term.k}-th largest: only k = 1 (a maximum) and k = 2 (the least maximum that leaving "
                "out one token leaves) compile"
            ]
        term = Extremum(TreeScore.linear(np.asarray(term.direction)))
    if isinstance(term, PositionSum):
        return _draft_positions(index, term, T, centre, half)
    if isinstance(term, ValueAtExtremum):
        draft, reasons = _draft_extremum(index, term.extremum, T, centre, half, term.vertex, term.margin)
        reasons = [*reasons, *(_shift_reasons(name, term, T) if term.shift else [])]
        return (None, reasons) if draft is None or reasons else (_read_at_winner(draft, term, centre, half), [])
    if isinstance(term, WholeSequence):
        return None, [f"{name} is a function that can be called but not read"]
    if not isinstance(term, Extremum):
        return None, [f"{name} is a {type(term).__name__}, which is not an extremum of a score"]
    return _draft_extremum(index, term, T, centre, half)


def _draft_extremum(
    index: int,
    term: Extremum,
    T: int,
    centre: np.ndarray,
    half: np.ndarray,
    root: int | None = None,
    margin: float = 0.0,
) -> tuple[_Draft | None, list[str]]:
    name, tree = f"term {index + 1}", tree_form(term.score)
    if tree is None:
        return None, [f"{name} has a score that does not decompose over a tree ({type(term.score).__name__})"]
    reasons = []
    if term.distinct and tree.arity > 2:
        reasons.append(
            f"{name} asks for {tree.arity} different positions: a token can leave out itself, so pairs compile, but "
            "not what another token found"
        )
    if term.distinct and tree.arity == 2:
        reasons += _code_reasons(name, T)
    for vertex, allowed in enumerate(term.ranges(T)):
        if not allowed or allowed[-1] >= T:
            reasons.append(f"{name} restricts vertex {vertex + 1} to positions that are not in 1..{T}")
    if reasons:
        return None, reasons
    return _root(index, term, tree, T, (centre, half), root, margin), []


def _read_at_winner(draft: _Draft, term: ValueAtExtremum, centre: np.ndarray, half: np.ndarray) -> _Draft:
    rows, constants = term.read.substituted(centre, half)
    return replace(draft, sign=1.0, constant=constants, reads=rows, margin=term.margin, shift=term.shift)


def _shift_reasons(name: str, term: ValueAtExtremum, T: int) -> list[str]:
    positions = term.extremum.ranges(T)[term.vertex]
    if positions and not (min(positions) + term.shift >= 0 and max(positions) + term.shift < T):
        return [f"{name} reads {term.shift:+d} positions from its winner, and not every winner has a token there"]
    return _code_reasons(name, T)


def _draft_positions(
    index: int, term: PositionSum, T: int, centre: np.ndarray, half: np.ndarray
) -> tuple[_Draft | None, list[str]]:
    outside = [p + 1 for p in term.positions if not 0 <= p < T]
    if outside or not term.positions:
        return None, [f"term {index + 1} sums positions {outside or 'of an empty set'}, T is {T}"]
    if len(set(term.positions)) < len(term.positions):
        return None, [f"term {index + 1} names a position twice"]
    d = len(centre)
    unit = np.eye(d, dtype=int)
    reads: list[Functional] = [{tuple(unit[j].tolist()): float(half[j])} for j in range(d)]
    constant = [len(term.positions) * float(c) for c in centre]
    score: list[Functional] = [{frozenset(term.positions): 1.0}]
    positions = tuple(sorted(term.positions))
    return _Draft(index, 1.0, constant, 0, score, [], [0], positions, reads=reads, margin=1.0), []


def _root(
    index: int,
    term: Extremum,
    tree: TreeScore,
    T: int,
    substituted: tuple[np.ndarray, np.ndarray],
    root: int | None,
    margin: float,
) -> _Draft:
    """Substitute the box (centre, half), absorb constants of features into unaries, root at a centre (or at the vertex
    that is read), add position penalties: twice sup|score| puts a forbidden tuple at or below every allowed one, and
    `margin` more keeps it that far below."""
    centre, half = substituted
    sign = 1.0 if term.kind == "max" else -1.0
    unary: list[Functional] = [{} for _ in range(tree.arity)]
    constant = 0.0
    for vertex, polynomial in enumerate(tree.unary):
        if polynomial is not None:
            (rows, constants) = polynomial.substituted(centre, half)
            _add(unary[vertex], rows[0], sign)
            constant += sign * constants[0]
    edges = []
    for edge in tree.edges:
        left, left0 = edge.left.substituted(centre, half)
        right, right0 = edge.right.substituted(centre, half)
        for k in range(edge.rank):
            _add(unary[edge.v], left[k], sign * right0[k])
            _add(unary[edge.w], right[k], sign * left0[k])
            constant += sign * left0[k] * right0[k]
        edges.append((edge.v, edge.w, left, [{f: sign * c for f, c in row.items()} for row in right]))
    sets = {v: frozenset(positions) for v, positions in enumerate(term.ranges(T)) if len(positions) < T}
    for vertex, allowed in sets.items():
        unary[vertex][allowed] = 0.0  # the penalty is filled in below
    root, parent, order = _centre_of_tree(tree.arity, edges, unary, root)
    height = _heights(tree.arity, parent, order)
    directed = []
    for child in order:
        if child != root:
            v, w, left, right = next(e for e in edges if {e[0], e[1]} == {child, parent[child]})
            directed.append(
                (child, parent[child], left if v == parent[child] else right, right if w == child else left)
            )
    span = 2.0 * (sum(_size(u) for u in unary) + sum(_product_size(p, q) for _, _, p, q in directed))
    for vertex, allowed in sets.items():
        unary[vertex][allowed] = max(span, 1e-6) + margin
    return _Draft(index, sign, [constant], root, unary, directed, height, excludes=term.distinct and tree.arity == 2)


def _code_reasons(name: str, T: int) -> list[str]:
    if T < 2:
        return [f"{name} asks for two different positions, T is {T}"]
    if T > MOST_CODES:
        return [f"{name} tells positions apart, a direction for each, and T={T} is more than {MOST_CODES} of them"]
    return []


def _second_largest(
    index: int, term: KthLargest, T: int, centre: np.ndarray, half: np.ndarray
) -> tuple[_Draft | None, list[str]]:
    """The second largest of a'x(t) is min_s max_{t != s} a'x(t): leaving out the largest leaves the second largest,
    leaving out any other leaves the largest. As a maximum: - max_s [ - max_{t != s} a'x(t) ]."""
    if reasons := _code_reasons(f"term {index + 1}", T):
        return None, reasons
    (score,), (constant,) = Polynomial.linear(np.asarray(term.direction)[None, :]).substituted(centre, half)
    edges: list[tuple[int, int, list[Functional], list[Functional]]] = [(1, 0, [], [])]
    return _Draft(index, -1.0, [-constant], 0, [{}, score], edges, [1, 0], excludes=True, message_sign=-1.0), []


def _centre_of_tree(
    k: int, edges: list[Any], unary: list[Functional], fixed: int | None
) -> tuple[int, list[int], list[int]]:
    """The root of least height; among equals the one that leaves fewest leaves with a unary score, then the first."""
    best: tuple[tuple[int, int, int], tuple[int, list[int], list[int]]] | None = None
    for root in range(k) if fixed is None else (fixed,):
        parent, order = [-1] * k, [root]
        for vertex in order:
            for v, w, *_ in edges:
                for a, b in ((v, w), (w, v)):
                    if a == vertex and parent[vertex] != b:
                        parent[b] = vertex
                        order.append(b)
        order.reverse()
        heights = _heights(k, parent, order)
        leaves = sum(1 for v in range(k) if v != root and heights[v] == 0 and unary[v])
        key = (heights[root], leaves, root)
        if best is None or key < best[0]:
            best = (key, (root, parent, order))
    assert best is not None
    return best[1]


def _heights(k: int, parent: list[int], order: list[int]) -> list[int]:
    height = [0] * k
    for vertex in order:
        if parent[vertex] >= 0:
            height[parent[vertex]] = max(height[parent[vertex]], height[vertex] + 1)
    return height


def _add(row: Functional, other: Functional, factor: float) -> None:
    for feature, c in other.items():
        value = row.get(feature, 0.0) + factor * c
        if value:
            row[feature] = value
        else:
            row.pop(feature, None)


def _size(row: Functional) -> float:
    return sum(abs(c) for c in row.values())


def _product_size(psi: list[Functional], phi: list[Functional]) -> float:
    return sum(_size(p) * _size(q) for p, q in zip(psi, phi, strict=True))


def _features(drafts: list[Any], T: int) -> tuple[Any, ...]:
    """Linear monomials first, then higher degrees, then position sets, then single positions where they are needed."""
    used: dict[Any, None] = {}
    for draft in drafts:
        for row in (*draft.unary, *(draft.reads or ())):
            used.update(dict.fromkeys(row))
        for _, _, psi, phi in draft.edges:
            for row in (*psi, *phi):
                used.update(dict.fromkeys(row))
    monomials = sorted((f for f in used if not names_positions(f)), key=lambda f: (sum(f), [-e for e in f]))
    single = range(T) if any(draft.excludes or draft.shift for draft in drafts) else ()
    return (*monomials, *sorted((f for f in used if isinstance(f, frozenset)), key=sorted), *single)


def _finish(draft: _Draft, column: dict[Any, int]) -> Term:
    def vector(row: Functional) -> np.ndarray:
        result = np.zeros(len(column))
        for feature, c in row.items():
            result[column[feature]] = c
        return result

    messages = []
    for child, parent, psi, phi in draft.edges:
        full = tuple(np.array([vector(r) for r in rows]).reshape(len(rows), len(column)) for rows in (psi, phi))
        left, right = reduce_rank(*full) if psi else full
        defect = float(np.abs(left.T @ right - full[0].T @ full[1]).sum())
        bound = min(float((np.abs(left).sum(1) * np.abs(right).sum(1)).sum()), float(np.abs(left.T @ right).sum()))
        messages.append(
            Message(draft.index, child, parent, left, right, bound, defect, draft.excludes, draft.message_sign)
        )
    unary = np.array([vector(r) for r in draft.unary])
    return Term(
        draft.index,
        draft.sign,
        np.array(draft.constant),
        draft.root,
        unary,
        tuple(messages),
        tuple(draft.height),
        draft.positions,
        None if draft.reads is None else np.array([vector(r) for r in draft.reads]),
        draft.margin,
        draft.shift,
    )
