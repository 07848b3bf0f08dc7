"""Figures can be understood without their text: nothing is cut, colours are explained, axes are true."""

from typing import Any

import numpy as np
import pytest

import infoflow as iflow
from infoflow.refutations import Collision
from infoflow.refutations.figures import collision_figure
from infoflow.report import html


def cut(figure: Any) -> list[str]:
    """Texts that reach out of the figure."""
    figure.canvas.draw()
    whole = figure.bbox
    texts = [text for axes in figure.axes for text in axes.texts if text.get_text()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    return [words for words, box in boxes if box.x0 < whole.x0 or box.x1 > whole.x1 or box.y0 < 0 or box.y1 > whole.y1]


@pytest.mark.parametrize("T", [2, 8, 12, 13, 64, 512])
def test_no_label_of_a_flow_is_cut_and_every_colour_is_explained(T: int) -> None:
    F = iflow.targets.pairwise_max(D=4, d=4, seed=0)
    figure = iflow.trace(F, "heads=4,4 embed=24", F.sample(1, T, seed=0)[0]).figure()
    assert cut(figure) == []
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 4
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


@pytest.mark.parametrize("target", ["pairwise_max:D=2,d=2", "triangle_center"])
def test_an_exponent_is_never_drawn_below_zero(target: str) -> None:
    found = iflow.scale(target, "heads=2,2 embed=12", [8, 16, 32, 64])
    (axes,) = found.figure().axes
    low, high = axes.get_ylim()
    assert low == 0
    assert high >= max(float(row.flow) for row in found.rows)
    assert not any(line.get_clip_on() for line in axes.lines)  # a marker at 0 is whole


def test_a_collision_hides_no_point_behind_its_legend() -> None:
    rng = np.random.default_rng(0)
    Y, Z, state = rng.uniform(-1, 1, (8, 4)), rng.uniform(-1, 1, (8, 4)), rng.uniform(-1, 1, 12)
    found = Collision(Y, Z, 1.0, 0.0, 0.1, None, state, state, 2.0, 1.0, "float64", "none")
    figure = collision_figure(found)
    figure.canvas.draw()
    states = figure.axes[2]
    legend = states.get_legend().get_window_extent()
    assert legend.x0 >= states.get_window_extent().x1
    lines = [line.get_ydata() for line in states.lines]
    low, high = states.get_ylim()
    assert all(low < value < high for values in lines for value in values)


def test_a_page_is_readable_in_the_dark_and_on_a_phone() -> None:
    section = html.Section("One").table(["a"], [["1"]]).drawing("f", "<svg></svg>", "a picture")
    page = html.page("Title", "lead", [section])
    assert "prefers-color-scheme: dark" in page
    assert '<div class="table"><table>' in page
    assert '<div class="drawing"><svg>' in page
    rules = html.STYLE.partition("@media (prefers-color-scheme: dark)")[2].partition("}\n}")[2]
    assert "color: #" not in rules  # every colour of text and paper is one of the two schemes
