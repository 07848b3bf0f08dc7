"""The last touch on a figure: ticks where the data are, plain numbers on short log axes, legends off the data."""

from typing import Any

import numpy as np

MOST_TICKS = 12  # more values than this are a continuum, not a list
SHORT = 2.0  # decades of a log axis below which powers of ten alone say too little


def finish(figure: Any) -> None:
    """Change `figure` in place. What an item set by hand (words on an axis, axes that are off) stays."""
    for axes in figure.axes:
        if axes.axison and axes.images:
            _whole_ticks(axes)
        elif axes.axison:
            _list_ticks(axes)
            for axis in (axes.xaxis, axes.yaxis):
                _plain_numbers(axis)
        if axes.get_legend() is not None:
            _tidy_legend(axes)
    figure.draw_without_rendering()
    covered = [axes for axes in figure.axes if axes.get_legend() is not None and _covers(axes)]
    for axes in covered:
        _move_below(figure, axes)


def _points(axes: Any) -> list[Any]:
    """The data of every marked line and scatter, (points, 2) each; lines across the axes are no data."""
    lines = [line for line in axes.lines if line.get_marker() not in ("None", None, "") and _in_data(line, axes)]
    return _filled([*(line.get_xydata() for line in lines), *_scattered(axes)])


def _scattered(axes: Any) -> list[Any]:
    from matplotlib.collections import PathCollection

    return [found.get_offsets() for found in axes.collections if isinstance(found, PathCollection)]


def _filled(parts: list[Any]) -> list[Any]:
    drawn = [np.asarray(points, dtype=float) for points in parts]
    return [points for points in drawn if points.ndim == 2 and len(points)]


def _in_data(line: Any, axes: Any) -> bool:
    return bool(line.get_transform() == axes.transData)


def _named(axis: Any) -> bool:
    """Whether the item gave this axis words for labels; numbers set by hand may be set again."""
    from matplotlib.ticker import FixedLocator

    locator, names = axis.get_major_locator(), axis.get_major_formatter()
    return isinstance(locator, FixedLocator) and not all(
        _is_number(names(value, at)) for at, value in enumerate(axis.get_majorticklocs())
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _list_ticks(axes: Any) -> None:
    """x values that are a short list of round numbers (T, h, p, D) become the ticks themselves."""
    from matplotlib.ticker import NullLocator

    points = _points(axes)
    if not points or not len(axes.get_xticks()) or _named(axes.xaxis):
        return
    values = np.unique(np.concatenate([part[:, 0] for part in points]))
    values = values[np.isfinite(values)]
    names = [f"{value:g}" for value in values]
    if not 0 < len(values) <= MOST_TICKS or any(len(name.lstrip("-")) > 4 for name in names):
        return
    axes.set_xticks(values, names)
    axes.xaxis.set_minor_locator(NullLocator())
    if axes.get_autoscalex_on():
        axes.autoscale(axis="x")  # ticks set earlier may have widened the view beyond the data


def _whole_ticks(axes: Any) -> None:
    """The rows and columns of a heat map are counted."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        if not isinstance(axis.get_major_locator(), FixedLocator):
            axis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _plain_numbers(axis: Any) -> None:
    """A log axis over little more than a decade: 0.02, 0.05, 0.1 in place of 2 x 10^-2."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

    if axis.get_scale() != "log" or isinstance(axis.get_major_locator(), FixedLocator):
        return
    low, high = sorted(axis.get_view_interval())
    if low <= 0 or np.log10(high / low) > SHORT or low < 1e-4 or high > 1e5:
        return
    steps = (1, 2, 5) if np.log10(high / low) > 0.7 else tuple(range(1, 10))
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _tidy_legend(axes: Any) -> None:
    """No frame, no entry for a line that has no data, no legend without entries."""
    from matplotlib.lines import Line2D

    old = axes.get_legend()
    handles, labels = axes.get_legend_handles_labels()
    full = [(h, n) for h, n in zip(handles, labels, strict=True) if not isinstance(h, Line2D) or np.size(h.get_xdata())]
    if not full:
        old.remove()
        return
    if len(full) < len(handles):
        size = old.get_texts()[0].get_fontsize()
        axes.legend(*zip(*full, strict=True), fontsize=size)
    axes.get_legend().set_frame_on(False)


def _covers(axes: Any) -> bool:
    """Whether the legend lies on a data point, or on a line between two."""
    box = axes.get_legend().get_window_extent()
    lines = [line.get_xydata() for line in axes.lines if _in_data(line, axes)]
    for points in _filled([*lines, *_scattered(axes)]):
        shown = axes.transData.transform(points)
        steps = np.linspace(0, 1, 50)[:, None, None]
        path = shown[None, :1] if len(shown) == 1 else shown[None, :-1] * (1 - steps) + shown[None, 1:] * steps
        x, y = path[..., 0], path[..., 1]
        if bool(((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)).any()):
            return True
    return False


def _move_below(figure: Any, axes: Any) -> None:
    """Under the whole figure, in as many columns as fit."""
    old = axes.get_legend()
    handles, labels = axes.get_legend_handles_labels()
    size = old.get_texts()[0].get_fontsize()
    old.remove()
    room = max(1, int(figure.get_figwidth() * 72 / (max(map(len, labels)) * size * 0.62 + 4 * size)))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(room, len(labels)), fontsize=size, frameon=False
    )
