import matplotlib as mpl
import pytest

from infoflow.errors import InfoFlowError
from infoflow.report import style


def drawn():
    made, axes = style.figure(3, 2)
    axes.plot([1, 2, 3], [1, 4, 9], label="squares")
    axes.legend()
    return made


def test_saves_each_format_and_nothing_else(tmp_path):
    paths = style.save(drawn(), tmp_path / "deep" / "curve.v1", formats=("svg", "png", "pdf"))
    assert [p.name for p in paths] == ["curve.v1.svg", "curve.v1.png", "curve.v1.pdf"]
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["curve.v1.pdf", "curve.v1.png", "curve.v1.svg"]
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    assert paths[2].read_bytes().startswith(b"%PDF")


def test_the_same_figure_gives_the_same_bytes():
    assert style.svg(drawn()) == style.svg(drawn())
    assert style.svg(drawn()).startswith("<svg")


def test_short_coordinates_move_nothing_by_a_hundredth_of_a_point_and_leave_scales():
    text = '<path d="M 12.345678 -0.015625\n   L 184.999 7\nz\n"/> <g transform="scale(0.015625)">'
    assert style.short(text) == '<path d="M12.35 -0.015625L185 7z"/> <g transform="scale(0.015625)">'


def test_short_letters_are_named_alike_where_they_are_made_and_used():
    text = '<path id="DejaVuSans-4a"/><use xlink:href="#DejaVuSans-4a"/><use xlink:href="#DejaVuSans-Bold-4a"/>'
    assert style.short(text) == '<path id="d4a"/><use xlink:href="#d4a"/><use xlink:href="#b4a"/>'


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [("fill: red", "fill: red", True), ("fill: red", "fill: blue", False), ("opacity: 0.5", "opacity: 0.5", False)],
)
def test_markers_of_one_style_are_styled_together_but_never_as_one_layer(one: str, other: str, together: bool):
    text = f'<g id="a">\n<use x="1" style="{one}"/>\n<use x="2" style="{other}"/>\n</g>'
    if together:
        assert style.short(text) == '<g id="a" style="fill:red">\n<use x="1"/>\n<use x="2"/>\n</g>'
    else:
        assert style.short(text) == text.replace(": ", ":")


def test_letters_are_outlines_so_no_font_is_needed():
    assert "<text" not in style.svg(drawn())


def test_global_settings_stay_as_they_were():
    before = dict(mpl.rcParams)
    style.svg(drawn())
    assert dict(mpl.rcParams) == before


def test_unknown_format_writes_nothing(tmp_path):
    with pytest.raises(InfoFlowError, match="'gif'"):
        style.save(drawn(), tmp_path / "a", formats=("gif",))
    assert list(tmp_path.iterdir()) == []
