"""Corollaries 1 and 2: zero wrong labels over random data, masks, duplicates, positions; saved and loaded bit for
bit."""

from inspect import signature
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from infoflow.construct.rank_one import contexts as cx
from infoflow.construct.rank_one.memorize import (
    _place,
    _too_many,
    class_labels,
    memorize,
    memorize_contexts,
    parameter_counts,
    read_labels,
)
from infoflow.construct.rank_one.network import Memory, rank_one_config
from infoflow.construct.rank_one.search import find_spreads
from infoflow.errors import InfoFlowError, JobError
from infoflow.nn import Transformer, files


def data(V: int, d: int, n: int, N: int, C: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    vocabulary = rng.normal(size=(V, d))
    tokens = np.array([rng.choice(V, n, replace=False) for _ in range(N)])
    return vocabulary[tokens], rng.integers(1, C + 1, size=(N, n))


def distinct_sets(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop sequences whose token set repeats, so that random labels are consistent."""
    keep = np.unique(cx.read_contexts(X).tokens.copy(), axis=0, return_index=True)[1]
    sets = np.unique(np.sort(cx.read_contexts(X).tokens, 1), axis=0, return_index=True)[1]
    keep = np.intersect1d(keep, sets)
    return X[keep], Y[keep]


@settings(max_examples=30)
@given(
    st.integers(2, 12), st.integers(1, 4), st.integers(1, 5), st.integers(1, 15), st.sampled_from(cx.MASKS),
    st.integers(1, 3), st.integers(0, 10**6),
)  # fmt: skip
@example(V=3, d=1, n=3, N=1, mask="causal", size=1, seed=3)  # three ids: a read-out free to shrink towards 0
def test_any_consistent_data_is_memorised(V: int, d: int, n: int, N: int, mask: cx.Mask, size: int, seed: int) -> None:
    """Duplicates within sequences, variable lengths and masks; labels drawn per class, so consistent."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, V, size=(N, n))
    if "padding" in mask:
        tokens[np.arange(n) >= rng.integers(1, n + 1, size=(N, 1))] = -1
    vocabulary = rng.normal(size=(V, d))
    contexts = cx.contexts_of(vocabulary, tokens, mask)
    labels = rng.integers(-5, 50, size=(contexts.size, d))[contexts.class_of]
    rows = [(vocabulary[row[row >= 0]], label[row >= 0]) for row, label in zip(tokens, labels, strict=True)]
    made = memorize([x for x, _ in rows], [y for _, y in rows], mask=mask, head_size=size, seed=seed)
    assert made.contexts.size == contexts.size
    assert made.max_error <= made.certificate.bound < 0.5
    assert made.certificate.holds
    real = tokens >= 0
    visible = torch.from_numpy(real[:, None, :])
    with torch.no_grad():
        X = torch.from_numpy(np.where(real[..., None], vocabulary[tokens], 0.0))
        out = made.memory.network(X, visible=visible).numpy()
    assert np.abs(out - labels)[real].max() <= made.certificate.bound
    shuffled = rng.permutation(N)
    with torch.no_grad():
        again = made.memory.network(X[shuffled], visible=visible[shuffled]).numpy()
    assert np.abs(again - labels[shuffled])[real[shuffled]].max() <= made.certificate.bound


@pytest.mark.parametrize(
    ("case", "gap", "error"),
    [((50, 4, 8, 125, 10), 4.4e-6, 5e-9), ((200, 8, 10, 200, 10), 4e-7, 6e-7)],
)
def test_the_known_sizes_have_the_known_gaps(case: tuple[int, ...], gap: float, error: float) -> None:
    X, Y = data(*case)
    made = memorize(X, Y)
    assert made.contexts.size == case[2] * case[3]
    assert made.spread.gap >= gap
    assert made.max_error <= error
    assert made.dense_places == made.contexts.size


@pytest.mark.parametrize(("V", "d", "n", "N"), [(30, 3, 6, 300), (12, 1, 6, 500)])
def test_duplicates_need_nothing_new(V: int, d: int, n: int, N: int) -> None:
    rng = np.random.default_rng(V)
    vocabulary, tokens = rng.normal(size=(V, d)), rng.integers(0, V, size=(N, n))
    contexts = cx.contexts_of(vocabulary, tokens)
    made = memorize_contexts(contexts, rng.integers(1, 10, size=(contexts.size, 1)))
    assert made.max_error < 1e-3


def test_every_scale_of_tokens_is_fine() -> None:
    X, Y = data(12, 2, 3, 20, 5)
    for scale in (1e-8, 1e8):
        assert memorize(X * scale, Y).max_error < 1e-6 * max(scale, 1)
    stretched = X * np.array([1e-4, 1e4])
    assert memorize(stretched, Y).max_error < 1e-3


def test_one_label_per_output_coordinate_and_single_context() -> None:
    made = memorize(np.ones((1, 1, 2)), [[[3, 4]]])
    assert made.memory.network(torch.ones(1, 1, 2, dtype=torch.float64)).tolist() == [[[3.0, 4.0]]]
    with pytest.raises(InfoFlowError, match="1 x 2"):
        memorize(np.ones((1, 1, 2)), [[[3, 4, 5]]])


@pytest.mark.parametrize("positions", ["corollary", "random"])
def test_positions_let_order_and_duplicates_count(positions: str) -> None:
    rng = np.random.default_rng(0)
    vocabulary = rng.normal(size=(5, 2))
    tokens = np.unique(rng.integers(0, 5, size=(60, 4)), axis=0)
    Y = rng.integers(1, 9, size=tokens.shape)
    with pytest.raises(InfoFlowError, match="positions"):
        memorize(vocabulary[tokens], Y)
    made = memorize(vocabulary[tokens], Y, positions=positions)
    with torch.no_grad():
        out = made.memory.network(torch.from_numpy(vocabulary[tokens])).numpy()
    assert (np.rint(out) == Y[..., None]).all()
    table = rng.normal(size=(4, 2))
    assert memorize(vocabulary[tokens], Y, positions=table).max_error < 0.5
    with pytest.raises(InfoFlowError, match=r"shape \(4, 2\)"):
        memorize(vocabulary[tokens], Y, positions=table[:2])


def test_saved_memoriser_loads_bit_for_bit_and_still_memorises(tmp_path: Path) -> None:
    X, Y = data(20, 3, 4, 30, 7, seed=3)
    made = memorize(X, Y, head_size=2, positions="corollary")
    network = made.memory.network
    loaded = files.load(network.save(tmp_path / "m.safetensors", construction="memorizer"))
    assert isinstance(loaded, Transformer)
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in network.state_dict().items())
    with torch.no_grad():
        out = loaded(torch.from_numpy(X))
    assert torch.equal(out, network(torch.from_numpy(X)))
    assert (np.rint(out.numpy()) == Y[..., None]).all()
    memory = Memory.of(loaded)  # the fast form, from the stored weights alone
    states = memory.states(X).reshape(-1, 3)
    assert (np.rint(memory.lookup_output(states)) == Y.reshape(-1, 1)).all()
    assert np.abs(memory.lookup_output(states) - memory.dense_output(states)).max() < 1e-6
    other = Transformer(rank_one_config(3, width=4)).double()
    torch.nn.init.normal_(other.readout.maps[0].weight)
    with pytest.raises(InfoFlowError, match="memorising network"):
        Memory.of(other)


def test_parameter_counts_are_the_papers_example() -> None:
    assert parameter_counts(4, 2, 200, 200) == {"paper": 1640, "factored": 1027, "dense": 1827}
    for d, s, m in ((1, 1, 5), (4, 2, 200), (3, 7, 50)):
        X, Y = data(max(60, 2), d, 1, m, 3, seed=d)
        network = memorize(*distinct_sets(X, Y), head_size=s).memory.network
        stored = sum(p.numel() for p in network.parameters())
        classes = network.config.widths[0] + 1
        assert stored == parameter_counts(d, s, classes, classes)["dense"]
        assert parameter_counts(d, s, classes, classes)["factored"] <= parameter_counts(d, s, classes, classes)["paper"]


def test_inconsistent_labels_show_the_two_places() -> None:
    x, y = [1.0, 0.0], [0.0, 1.0]
    with pytest.raises(InfoFlowError, match="1 at sequence 1 position 1 and 3 at sequence 2 position 2") as caught:
        memorize([[x, y], [y, x]], [[1, 2], [2, 3]])
    assert "positions=corollary" in str(caught.value)
    with pytest.raises(InfoFlowError, match="no head can tell apart") as caught:
        memorize([[x, y], [x, y]], [[1, 2], [1, 3]])
    assert "positions" not in str(caught.value)  # the same sequence twice: order does not help
    with pytest.raises(InfoFlowError, match="sequence 1 position 1 and 2 at sequence 2 position 1"):
        memorize([[x, y], [x, x, y, y]], [[1, 1], [2, 2, 1, 1]], mask="padding")  # proportional multisets
    assert memorize([[x, y], [x, x, y, y]], [[1, 2], [1, 1, 2, 2]], mask="padding").contexts.merged == 2


@pytest.mark.parametrize(
    ("Y", "words"),
    [
        ([[1, 2]], "2 sequences"),
        ([[1, 2], [1]], "sequence 2"),
        ([[1, 2], [1, 2.5]], "integer"),
        ([[1, 2], "ab"], "labels"),
    ],
)
def test_wrong_labels_are_one_sentence(Y: list, words: str) -> None:
    with pytest.raises(InfoFlowError, match=words):
        memorize([[[1.0], [2.0]], [[1.0], [3.0]]], Y)


def test_more_contexts_than_float64_can_separate_is_said() -> None:
    """Tokens a few units in the last place apart: contexts differ by less than rounding."""
    base = 1 + np.arange(12)[:, None] * 2.0**-52
    tokens = np.array([[i, (i + k) % 12] for i in range(12) for k in (1, 2, 3)])
    contexts = cx.contexts_of(base, tokens)
    with pytest.raises((InfoFlowError, JobError), match=f"{contexts.size}.*use fewer sequences"):
        memorize_contexts(contexts, np.arange(contexts.size)[:, None] + 1)


def test_the_rank_one_transformer_of_20_trains_at_any_depth() -> None:
    """Value and key share v_1; 3 d attention numbers a layer; the loss falls at depths 1 and 3."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(16, 5, 8, generator=generator)
    Y = torch.randint(0, 4, (16, 5), generator=generator)
    for layers in (1, 3):
        network = Transformer(rank_one_config(8, layers, width=32, outputs=4))
        assert sum(p.numel() for p in network.attentions[0].parameters()) == 3 * 8
        network.initialise(generator)
        losses = []
        for _ in range(150):
            loss = torch.nn.functional.cross_entropy(network(X).flatten(0, 1), Y.flatten())
            for p, slope in zip(
                network.parameters(), torch.autograd.grad(loss, list(network.parameters())), strict=True
            ):
                p.data -= 0.3 * slope
            losses.append(loss.item())
        assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (5, 3)])
def test_a_coordinate_that_is_always_zero_is_no_obstacle(shape: tuple[int, int]) -> None:
    """Its spread is 0, and directions were drawn per unit of it: 1e300 of it, and every sum after it infinite."""
    X = np.concatenate([np.random.default_rng(0).normal(size=(*shape, 2)), np.zeros((*shape, 1))], -1)
    made = memorize(X, np.arange(shape[0] * shape[1]).reshape(shape) % 4)
    assert made.certificate.holds
    assert np.abs(made.spread.readout).max() < 100


def test_order_is_offered_where_it_tells_the_views_apart() -> None:
    """One place in both sequences, the same multiset around it in another order."""
    x, y, z = [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]
    with pytest.raises(InfoFlowError, match="sequence 1 position 1 and 2 at sequence 2 position 1") as caught:
        memorize([[x, y, z], [x, z, y]], [[1, 3, 4], [2, 4, 3]])
    assert "positions=corollary" in str(caught.value)


def test_the_refusal_names_how_many_would_fit() -> None:
    """Gaps shrink like 1/m^2: of m contexts with gap g and rounding e about m sqrt(g/e) fit."""
    contexts = cx.contexts_of(np.arange(4.0)[:, None], np.array([[0, 1], [2, 3]]))
    assert contexts.size == 4
    assert "about 2 would fit" in _too_many(contexts, 1e-9, 3e-9)
    assert "about 1 would fit" in _too_many(contexts, 0.0, 3e-9)
    assert "about 1 would fit" in _too_many(contexts, 1e-12, 1.0)


def test_both_ways_to_memorise_search_alike() -> None:
    X, Y = data(20, 3, 4, 12, 5)
    contexts = cx.read_contexts(X)
    one, other = memorize(X, Y), memorize_contexts(contexts, class_labels(contexts, read_labels(Y, contexts)))
    assert all(map(torch.equal, one.memory.network.parameters(), other.memory.network.parameters()))
    for name in ("heads", "seed"):
        assert signature(memorize).parameters[name] == signature(memorize_contexts).parameters[name]


def test_the_parts_of_the_time_fit_into_the_whole() -> None:
    X, Y = data(12, 2, 3, 6, 3)
    started = perf_counter()
    parts = memorize(X, Y).seconds.values()
    assert min(parts) >= 0
    assert sum(parts) <= perf_counter() - started


def test_a_dense_check_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = data(12, 2, 3, 8, 3)
    assert memorize(X, Y).dense_places == 24
    monkeypatch.setattr("infoflow.construct.rank_one.memorize.DENSE_LIMIT", 5 * 24 + 3)
    assert memorize(X, Y).dense_places == 5


def test_loudness_is_the_largest_error_of_the_two_widest_coordinates() -> None:
    X, _ = data(20, 3, 4, 12, 5)
    contexts = cx.read_contexts(X)
    labels = np.random.default_rng(1).integers(0, 9, size=(contexts.size, 3)) * np.array([100, 1, 1000])
    for spread in find_spreads(contexts, heads=4, seed=0)[:2]:
        placed = _place(contexts, spread, None, 1)
        found = placed.loudness(labels)
        states, asked = (each[np.argsort(placed.ids)] for each in (placed.states, labels))
        out = placed.memory.module_output(states) - states
        assert 0 < found == np.abs(out - (asked - states)[:, [0, 2, 0]]).max() < 1e-4
