"""Planted circuits: small attention programs with explicit weights whose heads have every mode.

A token is a symbol (one of K, each `copies` times in a sequence, in random order) and a number v in [-1, 1]. The head
of a circuit attends by a bilinear form of symbols and positions,

    self, previous, next, position (2 to 5 back, or one place)   that key stands `lead` logits above the others
    sink        the first token does
    global      all logits are equal
    top         the `copies` keys with the symbol that a secret permutation gives stand out
    mixed       normal logits per pair of symbols, of standard deviation 1.5: too broad for any mode
    two_jobs    tokens of one half of the symbols attend to the token before, the others by symbol
    duplicate   earlier tokens of the own symbol stand `lead` logits above all others
    induction   tokens behind an earlier token of the own symbol do; a head of a lower layer (kind `before`, a previous
                head) tells every token the symbol in front of it, so that this takes two heads and an edge

and fetches r(t), the mean of v over its pattern. Before the last layer the feed-forward block forms r(t) v(t), carries
it up, and one head of the last layer averages it over the sequence for the CLS; a head of the last layer reads v for
the CLS itself. The output is the sum over circuits of gain times these averages. Products and carried numbers are the
tanh pieces of the compiler, each within TOLERANCE, so the network differs from that sum by at most `bound`.

Where there are movers the network has one more output for every symbol, its logit. A mover is a head of the last layer
that looks at one place and `says` what stands there: copying raises the logit of the symbol it sees, suppressing lowers
it, translating raises that of another symbol (a secret permutation). All three have the same pattern.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

TOLERANCE = 0.002  # of each piece
ON_TOKENS = ("self", "previous", "next", "position", "sink", "global", "top", "mixed", "duplicate", "induction")
BY_CLS = ("position", "sink", "global", "top")
BROAD = 1.5  # standard deviation of logits
BROAD_FROM = 16  # tokens: among fewer, four keys hold most of the mass of a broad head
SHARP = 0.1  # the least gap in a superposed table, of entries of size 1
REPEATS = ("induction", "duplicate")  # need symbols and places of one direction each
LEAD, BEFORE_LEAD = (7.0, 11.0), (11.0, 13.0)  # logits; what an induction head compares must be nearly exact
SAYS = ("copying", "suppressing", "translating")


@dataclass(frozen=True)
class Circuit:
    """One planted head. `stands_in` is the number of the circuit a decoy or a backup copies, `reads` that of the head
    that tells an induction head the symbols in front; `says` is what a mover does."""

    kind: str
    layer: int
    lead: float
    seed: int
    role: str = "computes"
    stands_in: int | None = None
    share: float = 0.4  # standard deviation of its part of the output, over that of the target
    reads: int | None = None
    says: str = ""

    @property
    def adds(self) -> bool:
        """Whether it fetches v and its average is a part of the first output."""
        return self.role == "computes" and self.kind != "before" and not self.says


@dataclass(frozen=True)
class Symbols:
    """How tokens and positions are written: one direction each, or (superposed) more symbols than directions."""

    T: int
    count: int
    copies: int
    code: Float[np.ndarray, "symbols directions"]
    place: Float[np.ndarray, "T directions"]

    @property
    def exact(self) -> bool:
        return len(self.code) == self.code.shape[1]

    def sample(self, number: int, rng: np.random.Generator) -> Float[np.ndarray, "number T d"]:
        """Tokens (one-hot symbol, v)."""
        order = np.argsort(rng.random((number, self.T)), axis=1)
        symbol = np.repeat(np.arange(self.count), self.copies)[order]
        value = rng.uniform(-1, 1, (number, self.T, 1))
        return np.concatenate([np.eye(self.count)[symbol], value], axis=-1)


def symbols(T: int, copies: int, superposed: bool, rng: np.random.Generator) -> Symbols:
    """A tight frame of K vectors in K - max(1, K // 4) directions when superposed, else the unit vectors.

    Superposed places are points on circles of several frequencies, about half as many directions as places.
    """
    count = T // copies
    if not superposed:
        return Symbols(T, count, copies, np.eye(count), np.eye(T))
    size = count - max(1, count // 4)
    turned = np.linalg.qr(rng.standard_normal((count, count)))[0][:, :size]
    angles = 2 * np.pi * np.outer(np.arange(T), np.arange(1, T // 4 + 1)) / T
    place = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(T // 4)
    return Symbols(T, count, copies, turned * np.sqrt(count / size), place)


class Logits:
    """The bilinear form of one circuit over (symbol, place, 1) features: logits = f(t)' W f(s).

    An induction head's keys have the symbol in front behind these, as the head `before` fetched it and `blocks`
    feed-forward blocks carried it.
    """

    def __init__(
        self, circuit: Circuit, written: Symbols, asks: str, before: "Logits | None" = None, blocks: int = 1
    ) -> None:
        self.written, self.asks, self.before, self.blocks = written, asks, before, blocks
        self.codes, self.places = written.code.shape[1], written.place.shape[1]
        self.size = self.codes + self.places + 1
        self.rng = np.random.default_rng(circuit.seed)
        self.offset = int(self.rng.integers(2, max(3, min(5, written.T // 4) + 1)))
        self.relative = bool(self.rng.random() < 0.5) and asks == "tokens"
        self.fixed = int(self.rng.integers(1, written.T))
        order = self.rng.permutation(written.count)
        self.partner = np.empty(written.count, dtype=int)
        self.partner[order] = np.roll(order, 1)  # one cycle: no symbol is its own partner
        self.half = order[: written.count // 2]
        self.sharp = True  # the wanted keys stand out of the superposition
        self.matrix = self._form(circuit.kind, circuit.lead)
        self.text = self._text(circuit.kind)

    def _text(self, kind: str) -> str:
        if kind == "position":
            return f"{self.offset} places back" if self.relative else f"place {self.fixed + 1}"
        return {
            "top": f"the {self.written.copies} tokens of the partner symbol",
            "mixed": "a broad pattern over symbols",
            "two_jobs": "the token before, or the partner symbol, by the symbol that asks",
            "before": "the token before, whose symbol it tells",
            "duplicate": "earlier tokens of the own symbol",
            "induction": "behind earlier tokens of the own symbol",
        }.get(kind, kind)

    def _form(self, kind: str, lead: float) -> Float[np.ndarray, "size size"]:
        steps = {"self": 0, "previous": 1, "next": -1, "before": 1}
        if kind in steps:
            return self._places(self._shift(steps[kind]), lead)
        if kind == "position":
            return self._places(self._shift(self.offset), lead) if self.relative else self._at(self.fixed, lead)
        if kind == "sink":
            return self._at(0, lead)
        if kind == "top":
            return self._symbol(lead)
        if kind == "mixed":
            return self._broad()
        if kind == "two_jobs":
            return self._two(lead)
        if kind in REPEATS:
            return self._repeat(lead, kind == "induction")
        return np.zeros((self.size, self.size))

    def _shift(self, offset: int) -> Float[np.ndarray, "T T"]:
        """Row t is 1 at t - offset; at the edge a head looks at itself, or around a circle where places lie on one."""
        T = self.written.T
        keys = np.arange(T) - offset
        keys = keys if self.written.exact else keys % T
        return np.eye(T)[np.where((keys >= 0) & (keys < T), keys, np.arange(T))]

    def _gap(self, table: np.ndarray, wanted: np.ndarray) -> float:
        """By how much the wanted entries of each row stand out in a table, at least."""
        inside = np.where(wanted > 0, table, np.inf).min(1)
        outside = np.where(wanted > 0, -np.inf, table).max(1)
        gap = float((inside - outside).min())
        self.sharp = self.sharp and gap > SHARP
        return max(gap, SHARP)

    def _block(self, form: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
        made = np.zeros((self.size, self.size))
        made[rows, columns] = form
        return made

    def _places(self, wanted: np.ndarray, lead: float) -> np.ndarray:
        P = self.written.place
        solve = np.linalg.pinv(P)
        form = solve @ wanted @ solve.T
        span = slice(self.codes, self.codes + self.places)
        return self._block(form * lead / self._gap(P @ form @ P.T, wanted), span, span)

    def _at(self, place: int, lead: float) -> np.ndarray:
        P, wanted = self.written.place, np.eye(self.written.T)[place][None]
        form = (np.linalg.pinv(P) @ wanted.T).T
        scale = lead / self._gap(form @ P.T, wanted)
        return self._block(form * scale, slice(self.size - 1, self.size), slice(self.codes, self.codes + self.places))

    def _symbol(self, lead: float, rows: np.ndarray | None = None) -> np.ndarray:
        C, K = self.written.code, self.written.count
        solve = np.linalg.pinv(C)
        if self.asks == "cls":
            wanted = np.eye(K)[self.partner[:1]]
            form = wanted @ solve.T
            scale = lead / self._gap(form @ C.T, wanted)
            return self._block(form * scale, slice(self.size - 1, self.size), slice(0, self.codes))
        wanted = np.eye(K)[self.partner]
        if rows is not None:
            wanted = wanted * np.isin(np.arange(K), rows)[:, None]
        form = solve @ wanted @ solve.T
        table = C @ form @ C.T
        chosen = np.arange(K) if rows is None else rows
        scale = lead / self._gap(table[chosen], wanted[chosen])
        return self._block(form * scale, slice(0, self.codes), slice(0, self.codes))

    def _broad(self) -> np.ndarray:
        C, K = self.written.code, self.written.count
        solve = np.linalg.pinv(C)
        table = self.rng.standard_normal((K, K))
        table = BROAD * (table - table.mean()) / table.std()
        return self._block(solve @ table @ solve.T, slice(0, self.codes), slice(0, self.codes))

    def _two(self, lead: float) -> np.ndarray:
        """The symbol form for half of the symbols, three times as strong as the places of all others."""
        return self._places(self._shift(1), lead) + self._symbol(3 * lead, self.half)

    def _repeat(self, lead: float, behind: bool) -> Float[np.ndarray, "size keys"]:
        """`lead` for a key whose symbol (or the one in front of it) is that of the query, and `lead` for earlier keys.
        The first token has none in front and counts as none."""
        C, K, T = self.codes, self.written.count, self.written.T
        earlier = np.tril(np.ones((T, T)), -1)
        form = np.zeros((self.size, self.size + K * behind))
        form[C : C + T, C : C + T] = lead * earlier
        if behind:
            form[C : C + T, C] = 0.0
            form[:C, self.size :] = lead * np.eye(K)
        else:
            form[:C, :C] = lead * np.eye(K)
        return form


def flagged(y: np.ndarray, blocks: int) -> np.ndarray:
    """What blocks that carry 0 and 1 exactly (`compiler.blocks.flag_choice`) make of numbers near them."""
    for _ in range(blocks):
        y = np.tanh(y) / np.tanh(1.0)
    return y


def labels_of(circuit: Circuit, logits: Logits, causal: bool) -> tuple[str, ...]:
    """The modes that count as right for the head of a circuit."""
    if circuit.kind == "two_jobs":
        return ("mixed", "previous", "top", "max", "position")
    if circuit.kind == "before":
        return ("previous",)
    if circuit.kind == "position" and not logits.relative and logits.fixed == 0:
        return ("sink",)
    return (circuit.kind,)


def patterns(logits: Logits, tokens: np.ndarray, causal: bool) -> Float[np.ndarray, "number queries T"]:
    """Exact attention weights for sampled tokens (number, T, K + 1)."""
    written, T = logits.written, tokens.shape[1]
    code = tokens[..., :-1] @ written.code
    place = np.broadcast_to(written.place, (len(tokens), *written.place.shape))
    one = np.ones((len(tokens), T, 1))
    f = np.concatenate([code, place, one], axis=-1)
    asking = f if logits.asks == "tokens" else np.eye(logits.size)[None, -1:].repeat(len(tokens), 0)
    if logits.before is not None:
        told = flagged(patterns(logits.before, tokens, causal) @ code, logits.blocks)
        f = np.concatenate([f, told], axis=-1)
    scores = asking @ logits.matrix @ f.transpose(0, 2, 1)
    if causal and logits.asks == "tokens":
        scores = np.where(np.tril(np.ones((T, T), dtype=bool)), scores, -np.inf)
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(grown / grown.sum(-1, keepdims=True))


def averages(logits: Logits, tokens: np.ndarray, causal: bool) -> Float[np.ndarray, " number"]:
    """What the circuit adds to the output, before its gain."""
    value = tokens[..., -1]
    fetched = np.einsum("nqs,ns->nq", patterns(logits, tokens, causal), value)
    return np.asarray(fetched[:, 0] if logits.asks == "cls" else (fetched * value).mean(1))


def says(logits: Logits, circuit: Circuit) -> Float[np.ndarray, "symbols symbols"]:
    """Row k: by how much a mover that sees symbol k raises each logit, before its gain."""
    table = np.eye(logits.written.count)
    return {"copying": table, "suppressing": -table, "translating": table[logits.partner]}[circuit.says]


def said(circuit: Circuit, logits: Logits, tokens: np.ndarray, causal: bool) -> Float[np.ndarray, "number symbols"]:
    """What a mover adds to the logits of the symbols, before its gain."""
    seen = np.einsum("nqs,nsk->nqk", patterns(logits, tokens, causal), tokens[..., :-1])
    return np.asarray(seen[:, 0] @ says(logits, circuit))


def forms(circuits: list[Circuit], written: Symbols, layers: int) -> list[Logits]:
    """The form of every circuit; those that are read stand in front of their readers."""
    found: list[Logits] = []
    for c in circuits:
        before, blocks = (None, 1) if c.reads is None else (found[c.reads], c.layer - circuits[c.reads].layer)
        found.append(Logits(c, written, "cls" if c.layer == layers - 1 else "tokens", before, blocks))
    return found


def draw(layers: int, written: Symbols, causal: bool, rng: np.random.Generator, wanted: Any) -> list[Circuit]:
    """Circuits of the kinds in `wanted`, each in a layer where it can stand; kinds that cannot stand are left out."""
    found: list[Circuit] = []
    for kind in wanted:
        if kind in SAYS:
            place = str(rng.choice(["position", "sink"]))
            found.append(replace(_drawn(place, layers - 1, rng), says=kind))
            continue
        if kind == "induction":
            found += _induction(layers, written, len(found), rng)
            continue
        on_tokens = layers > 1 and (kind not in BY_CLS or rng.random() < 0.7)
        if (not on_tokens and kind not in BY_CLS) or (kind == "next" and causal):
            continue
        if (kind == "mixed" and written.T < BROAD_FROM) or (kind in REPEATS and not written.exact):
            continue
        circuit = _drawn(kind, int(rng.integers(0, layers - 1)) if on_tokens else layers - 1, rng)
        if Logits(circuit, written, "tokens" if on_tokens else "cls").sharp:
            found.append(circuit)
    return found


def _drawn(kind: str, layer: int, rng: np.random.Generator, lead: tuple[float, float] = LEAD) -> Circuit:
    return Circuit(kind, layer, float(rng.uniform(*lead)), int(rng.integers(2**31)))


def _induction(layers: int, written: Symbols, number: int, rng: np.random.Generator) -> list[Circuit]:
    """The head that tells the symbol in front and, above it, two that compare, each of its own strength; all between
    tokens."""
    if layers < 3 or not written.exact:
        return []
    low = int(rng.integers(0, layers - 2))
    above = [_drawn("induction", int(rng.integers(low + 1, layers - 1)), rng) for _ in range(2)]
    return [_drawn("before", low, rng, BEFORE_LEAD), *(replace(c, reads=number) for c in above)]
