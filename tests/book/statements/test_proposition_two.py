"""The star of three tokens: one width for all T, where Proposition 2 demands growing sets."""

from dataclasses import replace
from typing import Any

from infoflow.book.statements.proposition_two import StarRow, star_rows
from infoflow.construct.builders import build
from infoflow.targets.named import star


def test_one_network_for_all_lengths():
    short, longer = star_rows(lengths=(8, 64), seconds=0.2)
    for row in (short, longer):
        assert row.heads == (2, 1)
        assert row.widths == short.widths
        assert row.attacked <= row.bound <= 0.05
        assert row.reachable == 3
    assert longer.demanded == 8
    assert not short.contradicts
    assert longer.contradicts
    long = build(star(k=3, d=2), 1024, 0.05)
    assert long.config.widths == short.widths
    assert long.header["certificate"]["bound"] <= 0.05


def test_a_row_shows_the_sharpest_layer_and_the_largest_set_a_token_can_hold() -> None:
    def uneven(*call: Any) -> Any:
        network = build(*call)
        first, *rest = network.config.betas
        network.config = replace(network.config, scales=(first, *(2 * beta for beta in rest)))
        return network

    (row,) = star_rows(lengths=(8,), seconds=0.0, build=uneven)
    sharpest = 2 * build(star(k=3, d=2, seed=0), 8, 0.05).config.betas[-1]
    assert row.beta == sharpest
    assert row.reachable == 3  # itself and what two heads bring


def test_an_error_equal_to_its_bound_is_within_it() -> None:
    row = StarRow(64, (2, 1), (4, 4), (8, 8), 1.0, bound=0.05, attacked=0.05, demanded=8, reachable=3)
    assert row.contradicts
    assert not replace(row, attacked=0.051).contradicts
    assert not replace(row, demanded=3).contradicts
