"""Proposition 1, repaired: the step function off the ramps, 0 outside, exact equivariance, the known errors."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.construct.rank_one import equivariant as eq
from infoflow.errors import InfoFlowError

mean_product, wave = eq.FUNCTIONS["mean_product"], eq.FUNCTIONS["wave"]


def off_ramps(X: np.ndarray, net: eq.Equivariant) -> np.ndarray:
    """Points with every coordinate farther than delta behind the last grid line."""
    behind = X - np.floor(X * net.D) / net.D
    return (behind > 2 * net.delta).all((1, 2))


@settings(max_examples=15)
@given(st.sampled_from([(1, 1, 5), (1, 2, 7), (2, 2, 3), (1, 3, 4), (3, 2, 2), (1, 4, 3)]), st.integers(0, 10**6))
def test_it_is_the_step_function_off_the_ramps(case: tuple[int, int, int], seed: int) -> None:
    d, n, D = case
    for f in (mean_product, wave):
        net = eq.approximate_equivariant(f, d, n, D)
        X = np.random.default_rng(seed).random((400, n, d))
        X = X[off_ramps(X, net)]
        assert len(X) > 300
        assert np.abs(net(X) - eq.step_function(f, X, D)).max() < 1e-9


@pytest.mark.parametrize(("d", "n", "D"), [(1, 2, 16), (2, 2, 4), (1, 3, 4)])
def test_one_token_outside_silences_the_sequence(d: int, n: int, D: int) -> None:
    net = eq.approximate_equivariant(wave, d, n, D)
    rng = np.random.default_rng(0)
    X = rng.random((300, n, d))
    X[:100] = np.round(X[:100] * D) / D + net.delta / 2  # other tokens on the ramps, too
    rows, token = np.arange(300), rng.integers(n, size=300)
    X[rows, token, rng.integers(d, size=300)] = rng.choice([-1, 1], size=300) * rng.uniform(2, 100, size=300)
    assert np.abs(net(X)).max() < 1e-9
    far = np.full((1, n, d), net.domain / 2)
    assert np.abs(net(far)).max() < 1.0


def test_outputs_never_leave_the_range_of_the_labels() -> None:
    """Also on the ramps, so that the strips cost at most 2 max|f| times their measure."""
    net = eq.approximate_equivariant(wave, 1, 2, 8)
    rng = np.random.default_rng(1)
    X = rng.integers(0, 9, size=(500, 2, 1)) / 8 + rng.uniform(-1, 2, size=(500, 2, 1)) * net.delta
    assert np.abs(net(X)).max() <= net.bound + 1e-9
    assert (net(rng.random((200, 2, 1))) < -0.1).any()  # and it does go below 0, unlike the printed 0 <= F2 <= 1


def test_equivariance_is_exact() -> None:
    net = eq.approximate_equivariant(wave, 1, 3, 4)
    X = np.random.default_rng(2).random((50, 3, 1))
    for order in ([1, 0, 2], [2, 0, 1]):
        assert np.abs(net(X)[:, order] - net(X[:, order])).max() < 1e-12


@pytest.mark.parametrize(
    ("f", "n", "D", "labels", "known"),
    [
        (mean_product, 2, 4, "corner", 0.228),
        (mean_product, 2, 4, "centre", 0.088),
        (mean_product, 2, 16, "corner", 0.054),
        (mean_product, 2, 16, "centre", 0.022),
        (wave, 2, 4, "corner", 0.533),
        (wave, 2, 4, "centre", 0.297),
        (wave, 2, 16, "centre", 0.076),
        (wave, 3, 3, "corner", 0.783),
        (wave, 3, 4, "corner", 0.626),
        (wave, 3, 6, "corner", 0.441),
    ],
)
def test_the_known_errors(f: eq.Function, n: int, D: int, labels: str, known: float) -> None:
    net = eq.approximate_equivariant(f, 1, n, D, labels)
    assert eq.l2_error(net, f, 8000) == pytest.approx(known, rel=0.03)


def test_zeroing_duplicate_cells_costs_what_the_table_says() -> None:
    def zeroed(X: np.ndarray) -> np.ndarray:
        twins = X[:, 0, 0] == X[:, 1, 0]
        return np.where(twins[:, None, None], 0.0, mean_product(X))

    for D, known in ((4, 0.369), (16, 0.167)):
        net = eq.approximate_equivariant(zeroed, 1, 2, D, "corner")
        assert eq.l2_error(net, mean_product, 8000) == pytest.approx(known, rel=0.04)


def test_classes_widths_and_a_head_of_rank_one() -> None:
    net = eq.approximate_equivariant(mean_product, 2, 2, 3)
    config = net.network.config
    assert net.classes == 9 * 9
    assert (config.encoder_width, config.widths) == (2 * 3 * 2 + 6 * 2, (2 * 81 + 2 * 2,))
    assert config.encoder_skip
    assert config.readout_skip
    layer = net.network.attentions[0]
    assert all(torch.linalg.matrix_rank(w[0]) == 1 for w in (layer.query, layer.key, layer.value))


def test_wrong_calls_are_one_sentence() -> None:
    for arguments, words in (
        ((mean_product, 0, 2, 4), "at least 1"),
        ((mean_product, 3, 3, 16), "classes"),
        ((mean_product, 1, 2, 4, "middle"), "labels"),
        ((lambda X: X[:, :1], 1, 2, 4), "shape"),
        ((lambda X: X / 0.0 * np.nan, 1, 2, 4), "finite"),
    ):
        with pytest.raises(InfoFlowError, match=words), np.errstate(all="ignore"):
            eq.approximate_equivariant(*arguments)
    with pytest.raises(InfoFlowError, match="delta"):
        eq.approximate_equivariant(mean_product, 1, 2, 4, delta=0.2)


BOXES = ((-3.0, 2.0), (0.5, 0.75), (-1e3, -999.0))


def swing(X: np.ndarray) -> np.ndarray:
    """Commutes with permutations; slope at most 2 in the sup norm."""
    return np.sin(X) * np.cos(X.mean(1, keepdims=True))


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize(("d", "n", "D"), [(1, 2, 8), (2, 2, 3), (1, 3, 4)])
def test_any_box(box: tuple[float, float], d: int, n: int, D: int) -> None:
    """The step function of f on the box, off the ramps; 0 outside it, though the unit cube may lie there."""
    low, high = box
    net = eq.approximate_equivariant(swing, d, n, D, box=box)
    U = np.random.default_rng(3).random((400, n, d))
    U = U[off_ramps(U, net)]
    X = low + (high - low) * U
    assert np.abs(net(X) - eq.step_function(swing, X, D, box=box)).max() < 1e-6
    X[:, 0, 0] = high + 0.5 * (high - low)
    assert np.abs(net(X)).max() < 1e-6
    assert eq.l2_error(net, swing, 2000) < np.sqrt(n * d) * (high - low) / D  # slope 2, half a cell


def backwards(X: np.ndarray) -> np.ndarray:
    """Commutes with no exchange of tokens: place k sees the others weighted by their places."""
    places = np.arange(1.0, X.shape[1] + 1)[:, None]
    return np.sin(places * X) + (places * X).sum(1, keepdims=True) * (places % 2)


@pytest.mark.parametrize(
    ("d", "n", "D", "box"), [(1, 2, 16, (0.0, 1.0)), (1, 3, 5, (-1.0, 2.0)), (2, 2, 3, (0.0, 1.0))]
)
def test_positions_lift_equivariance(d: int, n: int, D: int, box: tuple[float, float]) -> None:
    """One rank-1 head with a table of positions follows a function that no network without one can."""
    low, high = box
    net = eq.approximate_function(backwards, d, n, D, box=box)
    assert net.classes == n * D ** (d * n)
    U = np.random.default_rng(4).random((300, n, d))
    U = U[off_ramps(U, net)]
    X = low + (high - low) * U
    assert np.abs(net(X) - eq.step_function(backwards, X, D, box=box)).max() < 1e-6
    assert np.abs(net(X)[:, ::-1] - net(X[:, ::-1])).max() > 0.5  # it does not commute with turning the sequence round
    X[::2, -1, 0] = low - 3 * (high - low)
    assert np.abs(net(X)[::2]).max() < 1e-6


def test_positions_are_needed() -> None:
    """Without them the error stays at half of what turning the sequence changes; with them it goes with 1/D."""
    errors = [eq.l2_error(eq.approximate_function(backwards, 1, 2, D), backwards, 4000) for D in (4, 8, 16)]
    assert errors[0] > 1.8 * errors[1] > 3.2 * errors[2]
    blind = eq.approximate_equivariant(lambda X: (backwards(X) + backwards(X[:, ::-1])[:, ::-1]) / 2, 1, 2, 16)
    assert eq.l2_error(blind, backwards, 4000) > 5 * errors[2]


def test_what_is_no_box_is_refused() -> None:
    for box in ((1.0, 0.0), (0.0, float("nan"))):
        with pytest.raises(InfoFlowError, match="low < high"):
            eq.approximate_equivariant(wave, 1, 2, 4, box=box)
    with pytest.raises(InfoFlowError, match="classes, got"):
        eq.approximate_function(wave, 2, 4, 8)
