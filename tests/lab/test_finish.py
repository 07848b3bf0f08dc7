"""The last touch on a figure: ticks at the data, labels given by an item kept, legends that cover nothing."""

from typing import Any

import pytest

from infoflow.lab.finish import finish
from infoflow.report import style


def names(axes: Any) -> list[str]:
    axes.figure.draw_without_rendering()
    return [label.get_text() for label in axes.get_xticklabels()]


def test_a_short_list_of_round_numbers_becomes_the_ticks() -> None:
    figure, axes = style.figure()
    axes.plot([8, 16, 64], [1.0, 2.0, 3.0], marker="o")
    axes.axhline(2.0)
    axes.set_xscale("log")
    finish(figure)
    assert names(axes) == ["8", "16", "64"]
    assert not list(axes.xaxis.get_minorticklocs())


def test_ticks_set_wider_than_the_data_are_drawn_in() -> None:
    figure, axes = style.figure()
    axes.plot([3, 8], [1.0, 2.0], marker="o")
    axes.set_xticks([3, 8, 64], ["3", "8", "64"])
    finish(figure)
    assert names(axes) == ["3", "8"]
    assert axes.get_xlim()[1] < 10


def test_words_stay() -> None:
    figure, axes = style.figure()
    axes.scatter([0, 1], [1.0, 2.0])
    axes.set_xticks([0, 1], ["(2,2)", "(1,2)"])
    finish(figure)
    assert names(axes) == ["(2,2)", "(1,2)"]


def test_an_axis_without_ticks_gets_none() -> None:
    figure, axes = style.figure()
    axes.scatter([1, 2, 5.3], [1.0, 2.0, 3.0])
    axes.set_xticks([])
    finish(figure)
    assert names(axes) == []


@pytest.mark.parametrize("x", [[0.123456, 1.98765], list(range(40))])
def test_a_continuum_keeps_its_own_ticks(x: list[float]) -> None:
    figure, axes = style.figure()
    axes.plot(x, x, marker="o")
    before = names(axes)
    finish(figure)
    assert names(axes) == before


def test_a_curve_without_marks_keeps_its_own_ticks() -> None:
    figure, axes = style.figure()
    axes.plot([0, 7, 400], [1.0, 2.0, 3.0])
    before = names(axes)
    finish(figure)
    assert names(axes) == before


def test_a_short_log_axis_has_plain_numbers() -> None:
    figure, axes = style.figure()
    axes.plot([1, 2], [0.02, 0.05], marker="o")
    axes.set_yscale("log")
    finish(figure)
    figure.draw_without_rendering()
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert {"0.02", "0.03", "0.05"} <= set(shown)
    assert not any("10^" in text for text in shown)


def test_a_long_log_axis_keeps_its_powers() -> None:
    figure, axes = style.figure()
    axes.plot([1, 2], [1e-4, 1.0], marker="o")
    axes.set_yscale("log")
    finish(figure)
    figure.draw_without_rendering()
    assert any("10^" in label.get_text() for label in axes.get_yticklabels())


def test_a_legend_on_the_data_moves_below() -> None:
    figure, axes = style.figure()
    for height in range(12):
        axes.plot([0, 1, 2], [height, height, height], marker="o", label=f"line number {height}")
    axes.legend()
    finish(figure)
    assert axes.get_legend() is None
    assert len(figure.legends) == 1
    assert len(figure.legends[0].get_texts()) == 12


def test_a_legend_beside_the_data_stays_and_lists_only_what_is_drawn() -> None:
    figure, axes = style.figure()
    axes.plot([0, 1], [0.0, 1.0], marker="o", label="here")
    axes.plot([], [], marker="o", label="not run")
    axes.legend(loc="upper left")
    finish(figure)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["here"]
    assert not figure.legends
    assert not axes.get_legend().get_frame_on()


def test_a_legend_of_nothing_goes() -> None:
    figure, axes = style.figure()
    axes.plot([], [], marker="o", label="not run")
    axes.legend()
    finish(figure)
    assert axes.get_legend() is None


def test_heat_maps_count_and_empty_axes_pass_through() -> None:
    figure, (left, right) = style.figure(6, 3, 1, 2)
    drawn = left.imshow([[0.0] * 12] * 5, extent=(0.5, 12.5, 5.5, 0.5), aspect="auto")
    bar = figure.colorbar(drawn, ax=left)
    right.axis("off")
    finish(figure)
    assert names(bar.ax) == []
    assert all(float(text).is_integer() for text in names(left))
