"""One style for every figure: colours, sizes, file formats. matplotlib is loaded when a figure is made."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infoflow import apart
from infoflow.errors import InfoFlowError
from infoflow.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Distinct in print, on screen and for colour-blind readers (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
INK, MUTED, FAINT, PAPER = "#1f2430", "#6b7280", "#e5e7eb", "#ffffff"
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FORMATS = ("svg", "png", "pdf")
COORDINATE = re.compile(r"(?<![\w.])-?[1-9]\d*\.\d{3,}")  # of 1 or more: a scale keeps its digits
OUTLINE = re.compile(r'(?<= d=")[^"]*(?=")')
STYLED = re.compile(r'(?<= style=")[^"]*(?=")')
LETTER = re.compile(r'(#|id=")DejaVuSans(-Bold)?-([0-9a-f]+)(?=")')
MARKERS_TOGETHER = re.compile(r"<g((?: (?!style)[\w-]+=\"[^\"]*\")*)>\n((?:<use [^>]*/>\n){2,})</g>")

SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib, so a figure looks the same everywhere
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "path",  # letters as outlines: no font is needed to read the file
    "svg.hashsalt": "infoflow",  # the same figure gives the same bytes
    "pdf.fonttype": 42,
}


@contextmanager
def settings() -> Iterator[None]:
    """The project's style, for a while. Everything of matplotlib is loaded behind this: the first import reads a
    `matplotlibrc` of the current folder, which may be a stranger's and can have figures set by LaTeX."""
    with apart.folder():
        import matplotlib as mpl
        from cycler import cycler
    with mpl.rc_context(SETTINGS | {"axes.prop_cycle": cycler(color=COLOURS)}):
        yield


def figure(
    width: float = 6.4, height: float = 3.6, rows: int = 1, columns: int = 1, **options: Any
) -> tuple["Figure", Any]:
    """A figure of `width` by `height` inches in the project's style, and its axes (an array when there are several).

    It never touches matplotlib's global state, needs no display, and is freed like any other object.
    """
    with settings():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        made = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(made)
        return made, made.subplots(rows, columns, **options)


def save(made: "Figure", path: str | Path, formats: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Write `path.svg`, `path.png`, ... and return the paths; a failure leaves no file behind."""
    written = []
    for suffix in formats:
        if suffix not in FORMATS:
            raise InfoFlowError(f"expected a figure format among {', '.join(FORMATS)}, got {suffix!r}.")
        target = Path(path).with_name(f"{Path(path).name}.{suffix}")
        drawn = _drawn(
            made, suffix
        )  # a disk that fills up while matplotlib draws would leave it in an error of its own
        with atomic_path(target) as temporary:
            temporary.write_bytes(drawn)
        written.append(target)
    return written


def svg(made: "Figure") -> str:
    """The figure as one `<svg>` element, to stand inside a page."""
    text = _drawn(made, "svg").decode("utf-8")
    return text[text.index("<svg") :]


def short(text: str) -> str:
    """The same picture in three quarters of the bytes.

    Coordinates to a hundredth of a point, outlines and styles without the spaces nobody needs, short names of letters,
    and one style for markers that stand together (an opacity stays with each, for a group of them would be one layer).
    """
    text = COORDINATE.sub(lambda found: f"{float(found.group()):.2f}".rstrip("0").rstrip("."), text)
    text = re.sub(r" *\n *", "\n", text)
    text = OUTLINE.sub(lambda found: re.sub(r"\s*([A-Za-z])\s*", r"\1", found[0]), text)
    text = STYLED.sub(lambda found: re.sub(r"([:;]) ", r"\1", found[0]), text)
    text = LETTER.sub(lambda found: f"{found[1]}{'b' if found[2] else 'd'}{found[3]}", text)
    return MARKERS_TOGETHER.sub(_one_style, text)


def _one_style(group: re.Match[str]) -> str:
    styles = set(re.findall(r' style="[^"]*"', group[2]))
    if (
        len(styles) != 1
        or group[2].count(" style=") != group[2].count("<use ")
        or re.search(r'["; ]opacity:', group[2])
    ):
        return group[0]
    (style,) = styles
    return f"<g{group[1]}{style}>\n{group[2].replace(style, '')}</g>"


def _drawn(made: "Figure", suffix: str) -> bytes:
    for axes in made.axes:
        axes.title.set(fontsize=SETTINGS["axes.titlesize"], fontweight=SETTINGS["axes.titleweight"])
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[suffix]  # reproducible bytes
    buffer = BytesIO()
    with settings():
        made.savefig(buffer, format=suffix, dpi=160, metadata=dates)
    return short(buffer.getvalue().decode("utf-8")).encode() if suffix == "svg" else buffer.getvalue()
