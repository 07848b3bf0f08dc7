"""The read-out of the mean token: ridge on features that are drawn again where the answer bends."""

import torch
from torch import Tensor

from infoflow.forecasts.readout import ReadOut, averaged, ridge, standard

SIZE, COUNT, PENALTY = 12, 160, 1e-4


def left(seen: Tensor, y: Tensor, rounds: int) -> float:
    """The share of y's variance on the second half that the read-out fitted on the first leaves."""
    readout, half = ReadOut(seen.shape[-1], COUNT, torch.Generator().manual_seed(0)), len(y) // 2
    for turn in range(rounds):
        features = readout.features(seen)
        answer = ridge(features[:half], y[:half], PENALTY)
        if turn < rounds - 1:
            readout.learn(readout.steepest(seen[:half], answer))
    return float((features[half:] @ answer - y[half:]).square().mean() / y.var())


def drawn() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4000, SIZE, generator=generator)
    direction = torch.randn(SIZE, generator=generator)
    return x, x @ direction / direction.norm()


def test_a_bend_in_one_direction_of_twelve_is_found() -> None:
    """tanh(3 a'x): random directions leave a tenth, those drawn again by the answer's slopes a tenth of that."""
    x, along = drawn()
    y = torch.tanh(3 * along).unsqueeze(-1)
    plain, learnt = left(x, y, 1), left(x, y, 3)
    assert plain > 0.1
    assert learnt < 0.1 * plain


def test_the_steepest_direction_is_the_one_that_counts() -> None:
    x, along = drawn()
    readout = ReadOut(SIZE, COUNT, torch.Generator().manual_seed(0))
    answer = ridge(readout.features(x), torch.sin(2 * along).unsqueeze(-1), PENALTY)
    root = readout.steepest(x, answer).double()
    torch.testing.assert_close(root.square().sum(), torch.tensor(1.0, dtype=torch.float64), atol=1e-5, rtol=0)
    direction = torch.linalg.lstsq(x.double(), along.double().unsqueeze(-1)).solution[:, 0]
    assert abs(root[:, -1] @ direction) > 0.95 * root[:, -1].norm()
    assert root[:, -1].norm() > 2 * root[:, -2].norm()


def test_slopes_are_those_of_the_answer() -> None:
    """One sample and one output: G is the outer product of the gradient that autograd finds."""
    readout = ReadOut(3, 8, torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1, 3, generator=generator, requires_grad=True)
    coefficients = torch.randn(1 + 3 + 8, 1, generator=generator)
    (slope,) = torch.autograd.grad((readout.features(x) @ coefficients).sum(), x)
    root = readout.steepest(x.detach(), coefficients)
    wanted = slope[0][:, None] * slope[0] / slope.square().sum()
    torch.testing.assert_close(root @ root.T, wanted, atol=1e-5, rtol=0)


def test_a_linear_answer_stays_linear() -> None:
    x, along = drawn()
    assert left(x, along.unsqueeze(-1), 3) < 1e-5


def test_a_smooth_function_of_the_mean_token_is_read_from_as_many_numbers_as_it_needs() -> None:
    """tanh of two projections: two numbers tell it, one leaves half, and none tells the largest token."""
    tokens = torch.randn(4000, 6, 5, generator=torch.Generator().manual_seed(0))
    mean = tokens.mean(1) * 6**0.5
    y = torch.stack([torch.tanh(mean[:, 0]), torch.tanh(mean[:, 1])], -1)
    one, two = ((averaged(tokens, y, kept) - y[2000:]).square().mean() / y.var() for kept in (1, 2))
    assert 0.4 < one < 0.6
    assert two < 1e-3
    most = tokens[..., :1].amax(1)
    assert (averaged(tokens, most, 5) - most[2000:]).square().mean() > 0.5 * most.var()


def test_a_constant_among_the_numbers_stays_small() -> None:
    """Standardised by rounding alone it would be noise of size one."""
    x = torch.full((1, 500, 1), 0.3)
    assert float(standard(x, x).abs().max()) < 1.0
