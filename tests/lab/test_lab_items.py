"""The registry and its folders, the helpers of a table, items that run in seconds, and identities that never move."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from infoflow import targets
from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.lab.item import LAST, TEST, VALIDATION, Context, Outcome, cell, markdown, printed
from infoflow.lab.papers.head_count.synthetic import item as synthetic
from infoflow.lab.papers.infoflow.recovery.item import spans
from infoflow.lab.papers.infoflow.table11.item import on_validation
from infoflow.lab.papers.infoflow.table12.item import plan
from infoflow.lab.papers.softmax_attention.figure3.item import ends, spreading
from infoflow.lab.papers.softmax_attention.figure4 import item as figure4
from infoflow.lab.registry import ITEMS, find
from infoflow.lab.reproduce import reproduce
from infoflow.lab.sweep import measured_on, reported
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run
from infoflow.train.store import Result


def test_the_registry_lists_every_folder() -> None:
    papers = Path(str(files("infoflow.lab.papers")))
    found = {f"{path.parent.parent.name}/{path.parent.name}" for path in papers.glob("*/*/item.py")}
    assert found == set(ITEMS)


@pytest.mark.parametrize("name", ITEMS)
def test_every_item_is_whole(name: str) -> None:
    item = find(name)
    assert item.name == name
    assert item.title
    assert item.quick
    assert item.paper
    assert item.concludes
    assert bool(item.best) == bool(item.differences)
    assert item.preset("best") == ("best" if item.best else "paper")
    folder = files(f"infoflow.lab.papers.{name.replace('/', '.')}")
    readme = folder.joinpath("README.md").read_text(encoding="utf-8")
    said = " ".join(readme.split())
    if folder.joinpath("printed.json").is_file():
        assert json.loads(folder.joinpath("printed.json").read_text(encoding="utf-8"))["source"]
    else:
        assert "prints no number" in said or "Drawn from the objects" in said


def test_unknown_items_presets_and_parts() -> None:
    with pytest.raises(InfoFlowError, match="did you mean 'infoflow/table11'"):
        find("infoflow/tabel11")
    with pytest.raises(InfoFlowError, match="quick, paper, best"):
        reproduce("infoflow/figures", Context("fast", Path("unused")))  # type: ignore[arg-type]
    with pytest.raises(InfoFlowError, match="parts among"):
        reproduce("infoflow/table11", Context("quick", Path("unused"), parts=("D=7",)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.0, "0"),
        (0.5, "0.5"),
        (1234.5, "1.23e+03"),
        (1e-4, "1.00e-04"),
        (3, "3"),
        (0.99664, "0.9966"),
        (0.98, "0.98"),
        ("a", "a"),
    ],
)
def test_cells(value: object, text: str) -> None:
    assert cell(value) == text


def test_markdown_has_rows_then_remarks() -> None:
    lines = markdown(Outcome(["a", "b"], [{"a": 1}], remarks=["so it is"])).splitlines()
    assert lines == ["| a | b |", "|---|---|", "| 1 |  |", "", "- so it is"]


def test_the_drawn_figures(tmp_path: Path) -> None:
    result = reproduce("infoflow/figures", Context("quick", tmp_path))
    assert [row["ours"] for row in result["rows"]] == [row["paper"] for row in result["rows"]]
    assert all((tmp_path / name).stat().st_size for name in result["figures"])
    assert json.loads((tmp_path / "result.json").read_text())["item"] == "infoflow/figures"


def test_paper_without_its_data_names_the_files(tmp_path: Path) -> None:
    for name in ("rank_one/figure1", "head_count/retrieval"):
        with pytest.raises(InfoFlowError, match="--data FOLDER"):
            reproduce(name, Context("paper", tmp_path))


def test_younger_fields_leave_old_keys_alone() -> None:
    def run(recipe: Recipe) -> Run:
        return Run(targets.pairwise_max(D=2), Architecture(2, 8, 16), 8, 0, recipe)

    assert run(Recipe()).key == "4a185743839ebf8587f57a9d"  # as computed before the fields existed
    assert len({run(r).key for r in (Recipe(), Recipe(residual=False), Recipe(encoder_activation="relu"))}) == 3
    asked = run(Recipe(residual=False, encoder="mlp", encoder_activation="relu"))
    config = asked.task.config(asked.arch, asked.T, asked.recipe)
    assert (config.residual, config.encoder_activation, config.activation) == (False, "relu", "gelu")


@pytest.mark.parametrize(
    ("lengths", "words"),
    [((12, 64), " (T=16, 24, 32, 48 not run)"), ((48, 64), ""), ((64,), ""), ((10, 16), " (T=12 not run)")],
)
def test_table12_names_the_lengths_below_that_were_not_run(lengths: tuple[int, ...], words: str) -> None:
    """The error may pass there already; a length alone says nothing of those below."""
    from infoflow.lab.papers.infoflow.table12.item import _remarks

    common = {"target": "triangle", "size": "a", "encoder": "linear", "label std": 1.0, "exponent (lower)": "0"}
    (said,) = _remarks([{**common, "T": T, "mean": 0.9 if lengths[-1] == T else 0.4} for T in lengths])
    assert f"passes 0.8 at T={lengths[-1]}{words}, where" in said


def test_table12_draws_what_was_asked(tmp_path: Path) -> None:
    """Its parts may leave one side of the figure empty, which has no logarithm."""
    from infoflow.lab.papers.infoflow.table12.item import _figure

    row = {"target": "pair", "T": 17, "size": "(2,2) E=24", "label std": 0.07, "paper": None, "mean": 0.5}
    row["encoder"] = "linear"
    alone, both = _figure([row]), _figure([row, {**row, "target": "triangle", "T": 12, "paper": 0.4}])
    for name, figure, left_scale in (("alone", alone, "linear"), ("both", both, "log")):
        figure.savefig(tmp_path / f"{name}.svg")  # an empty logarithmic axis fails only when it is drawn
        left, right = figure.axes
        assert (left.get_yscale(), right.get_yscale()) == (left_scale, "log")
        assert [(float(x), float(y)) for x, y in right.collections[-1].get_offsets()] == [(0.07, 0.5)]
    assert not alone.axes[0].lines
    assert [line.get_ydata().tolist() for line in both.axes[0].lines] == [[0.5], [0.4]]  # ours, the paper's
    rows = [{**row, "target": "triangle", "T": T, "encoder": e} for e, T in (("linear", 16), ("two-layer", 12))]
    broken = _figure([*rows, {**rows[1], "T": 24}]).axes[0].lines[1]
    assert [value == value for value in broken.get_ydata()] == [True, False, True]  # no line past a length not run


@pytest.mark.parametrize(
    ("item", "part"),
    [("infoflow/recovery", "heads=6,6"), ("infoflow/table12", "T=64"), ("head_count/synthetic", "T=64")],
)
def test_a_part_that_the_quick_preset_leaves_out_is_named(item: str, part: str, tmp_path: Path) -> None:
    with pytest.raises(InfoFlowError, match=f"quick trains, got {part}; take --preset paper"):
        reproduce(item, Context("quick", tmp_path, parts=(part,)))
    assert not list(tmp_path.iterdir())


def test_recovery_tells_trained_from_initialised() -> None:
    """From the smallest to the largest head: the smallest ratio need not be that of the smallest errors."""
    row = spans("our", [(0.1, 0.4), (0.3, 0.5), (0.2, 1.0)])
    assert row == {"our ratio": "0.20 to 0.60", "our trained": "0.10 to 0.30", "our initialised": "0.40 to 1.00"}
    assert set(spans("paper", []).values()) == {None}  # not printed there
    assert spans("our", [(0.02, 0.5)]) == {"our ratio": "0.040", "our trained": "0.020", "our initialised": "0.50"}


def test_the_paper_prints_as_many_errors_as_first_layer_heads() -> None:
    for table in printed("infoflow.lab.papers.infoflow.recovery")["tables"]:
        assert len(table["trained"]) == len(table["initialized"]) == table["heads"][0]


def test_the_throughput_of_figure_2_is_measured(tmp_path: Path) -> None:
    """Its few steps fit into the recipe they are made with."""
    result = reproduce("softmax_attention/figure2", Context("quick", tmp_path, parts=("throughput",)))
    (measured,) = result["throughput"]
    assert measured["stacked"] > 0
    assert measured["one by one"] > 0
    other = tmp_path / "store" / "throughput.cuda.json"
    for lie in ([], {"device": "cuda"}, measured, {**measured, "device": "cuda", "one by one": 0}):
        other.write_text(json.dumps(lie), encoding="utf-8")
        with pytest.raises(InfoFlowError, match=r"expected measured rates in .*throughput\.cuda\.json"):
            reproduce("softmax_attention/figure2", Context("quick", tmp_path, parts=("throughput",)))


@pytest.mark.parametrize(
    ("recipe", "test", "number", "words"),
    [
        ({}, None, 0.3, LAST),
        ({"starts": 1, "rollback": None}, None, 0.3, LAST),
        ({"starts": 3}, None, 0.2, VALIDATION + ", and in training"),
        ({"rollback": 8.0}, None, 0.2, VALIDATION + ", and in training"),
        ({"starts": 3, "rollback": 8.0}, 0.25, 0.25, TEST),
    ],
)
def test_no_number_is_of_samples_that_chose_it_where_that_can_be_helped(
    recipe: dict[str, Any], test: float | None, number: float, words: str
) -> None:
    """Without test samples the last step is reported, not the best one; where validation samples steered the training
    the words say so."""
    values = {"key": "k", "identity": {"recipe": recipe}, "status": "ok", "best": 0.2, "final": 0.3, "test": test}
    more = {"curve": [0.2, 0.3], "curve_steps": [1, 2], "steps": 2, "diverged_at": None, "seconds": 1.0}
    result = Result(**values, **more, stacked=1, choice={})
    assert reported(result) == number
    assert measured_on([result, result]) == words


def test_pieces_of_softmax_figure_4_and_the_long_widths(tmp_path: Path) -> None:
    """A head count at a time, all of them the part; the widths at T = 128 are apart from those at T = 32."""
    heads = [("H", H) for H in (1, 2, 4, 8, 16, 32)]
    assert list(figure4.plan(Context("paper", tmp_path, parts=("H:2", "H:32")))) == [("H", 2), ("H", 32)]
    assert list(figure4.plan(Context("paper", tmp_path, parts=("H",)))) == heads
    assert list(figure4.plan(Context("paper", tmp_path)))[6:] == heads
    long = synthetic.plan(Context("paper", tmp_path, parts=("widths, T=128",)))
    assert {T for T, _, _ in long} == {128}
    assert {N for _, _, N in long} == {16, 32, 64, 128, 256}
    assert set(long) <= set(synthetic.plan(Context("paper", tmp_path)))
    assert not set(long) & set(synthetic.plan(Context("paper", tmp_path, parts=("widths",))))


def test_a_piece_of_table_12_is_one_cell() -> None:
    def cells(*parts: str) -> list[tuple[str, int, str, str]]:
        return list(plan(Context("paper", Path("unused"), parts=parts)))

    piece = "two-layer:(2,2) E=24:T=3"
    assert cells(piece) == [("triangle", 3, "(2,2) E=24", "two-layer")]
    linear = cells("linear", "T=3")
    assert {(T, encoder) for _, T, _, encoder in linear} == {(3, "linear")}
    assert cells("linear", "T=3", piece) == [*linear, *cells(piece)]


def test_the_control_of_table_12_is_asked_for_behind_either_encoder() -> None:
    def cells(*parts: str) -> set[tuple[str, int, str, str]]:
        return set(plan(Context("paper", Path("unused"), parts=parts)))

    linear = cells("linear", "control:T=8")
    assert {(target, encoder) for target, _, _, encoder in linear} == {("pair", "linear")}
    behind_two = cells("two-layer:control:T=8")
    assert behind_two == {(target, T, size, "two-layer") for target, T, size, _ in linear}
    assert behind_two == cells("two-layer", "control:T=8")
    assert cells("linear", "control:T=8", "two-layer:control:T=8") == linear | behind_two


@pytest.mark.parametrize("keys", [1, 2, 7])
def test_a_query_that_looks_at_k_keys_alike_spreads_over_k(keys: int) -> None:
    weights = torch.zeros(2, 3, 9)
    weights[..., 1 : 1 + keys] = 1 / keys
    assert spreading(weights) == pytest.approx(keys)
    assert ends(weights) == 0
    assert ends(weights.roll(-1, -1)) == pytest.approx(1 / keys)


def test_table_11_says_what_the_validation_samples_say() -> None:
    rows = [{"D": 2, "heads": heads, "validation mean": mean}
            for heads, mean in (("(2,2)", 1e-4), ("(1,2)", 0.05), ("(2,1)", 0.02))]  # fmt: skip
    ratios, spread = on_validation(rows, [(1.0, 1.0), (3.0, 2.0), (4.0, 2.0)])
    assert "is 200 (D=2) times above" in ratios
    assert "of the 3 models: 1.50 in the median, 1.05 to 1.95 for" in spread
    assert on_validation([*rows, {**rows[0], "validation mean": None}], [(1.0, 1.0)]) == []
    assert on_validation(rows, []) == []
