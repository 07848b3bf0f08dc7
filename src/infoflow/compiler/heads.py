"""From directions to rows: what every head asks, compares and fetches.

Units: a direction stores scale * (its meaning); `kappa` is that scale for scores, scores(stored) = kappa * score(true).
Rows are over the directions of a layer. All query, key and value entries are at most 1 in absolute value, which fixes
kappa = min over components of 1 / (max|psi row| max|phi row|): the larger kappa, the smaller the temperature 1/beta.

A head that leaves out the token that asks adds -penalty <e_t, e_s> to the score, e_t the code of position t, one
direction per position. The values it fetches are the scores without the penalty, stored at `fetched` >= kappa times
their size: the penalty asks for a smaller kappa, that is a larger beta, and for no wider feed-forward block.

A head that fetches from the neighbour `shift` positions away compares by position alone: its score is
<e_{t+shift}, e_s>, 1 at that token and 0 at all others. What it fetches is held in directions of its own until the CLS
reads it.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float

from infoflow.flow.jobs import Job
from infoflow.flow.layout import Layout
from infoflow.flow.normal_form import HELD, Message, Term

BELOW = 1.0 - 2.0**-50  # entries scaled to at most 1 stay there after rounding
# A token is kept from itself by a penalty of this many times the spread of the scores it compares: once the spread to
# be below every other, once more so that its weight is exp(-beta kappa spread), nothing beside the softmax error.
PENALTY_SPREADS = 2.0


@dataclass(frozen=True)
class WiredHead:
    """One job in rows: logit = beta * <query z_t, key z_s>, fetched = average of value z_s, written to `writes`."""

    job: Job
    query: Float[np.ndarray, "keys directions"]
    key: Float[np.ndarray, "keys directions"]
    value: Float[np.ndarray, "values directions"]
    writes: tuple[int, ...]
    kappa: float  # logit = beta * kappa * (score - penalty at the token itself)
    fetched: float  # of a message: stored score / true score; 0 for a read
    units: tuple[float, ...]  # stored value / true value, per fetched number of a read or of a neighbour
    psi: Float[np.ndarray, "rank directions"]  # true functionals as rows, for the error analysis
    phi: Float[np.ndarray, "rank directions"]
    own: Float[np.ndarray, " directions"]  # true child score (or the score read) as a row
    defect: float  # what rows leave out of the true score, by rounding or rank reduction
    value_defect: float = 0.0  # what the values of a winner's read leave out, true units
    value_error: float = 0.0  # how far stored values may be from the rows above, 0 for those that are written
    penalty: float = 0.0  # what a token's own score loses, where the message leaves it out
    code_scale: float = 1.0  # what a position's own direction holds there


class Rows:
    """Functionals on features, and scores, as rows over the directions of one layer."""

    def __init__(self, layout: Layout, layer: int, scale: np.ndarray, units: dict[tuple[int, int], float]) -> None:
        self.state, self.scale, self.units, self.layer = layout.states[layer], scale, units, layer
        self.size = layout.states[layer].size
        basis = self.state.basis
        self._exact = len(basis) and np.array_equal(np.abs(basis).sum(axis=1), np.abs(basis).max(axis=1))

    @cached_property
    def _solve(self) -> np.ndarray:
        return np.linalg.pinv(self.state.basis.T)

    def functional(self, vector: np.ndarray) -> tuple[np.ndarray, float]:
        """(row, defect): row . z = vector . features up to defect."""
        result = np.zeros(self.size)
        basis = self.state.basis
        if not len(basis) or not vector.any():
            return result, float(np.abs(vector).sum())
        if self._exact:  # unit rows: coordinates are entries
            coordinates = basis @ vector / (basis**2).sum(axis=1)
        else:
            coordinates = self._solve @ vector
            coordinates[np.abs(coordinates) < 1e-15 * np.abs(coordinates).max()] = 0.0
        defect = float(np.abs(coordinates @ basis - vector).sum())
        result[: len(basis)] = coordinates / self.scale
        return result, defect

    def score(self, term: Term, vertex: int) -> tuple[np.ndarray, float]:
        """b_v: its slot where one is held, else its unary functional."""
        if (term.index, vertex) in self.state.slots:
            result = np.zeros(self.size)
            result[self.state.slots[term.index, vertex]] = 1.0 / self.units[term.index, vertex]
            return result, 0.0
        return self.functional(term.unary[vertex])

    def unit(self, index: int) -> np.ndarray:
        """The row that reads one direction."""
        result = np.zeros(self.size)
        result[index] = 1.0
        return result


def first_cls(layout: Layout) -> np.ndarray:
    """The CLS: its flag, or the constant its reads of layer 1 ask with; 0 elsewhere."""
    state = layout.states[0]
    cls = np.zeros(state.size)
    reads = any(job.message is None for job in layout.jobs[0])
    if state.flag is not None:
        cls[state.flag] = 1.0
    elif reads and layout.layers == 1:
        cls[0] = 1.0
    elif reads and state.one is not None:
        cls[state.one] = 1.0
    return cls


def asks_with(layout: Layout, layer: int) -> int:
    """The direction that is 1 for the CLS when it reads."""
    state = layout.states[layer]
    if state.flag is not None:
        return state.flag
    if layout.layers == 1:
        return 0
    assert state.one is not None
    return state.one


def cls_entry(layout: Layout, layer: int, direction: int) -> float:
    """What the CLS holds in a read's destination before the read: a known constant."""
    state = layout.states[layer]
    if layer == 0:
        return float(first_cls(layout)[direction])
    if direction == state.flag:
        return 1.0
    if direction == state.one:
        return 1.0 if state.flag is None else 0.0
    return 0.0


def wired_head(layout: Layout, layer: int, index: int, row: Rows, one: float) -> WiredHead:
    """The head of a job, by its kind: a message from a child or a neighbour, a score or what is read at its winner."""
    job = layout.jobs[layer][index]
    writes = layout.states[layer].received[index]
    term = layout.form.terms[job.term]
    if job.message is not None and job.message.shift:
        return _fetching_head(job, term, row, writes)
    if job.message is not None:
        return _message_head(job, job.message, term, row, one, writes)
    if term.reads is not None:
        return _winner_head(layout, layer, job, term, row, writes)
    own, defect = row.score(term, term.root)
    kappa = BELOW / (float(np.abs(own).max()) or 1.0)
    key = kappa * own[None]
    none = np.zeros((0, row.size))
    query = row.unit(asks_with(layout, layer))[None]
    return WiredHead(job, query, key, key, writes, kappa, 0.0, (kappa,), none, none, own, defect)


def _message_head(job: Job, message: Message, term: Term, row: Rows, one: float, writes: tuple[int, ...]) -> WiredHead:
    psi, phi, defect = [], [], message.defect
    for left, right in zip(message.psi, message.phi, strict=True):
        (a, da), (b, db) = row.functional(left), row.functional(right)
        psi.append(a)
        phi.append(b)
        defect += da * float(np.abs(right).sum()) + db * float(np.abs(left).sum())
    limits = [1.0 / m for a, b in zip(psi, phi, strict=True) if (m := float(np.abs(a).max() * np.abs(b).max())) > 0]
    own = np.zeros(row.size)
    carries = term.carries(message.child)
    if carries:
        own, extra = row.score(term, message.child)
        defect += extra
        limits.append(one / float(np.abs(own).max()))
    fetched = kappa = min(limits, default=1.0) * BELOW
    penalty, code = 0.0, 1.0
    if message.excludes:
        penalty = PENALTY_SPREADS * term.spread(message)
        code = float(row.scale[row.state.codes[0]])
        kappa = min(kappa, code**2 / penalty * BELOW) if penalty > 0.0 else kappa
    query, key, value = [], [], []
    for a, b in zip(psi, phi, strict=True):
        size = float(np.abs(a).max()) or 1.0
        query.append(a / size)
        key.append(kappa * size * b)
        value.append(fetched * size * b)
    if carries:
        assert row.state.one is not None
        query.append(row.unit(row.state.one))
        key.append(kappa / one * own)
        value.append(fetched * own)
    for j in row.state.codes if message.excludes else ():
        query.append(row.unit(j))
        key.append(-kappa * penalty / code**2 * row.unit(j))
    return WiredHead(
        job,
        np.array(query),
        np.array(key),
        np.array(value),
        writes,
        kappa,
        fetched,
        (),
        np.array(psi).reshape(-1, row.size),
        np.array(phi).reshape(-1, row.size),
        own,
        defect,
        penalty=penalty,
        code_scale=code,
    )


def _fetching_head(job: Job, term: Term, row: Rows, writes: tuple[int, ...]) -> WiredHead:
    """Query j is position j's own direction, key j that of position j + shift: they meet where s = t + shift."""
    assert term.reads is not None
    codes, code = row.state.codes, float(row.scale[row.state.codes[0]])
    kappa = code**2 * BELOW
    met = [(j, codes[p + term.shift]) for p, j in enumerate(codes) if 0 <= p + term.shift < len(codes)]
    pairs = [(row.unit(asks), row.unit(answers)) for asks, answers in met]
    rows, units, off = _read_rows(term, row)
    none = np.zeros((0, row.size))
    return WiredHead(
        job,
        np.array([query for query, _ in pairs]),
        BELOW * np.array([key for _, key in pairs]),
        rows,
        writes,
        kappa,
        1.0,
        units,
        none,
        none,
        np.zeros(row.size),
        0.0,
        value_defect=off,
        code_scale=code,
    )


def _read_rows(term: Term, row: Rows) -> tuple[np.ndarray, tuple[float, ...], float]:
    """What is read at a token as rows, the unit of each, and what they leave out."""
    assert term.reads is not None
    rows, units, off = [], [], 0.0
    for read in term.reads:
        functional, extra = row.functional(read)
        unit = BELOW / (float(np.abs(functional).max()) or 1.0)
        rows.append(unit * functional)
        units.append(unit / term.winners)
        off = max(off, extra * term.winners)
    return np.array(rows), tuple(units), off


def _held_rows(term: Term, row: Rows) -> tuple[np.ndarray, tuple[float, ...], float]:
    """The same for what a token has fetched from its neighbour: a direction each."""
    keys = [(term.index, HELD - k) for k in range(term.values)]
    rows = BELOW * np.array([row.unit(row.state.slots[key]) for key in keys])
    return rows, tuple(BELOW * row.units[key] for key in keys), 0.0


def _winner_head(layout: Layout, layer: int, job: Job, term: Term, row: Rows, writes: tuple[int, ...]) -> WiredHead:
    """The key is the score alone (for fixed positions their code, 0 on the set and -1 off it), the values are what is
    read at the winners."""
    assert term.reads is not None
    own, defect = row.score(term, term.root)
    kappa = BELOW / (float(np.abs(own).max()) or 1.0)
    values, units, off = _read_rows(term, row) if term.fetch is None else _held_rows(term, row)
    none = np.zeros((0, row.size))
    query = row.unit(asks_with(layout, layer))[None]
    head = WiredHead(job, query, kappa * own[None], values, writes, kappa, 0.0, units, none, none, own, defect)
    return replace(head, value_defect=off)
