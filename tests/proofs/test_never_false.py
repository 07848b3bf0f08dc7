"""Whatever the weights: no bound is below an error that some sequence has. Random networks, lengths and targets."""

from itertools import product

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow import targets
from infoflow.nn import Transformer
from infoflow.nn.transformer import ACTIVATIONS
from infoflow.proofs.reduce import reduce
from infoflow.targets.score import TreeScore
from infoflow.targets.target import Extremum, KthLargest, Target

from .networks import largest_error, random_network
from .test_trained import proved

SIZES = st.sampled_from([1e-3, 0.1, 0.5, 1.0, 2.0, 6.0, 40.0])


@st.composite
def networks(draw: st.DrawFn, d: int) -> Transformer:
    """Every activation, one to three heads; heads that are equal, opposite or asleep; units that are saturated."""
    made = random_network(
        draw(st.integers(0, 10**6)),
        h=draw(st.integers(1, 3)),
        d=d,
        activation=draw(st.sampled_from(sorted(ACTIVATIONS))),
        scale=draw(SIZES),
        residual=draw(st.booleans()),
    )
    layer, twist = made.attentions[0], draw(st.sampled_from(["none", "equal", "opposite", "asleep", "sharp", "flat"]))
    with torch.no_grad():
        if twist in ("equal", "opposite"):
            layer.query[-1] = layer.query[0] * (1 if twist == "equal" else -1)  # type: ignore[index, union-attr]
            layer.key[-1] = layer.key[0]  # type: ignore[index, union-attr]
        factor = {"asleep": 0.0, "sharp": 30.0, "flat": 1e-8}.get(twist, 1.0)
        layer.query[0] *= factor  # type: ignore[index, union-attr]
        made.readout.maps[0].bias += draw(st.sampled_from([0.0, 10.0, -10.0]))  # type: ignore[union-attr]
    return made


@st.composite
def asked(draw: st.DrawFn, d: int, T: int) -> Target:
    """Weighted sums of one to three extrema and k-th largest values, with weights of both signs and zero."""
    numbers = st.sampled_from([-1.5, -1.0, -0.3, 0.0, 0.2, 1.0, 2.0])
    terms = []
    for _ in range(draw(st.integers(1, 3))):
        a = np.array([draw(numbers) for _ in range(d)])
        if draw(st.booleans()) or not a.any():
            terms.append(Extremum(TreeScore.linear(a), draw(st.sampled_from(["max", "min"]))))
        else:
            terms.append(KthLargest(draw(st.integers(1, T)), a))  # type: ignore[arg-type]
    weights = [[draw(numbers) for _ in terms]]
    return Target(tuple(terms), targets.Polynomial.affine_map(weights, [draw(numbers)]), d)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Transformer, Target, int]:
    d, T = draw(st.integers(1, 2)), draw(st.integers(1, 5))
    return draw(networks(d)), draw(asked(d, T)), T


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases())
def test_no_bound_is_below_an_error(case: tuple[Transformer, Target, int]) -> None:
    network, target, T = case
    assert largest_error(network, target, T, tries=400) <= proved(network, target, T, most=12)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_no_bound_is_below_a_grid(data: st.DataObject) -> None:
    """Two or three numbers: every sequence of a fine grid, and the averages of each satisfy what is said of them."""
    T = data.draw(st.integers(2, 3))
    network, target = data.draw(networks(1)), data.draw(asked(1, T))
    grid = np.array(list(product(np.linspace(-1, 1, 41 if T == 2 else 17), repeat=T)))[:, :, None]
    with torch.no_grad():
        values = network(torch.from_numpy(grid)).numpy()
    reduced = reduce(network)
    assert np.abs(reduced(reduced.averages(grid))[:, 0] - values).max() <= reduced.rounding(1.0, T)[0]
    assert float(np.abs(values - target(grid)).max()) <= proved(network, target, T, most=40)
