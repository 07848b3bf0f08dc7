"""The reduced problem: floors that can be computed by hand, and what the states of tokens know."""

import numpy as np
import pytest
import torch

from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.forecasts.quantities import find_floors
from infoflow.forecasts.reads import Floors, aims, floors
from infoflow.forecasts.states import State, messages, messages_wanted, states
from infoflow.targets import Extremum, Polynomial, TreeScore
from infoflow.targets.score import Edge
from infoflow.targets.search import best_tuples


def least(found: Floors) -> float:
    return found.floor


def state(tokens: torch.Tensor, heads: int, size: int, embed: int) -> State:
    return State(tokens, heads, size, embed, torch.zeros(*tokens.shape[:2], 0))


def test_one_number_of_three_equal_ones_leaves_two_thirds() -> None:
    """F is a token x(p) of three independent coordinates; one number can carry one of them: the floor is 2/3."""
    F = targets.position_sum(positions=(1,), d=3)
    found = find_floors(F, Architecture(1, 1, 64, positions="additive"), 4, mlp=False)
    assert least(found) == pytest.approx(2 / 3, rel=0.1)


def test_an_unrelated_label_is_all_floor() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens, y = torch.randn(4000, 8, 2, generator=generator), torch.randn(4000, 1, generator=generator)
    assert least(floors([state(tokens, 2, 2, 4)], y, 4)) > 0.95


def test_an_average_is_read_without_a_floor() -> None:
    tokens = torch.randn(4000, 8, 2, generator=torch.Generator().manual_seed(0))
    assert least(floors([state(tokens, 1, 2, 2)], tokens.mean(1), 2)) < 1e-3


def test_functions_of_the_mean_token_need_no_descent() -> None:
    """tanh of a sum of the mean: the descent leaves 1e-2 of it, averages whose read-out learns its features 1e-5."""
    F = targets.function(lambda X: torch.tanh(2 * X.mean(-2).sum(-1)), 5, name="smooth", sampler="normal")
    found = find_floors(F, Architecture(1, 6, 32), 6, mlp=False)
    assert found.floor == found.aimed < 1e-4 < 1e-3 < found.sharpened
    assert found.missed[0] < 1e-3


def test_a_head_too_few_is_seen_and_a_head_enough_has_no_floor() -> None:
    """max - min of a coordinate: one linear read cannot follow both ends, two can."""
    F = targets.max_plus_min()
    one, two = (least(find_floors(F, Architecture(h, 6 * h, 64), 8, mlp=False)) for h in (1, 2))
    assert one > 0.3
    assert two < 0.02


def test_a_floor_of_two_thousandths_is_told_from_none() -> None:
    """Three maxima in R^3 at T = 24: networks with two heads train to 2.6e-3, with three below 5e-7."""
    F = targets.sum_of_maxima(D=3, d=3, seed=7)
    two, three = (find_floors(F, Architecture(h, 6 * h, 64), 24, mlp=False) for h in (2, 3))
    assert 1.5e-3 < two.floor < 6e-3
    assert three.floor < 1e-4
    assert max(two.missed) > 0.02 > max(three.missed)


def test_heads_that_follow_the_scores_need_no_descent() -> None:
    """Two pair maxima with two heads in both layers: the aims alone leave nothing; one head less leaves a term."""
    F = targets.pairwise_max(D=2, d=2, seed=1)
    X = F.sample(2000, 8, seed=0)
    y = torch.from_numpy(F(X)).float().unsqueeze(-1)
    y = (y - y.mean()) / y.std()
    shapes = [Architecture((2, h), (12, 6 * h), 64) for h in (2, 1)]
    enough, few = (aims(states(F, X, arch, False), arch.embeds[-1]).measured(y).min() for arch in shapes)
    assert enough < 1e-3 < 0.05 < few


def test_inner_maxima_are_those_of_enumeration() -> None:
    F = targets.pairwise_max(D=1, d=2, seed=3)
    X = F.sample(5, 6, seed=1)
    term = F.terms[0]
    found = messages(term, X)
    assert found is not None
    assert found.depth == 1
    score = term.score
    table = np.array([[[score(X[b][[t, s]]) for s in range(6)] for t in range(6)] for b in range(5)])
    either = [table.max(2), table.max(1)]  # one of the two tokens is the root
    assert any(np.allclose(found.values[..., 0], best) for best in either)
    assert best_tuples(score, X, 1, np.ones((1, 2, 6), bool))[1] == pytest.approx(found.values[..., 0].max(1))


def test_a_chain_of_three_is_known_after_one_layer_from_its_middle() -> None:
    F = targets.chain(length=3, d=2, seed=0)
    found = messages(F.terms[0], F.sample(3, 5, seed=0))
    assert found is not None
    assert (found.depth, found.values.shape[-1]) == (1, 2)
    assert messages_wanted(F) == 2


def test_tokens_that_read_for_the_cls_hold_every_maximum() -> None:
    """Three maxima, one head in each of two layers: averages over all tokens of what they hold leave little, where
    without it sharp heads leave twice as much (networks train to 1.6e-4)."""
    F, arch = targets.sum_of_maxima(D=3, d=3, seed=7), Architecture((1, 1), (6, 6), 64)
    X = F.sample(2000, 24, seed=0)
    y = torch.from_numpy(F(X)).float().unsqueeze(-1)
    silent, telling = (states(F, X, arch, False, telling=telling) for telling in (False, True))
    assert not silent[1].told
    assert len(telling[1].told) == 4  # two maxima that the CLS has not read, and the two kinds of tokens that hold them
    y = (y - y.mean()) / y.std()
    left = [aims(found, 6).measured(y).min() for found in (silent, telling)]
    assert left[1] < 0.5 * left[0]


def test_one_layer_has_more_starts_and_each_says_where_it_ends_when_sharp() -> None:
    """A pair of ends with two heads: every start has both, once temperature is taken out; soft they leave more."""
    found = find_floors(targets.max_plus_min(), Architecture(2, 12, 24), 12, mlp=False)
    assert len(found.sharp) == len(found.ends) == 4
    assert all(sharp <= end for sharp, end in zip(found.sharp, found.ends, strict=True))
    assert min(found.sharp) == pytest.approx(found.sharpened)


def test_a_held_maximum_is_that_of_the_sequence_at_tokens_of_its_kind_alone() -> None:
    F = targets.sum_of_maxima(D=3, d=2, seed=7)
    X = F.sample(300, 12, seed=0)
    last = states(F, X, Architecture((1, 1), (6, 6), 64), False, telling=True)[1]
    held = last.tokens[..., list(last.told)].double()
    maxima = torch.from_numpy(F.term_values(X)[:, 1:])  # the CLS reads the first
    kinds = held[..., 2:] > 0
    assert (kinds.sum(-1) == 1).all()
    for i in range(2):
        mine = held[..., i][kinds[..., i]]
        wanted = maxima[:, i : i + 1].expand(-1, 12)[kinds[..., i]]
        assert abs(float(torch.corrcoef(torch.stack([mine, wanted]))[0, 1])) > 0.999
        assert float(held[..., i][~kinds[..., i]].std()) < 1e-5


def test_positions_and_neighbours_are_messages() -> None:
    """Induction: the score is the distance to the last token, and a head fetches the token behind each."""
    F = targets.after_match(d=2)
    X = F.sample(50, 8, seed=0)
    found = messages(F.terms[0], X, mlp=False)
    assert found is not None
    assert (found.depth, found.heads, found.values.shape[-1]) == (1, 2, 3)
    assert np.allclose(found.values[:, :-1, 1:], X[:, 1:])
    distances = ((X[:, :-1] - X[:, -1:]) ** 2).sum(-1)
    assert (found.total.argmax(1) == distances.argmin(1)).all()  # the last token itself may not win


def test_a_quadratic_score_of_the_partner_comes_a_layer_later_behind_a_linear_encoder() -> None:
    """argmax_s |x(s) - x(t)|^2 needs |x(s)|^2, which no score of layer 1 has unless the encoder made it."""
    square = Polynomial.quadratic(np.eye(2), np.zeros(2), 0.0)
    edge = Edge(0, 1, Polynomial.linear(-2 * np.eye(2)), Polynomial.linear(np.eye(2)))
    term = Extremum(TreeScore((square, square), (edge,), 2))
    X = np.random.default_rng(0).uniform(size=(5, 6, 2))
    depths = [found.depth for mlp in (False, True) if (found := messages(term, X, mlp)) is not None]
    assert depths == [2, 1]


def test_pairs_of_different_tokens_leave_the_token_itself_out() -> None:
    F = targets.closest_pair(d=2)
    X = F.sample(5, 6, seed=0)
    found = messages(F.terms[0], X)
    assert found is not None
    assert -found.total.max(1) == pytest.approx(F(X))


def test_a_linear_encoder_that_is_too_small_keeps_the_plane_of_the_gradient() -> None:
    F = targets.sum_of_maxima(D=1, d=3, seed=0)
    X = F.sample(50, 4, seed=0)
    state = states(F, X, Architecture(1, 1, 8), mlp=False)[0].tokens.double()
    flat = state.reshape(-1, 3)
    assert torch.linalg.matrix_rank(flat, atol=1e-4) == 1
    wanted = torch.from_numpy(F.terms[0].score(X[:, :, None, :])).reshape(-1)
    assert abs(float(torch.corrcoef(torch.stack([flat[:, 0], wanted]))[0, 1])) > 0.999
