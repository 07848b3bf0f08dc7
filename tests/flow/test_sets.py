"""Information sets: the packed simulation against plain Python sets, ties, masks and the paper's example."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.errors import InfoFlowError
from infoflow.flow.sets import (
    GlobalHead,
    MaxHead,
    PositionHead,
    Slot,
    pack,
    set_score,
    simulate,
    sizes,
    start,
    unpack,
)

EXAMPLE = np.array([[0, -1], [0.7, 0.7], [0, 1], [-0.2, -0.9]])


def matrix_head(scores):
    """Scores as a (T + 1, T) table, the last row for the CLS."""
    return MaxHead(lambda state: lambda rows: scores[rows])


def plain(T, layers, mask, ties):
    """The update rule with Python sets; `layers[l][h]` = (token head, CLS head), heads as ('max', table) and so on."""
    sets = [{t} for t in range(T)] + [set()]
    history = [sets]
    for l, slots in enumerate(layers):
        new = [set(s) for s in sets]
        for t in range(T + 1):
            if t < T and l == len(layers) - 1:
                continue
            keys = [s for s in range(T) if mask == "none" or t == T or s <= t]
            for slot in slots:
                head = slot[1] if t == T else slot[0]
                if head is None:
                    continue
                if head[0] == "max":
                    legal = [s for s in keys if head[1][t][s] > -np.inf]
                    best = max((head[1][t][s] for s in legal), default=0)
                    tied = [s for s in legal if head[1][t][s] == best]
                    chosen = {"first": tied[:1], "last": tied[-1:], "all": tied}[ties]
                else:
                    chosen = keys if head[0] == "global" else [s for s in head[1] if s in keys]
                for s in chosen:
                    new[t] |= sets[s]
        sets = new
        history.append(sets)
    return history


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_simulation_equals_plain_sets(data):
    T = data.draw(st.sampled_from([1, 2, 5, 9, 63, 64, 65]))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    mask, ties = data.draw(st.sampled_from(["none", "causal"])), data.draw(st.sampled_from(["first", "last", "all"]))

    def draw_head():
        kind = rng.choice(["max", "global", "specific", "none"], p=[0.6, 0.1, 0.15, 0.15])
        if kind == "max":
            table = rng.integers(0, 4, (T + 1, T)).astype(float)  # many ties
            table[rng.random(table.shape) < 0.1] = -np.inf
            return ("max", table), matrix_head(table)
        if kind == "global":
            return ("global",), GlobalHead()
        if kind == "specific":
            positions = tuple(int(p) for p in rng.choice(T, min(T, 3), replace=False))
            return ("specific", positions), PositionHead(positions)
        return None, None

    heads = [[(draw_head(), draw_head()) for _ in range(rng.integers(1, 4))] for _ in range(rng.integers(1, 4))]
    steps = simulate(np.zeros((T, 1)), [[Slot(t[1], c[1]) for t, c in slots] for slots in heads], mask, ties)
    expected = plain(T, [[(t[0], c[0]) for t, c in slots] for slots in heads], mask, ties)
    for step, sets in zip(steps, expected, strict=True):
        assert [set(unpack(row)) for row in step.sets] == sets
        assert sizes(step.sets).tolist() == [len(s) for s in sets]


def pair(sign):
    """Appendix E, layer 1: sign * min over the two sets of x(t')'x(s')."""
    return set_score(lambda t, It, s, Is, X: sign * min(X[a] @ X[b] for a in It for b in Is) if It else 0.0)


def inner(sign):
    """Appendix E, layer 2: sign * min over one key's own set."""
    return set_score(lambda t, It, s, Is, X: sign * min(X[a] @ X[b] for a in Is for b in Is))


def example(sign, ties="first", skip=True):
    first = MaxHead(pair(sign))
    layers = [[Slot(first, None if skip else first)], [Slot(None, MaxHead(inner(sign)))]]
    steps = simulate(EXAMPLE, layers, ties=ties)
    winners = [int(w) + 1 for w in steps[1].winners[:4, 0]]
    return winners, [[p + 1 for p in unpack(row)] for row in steps[1].sets], [p + 1 for p in unpack(steps[2].sets[4])]


def test_appendix_e_with_the_corrected_sign():
    winners, sets, read = example(-1)
    assert winners == [3, 4, 1, 3]
    assert sets == [[1, 3], [2, 4], [1, 3], [3, 4], []]
    assert read == [1, 3]
    assert example(-1, "last")[2] == [1, 3]
    assert example(-1, "all")[2] == [1, 3]


def test_appendix_e_as_printed_misses_the_active_set():
    winners, sets, read = example(+1)
    assert winners == [1, 2, 3, 1]
    assert sets == [[1], [2], [3], [1, 4], []]
    assert read == [1]
    assert not {1, 3} <= set(read)


def test_appendix_e_when_the_cls_attends_at_once():
    assert example(-1, "last", skip=False)[2] == [1, 3, 4]


def test_a_remembered_best_score_reaches_the_next_layer():
    X = np.array([[3.0], [1.0], [2.0]])
    send = MaxHead(lambda state: lambda rows: -np.abs(state.X[rows] - state.X.T), name="message")
    read = MaxHead(lambda state: lambda rows: state.best["message"][None, :])
    steps = simulate(X, [[Slot(send)], [Slot(None, read)]], mask="causal")
    assert steps[1].winners[:3, 0].tolist() == [0, 1, 2]
    assert unpack(steps[2].sets[3]) == (0,)


def test_packing():
    assert start(1).shape == (2, 1)
    assert start(65).shape == (66, 2)
    assert unpack(pack([0, 63, 64, 100], 101)) == (0, 63, 64, 100)
    assert unpack(pack([], 5)) == ()


def test_unknown_tie_rule():
    with pytest.raises(InfoFlowError, match="'middle'"):
        simulate(EXAMPLE, [[Slot(GlobalHead())]], ties="middle")
