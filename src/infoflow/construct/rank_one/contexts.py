"""Sequences as tokens of a vocabulary, and their contexts: the classes (own token, multiset of visible keys).

Two places with the same token and the same visible multiset get the same output from any attention head, so a class is
what a contextual mapping (Definition 2) has to tell apart. Under a mask only *visible* keys count. Multisets with
proportional multiplicities, (x, y) and (x, x, y, y), give the same attention average for ANY weights: such classes are
counted once (`merged` says how many disappeared).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from infoflow.errors import InfoFlowError

Mask = Literal["none", "causal", "padding", "causal+padding"]
LARGEST = 1e100  # squares and products of projections must neither overflow nor vanish
MASKS = ("none", "causal", "padding", "causal+padding")


@dataclass(frozen=True)
class Contexts:
    """N sequences over m tokens, and their M classes. A place is (sequence, position), both from 0."""

    vocabulary: Float[ndarray, "m d"]
    tokens: Int[ndarray, "N n"]  # -1 where a sequence has ended
    visible: Bool[ndarray, "n n"] | None  # (132): True where query (row) sees key (column); None: all
    query: Int[ndarray, " M"]  # the token of each class
    set_of: Int[ndarray, " M"]  # its visible multiset, a row of `members`
    members: Int[ndarray, "S n"]  # sorted tokens, -1 in front
    class_of: Int[ndarray, "N n"]  # -1 at padding
    first: Int[ndarray, " M"]  # the first place of each class, flat in (N, n)
    merged: int  # classes lost because their multisets are proportional
    proportional: tuple[int, int] | None  # two flat places that no weights can tell apart, the first such pair

    @property
    def size(self) -> int:
        """M: classes of (token, visible multiset) that one head can tell apart."""
        return len(self.query)

    @property
    def length(self) -> int:
        """n: places of the longest sequence; shorter ones are padded by -1."""
        return int(self.tokens.shape[1])

    def place(self, flat: int) -> str:
        """A flat place in words, counted from 1."""
        sequence, position = divmod(int(flat), self.length)
        return f"sequence {sequence + 1} position {position + 1}"

    def refuse_proportional(self) -> None:
        """Refuse data with two multisets that no head can tell apart, and name them."""
        if self.proportional is not None:
            one, other = self.proportional
            raise InfoFlowError(
                f"expected contexts that some head can tell apart, got proportional multisets at {self.place(one)} and "
                f"{self.place(other)} (the same tokens in the same shares): no attention weights separate them; "
                "remove one, or pass merge=True (--merge true) to count them once."
            )


def read_contexts(sequences: ndarray | Sequence[ndarray], mask: Mask | Bool[ndarray, "n n"] = "none") -> Contexts:
    """Validate sequences (N, n, d), or a list of (n_i, d), and find their classes."""
    rows, lengths = _stack(sequences)
    flat = rows.reshape(-1, rows.shape[-1])
    real = (np.arange(rows.shape[1]) < lengths[:, None]).ravel()
    _check_tokens(flat, real, rows.shape[1])
    first, inverse = unique_rows(flat[real] + 0.0)  # -0.0 and 0.0 are one number
    tokens = np.full(len(flat), -1, dtype=np.int64)
    tokens[real] = inverse
    return contexts_of(flat[real][first] + 0.0, tokens.reshape(rows.shape[:2]), mask)


def contexts_of(
    vocabulary: Float[ndarray, "m d"], tokens: Int[ndarray, "N n"], mask: Mask | Bool[ndarray, "n n"] = "none"
) -> Contexts:
    """The classes of sequences already given as rows of a vocabulary, -1 behind the end of each."""
    visible = _visible(mask, tokens)
    sets, set_of_place = _visible_sets(tokens, visible)
    real = tokens.ravel() >= 0
    places = np.flatnonzero(real)
    token, group = tokens.ravel()[real], set_of_place.ravel()[real]
    reduced = _reduced(sets)
    first, inverse = unique_pairs(token, reduced[group])
    full_first, _ = unique_pairs(token, group)
    class_of = np.full(tokens.size, -1, dtype=np.int64)
    class_of[real] = inverse
    return Contexts(
        vocabulary=vocabulary,
        tokens=tokens,
        visible=visible,
        query=token[first],
        set_of=reduced[group][first],
        members=sets,
        class_of=class_of.reshape(tokens.shape),
        first=places[first],
        merged=len(full_first) - len(first),
        proportional=_proportional_pair(inverse[full_first], places[full_first]),
    )


def _stack(sequences: ndarray | Sequence[ndarray]) -> tuple[Float[ndarray, "N n d"], Int[ndarray, " N"]]:
    """One array, zeros behind the end of shorter sequences, and the lengths."""
    if isinstance(sequences, ndarray) and sequences.ndim == 3 and sequences.dtype == np.float64 and sequences.size:
        return sequences, np.full(len(sequences), sequences.shape[1])
    try:
        parts = [np.asarray(part, dtype=np.float64) for part in sequences]
    except (TypeError, ValueError):
        raise InfoFlowError("expected sequences of tokens of numbers (N x n x d), got something else.") from None
    if not parts:
        raise InfoFlowError("expected at least one sequence, got none.")
    for index, part in enumerate(parts):
        if part.ndim != 2 or 0 in part.shape or part.shape[1] != parts[0].shape[-1]:
            raise InfoFlowError(
                f"expected every sequence as (tokens, d) with one d and at least one token, "
                f"got shape {part.shape} in sequence {index + 1}."
            )
    lengths = np.array([len(part) for part in parts])
    rows = np.zeros((len(parts), lengths.max(), parts[0].shape[1]))
    for row, part in zip(rows, parts, strict=True):
        row[: len(part)] = part
    return rows, lengths


def _check_tokens(flat: Float[ndarray, "places d"], real: Bool[ndarray, " places"], n: int) -> None:
    bad = np.flatnonzero(real & ~np.isfinite(flat).all(1))
    if len(bad):
        i, k = divmod(int(bad[0]), n)
        raise InfoFlowError(f"expected finite tokens, got NaN or infinity in sequence {i + 1} position {k + 1}.")
    size = np.abs(flat).max(1)
    extreme = np.flatnonzero(real & ((size > LARGEST) | ((size < 1 / LARGEST) & (size > 0))))
    if len(extreme):
        i, k = divmod(int(extreme[0]), n)
        raise InfoFlowError(
            f"expected tokens between {1 / LARGEST:g} and {LARGEST:g} in size, got {size[extreme[0]]:.3g} in sequence "
            f"{i + 1} position {k + 1}; rescale them."
        )
    zero = np.flatnonzero(real & ~flat.any(1))
    if len(zero):
        i, k = divmod(int(zero[0]), n)
        raise InfoFlowError(
            f"expected tokens other than 0 (Definition 1 needs r_min > 0), got the zero token in sequence {i + 1} "
            f"position {k + 1}: its query sees a plain average; shift the tokens, for example append a coordinate 1."
        )


def _visible(mask: Mask | ndarray, tokens: Int[ndarray, "N n"]) -> Bool[ndarray, "n n"] | None:
    n = tokens.shape[1]
    if isinstance(mask, ndarray):
        visible: ndarray = np.asarray(mask, dtype=bool)
        if visible.shape != (n, n):
            raise InfoFlowError(f"expected a mask of shape ({n}, {n}) (queries x keys), got {visible.shape}.")
        seen = (tokens >= 0).astype(int) @ visible.T.astype(int)
        blind = np.argwhere((seen == 0) & (tokens >= 0))
        if len(blind):
            i, k = blind[0]
            raise InfoFlowError(
                f"expected at least one visible key for every query, got none for sequence {i + 1} position {k + 1}; "
                "let the token see itself."
            )
        return visible
    if mask not in MASKS:
        raise InfoFlowError(f"expected mask {', '.join(MASKS)} or a boolean matrix, got {mask!r}.")
    if "padding" not in mask and (tokens < 0).any():
        wanted = "causal+padding" if mask == "causal" else "padding"
        raise InfoFlowError(f"expected sequences of one length with mask={mask}, got several; use mask={wanted}.")
    if (tokens < 0).all(1).any():
        empty = int(np.flatnonzero((tokens < 0).all(1))[0]) + 1
        raise InfoFlowError(f"expected a visible key in every row, got none in sequence {empty}; remove it.")
    return np.tri(n, dtype=bool) if "causal" in mask else None


def _visible_sets(
    tokens: Int[ndarray, "N n"], visible: Bool[ndarray, "n n"] | None
) -> tuple[Int[ndarray, "S n"], Int[ndarray, "N n"]]:
    """Distinct visible multisets as sorted rows, and which one each place sees."""
    if visible is None:
        rows = np.sort(tokens, axis=1)
        first, inverse = unique_rows(rows)
        return rows[first], np.repeat(inverse[:, None], tokens.shape[1], 1)
    found, place, count = [], np.empty(tokens.shape, dtype=np.int64), 0
    for k, seen in enumerate(visible):  # one position at a time: n arrays of N x n, never N x n x n
        rows = np.sort(np.where(seen, tokens, -1), axis=1)
        first, inverse = unique_rows(rows)
        found.append(rows[first])
        place[:, k] = inverse + count
        count += len(first)
    rows = np.concatenate(found)
    first, inverse = unique_rows(rows)
    return rows[first], inverse[place]


def _reduced(sets: Int[ndarray, "S n"]) -> Int[ndarray, " S"]:
    """For each multiset the index of the one that stands for all proportional to it."""
    same = np.zeros(sets.shape, dtype=bool)
    same[:, 1:] |= sets[:, 1:] == sets[:, :-1]
    same[:, :-1] |= sets[:, :-1] == sets[:, 1:]
    repeated = np.flatnonzero((same | (sets < 0)).all(1) & (sets >= 0).any(1))  # every member at least twice
    rows = sets.copy()
    for index in repeated:
        values, counts = np.unique(sets[index][sets[index] >= 0], return_counts=True)
        row = np.repeat(values, counts // math.gcd(*counts.tolist()))
        rows[index] = -1
        rows[index, len(rows[index]) - len(row) :] = row
    first, inverse = unique_rows(rows)
    # The reduced row may be none of the sets themselves; any set of its class gives the same attention average.
    stands: ndarray = first[inverse]
    return stands


def _proportional_pair(merged: Int[ndarray, " F"], places: Int[ndarray, " F"]) -> tuple[int, int] | None:
    """The first two places whose full classes differ and whose merged class is one; None when nothing merged."""
    order = np.lexsort((places, merged))
    clash = np.flatnonzero(np.diff(merged[order]) == 0)
    if not len(clash):
        return None
    at = clash[places[order[clash]].argmin()]
    return int(places[order[at]]), int(places[order[at + 1]])


def unique_pairs(a: Int[ndarray, " k"], b: Int[ndarray, " k"]) -> tuple[Int[ndarray, " u"], Int[ndarray, " k"]]:
    """First occurrences and inverse of the distinct pairs (a, b)."""
    keys = a.astype(np.int64) * (int(b.max(initial=0)) + 1) + b
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse


def unique_rows(rows: ndarray) -> tuple[Int[ndarray, " u"], Int[ndarray, " k"]]:
    """First occurrences and inverse of the distinct rows: by a 64-bit hash, then checked row by row, so exact."""
    words = np.ascontiguousarray(rows).view(np.uint64).reshape(len(rows), -1)
    for seed in range(8):
        factors = np.random.default_rng(seed).integers(1, 2**63, size=words.shape[1], dtype=np.uint64) * 2 + 1
        mixed = (words ^ (words >> np.uint64(29))) * factors
        _, first, inverse = np.unique((mixed ^ (mixed >> np.uint64(32))).sum(1), return_index=True, return_inverse=True)
        if (words[first][inverse] == words).all():
            return first, inverse
    _, first, inverse = np.unique(words, axis=0, return_index=True, return_inverse=True)
    return first, inverse.ravel()
