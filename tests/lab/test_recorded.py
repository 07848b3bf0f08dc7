"""The full results in the repository are those of the recipes in the code: change a recipe and they are no longer."""

import json
from dataclasses import replace
from importlib import import_module
from math import log10
from operator import itemgetter
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from infoflow.errors import InfoFlowError
from infoflow.lab.item import Context
from infoflow.lab.papers.infoflow.followed import followed
from infoflow.lab.papers.infoflow.recovery.item import _kept, _trained, measure, plan, ratios, sequences
from infoflow.lab.papers.infoflow.recovery.item import run as run_recovery
from infoflow.lab.recorded import Results, results_of, together, verdicts
from infoflow.lab.registry import ITEMS, find
from infoflow.lab.sweep import best_of
from infoflow.nn import Transformer
from infoflow.train.run import Run
from infoflow.train.store import Store
from infoflow.verdicts.predict import predict

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    ("item", "preset"),
    [
        ("head_count/synthetic", "paper"),
        ("infoflow/recovery", "best"),
        ("infoflow/recovery", "paper"),
        ("infoflow/table11", "best"),
        ("infoflow/table11", "paper"),
        ("infoflow/table12", "paper"),
        ("infoflow/table12", "best"),
    ],
)
def test_the_recorded_runs_are_those_that_would_be_trained(item: str, preset: str, tmp_path: Path) -> None:
    path = RESULTS / item / preset / "result.json"
    if not path.is_file():
        pytest.skip(f"results/{item}/{preset}/result.json is not part of this copy")
    recorded = json.loads(path.read_text(encoding="utf-8"))
    context = Context(preset, tmp_path, parts=tuple(recorded["parts"]))  # type: ignore[arg-type]
    planned = import_module(f"infoflow.lab.papers.{item.replace('/', '.')}.item").plan(context)
    grid = planned[0] if isinstance(planned, tuple) else planned
    assert set(recorded["runs"]) == {run.key for runs in grid.values() for run in runs}


def test_what_was_predicted_came_out_in_the_recovery_tables(tmp_path: Path) -> None:
    """Heads with a construction reach a tenth of the error of all others, or less; the flow exponents say the same."""
    path = RESULTS / "infoflow" / "recovery" / "best" / "result.json"
    if not path.is_file():
        pytest.skip("results/infoflow/recovery/best/result.json is not part of this copy")
    rows = [row for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if row["target"] == "eq. (6)"]
    reached = {row["heads"]: row["NMSE"] for row in rows}
    said = {}
    for (name, heads), runs in plan(Context("best", tmp_path)).items():
        if name == "eq. (6)":
            target, arch, T = runs[0].regression()
            said["({},{})".format(*heads)] = predict(target, arch.with_(width=None), T=T)
    easy = {heads for heads, prediction in said.items() if prediction.verdict == "constructed"}
    assert easy == {heads for heads, prediction in said.items() if prediction.flow.exponent < 1} != set()
    assert max(reached[heads] for heads in easy) < 0.1 * min(reached[heads] for heads in said if heads not in easy)


def shipped(heads: tuple[int, int], seed: int) -> tuple[Run, Transformer]:
    """A network of the recovery tables as it lies in the repository."""
    folder = RESULTS / "infoflow" / "recovery" / "best" / "store"
    if not folder.is_dir():
        pytest.skip("results/infoflow/recovery/best/store is not part of this copy")
    run = plan(Context("best", folder, parts=("heads={},{}".format(*heads),)))["eq. (6)", heads][seed]
    result = Store(folder).get(run.key, True)
    assert result is not None
    return run, result.network()


def test_the_weights_in_the_repository_keep_the_argmax_token_and_not_the_second() -> None:
    """(6,6), its first seed, on 250 sequences: what Tables 1 and 4 are about."""
    run, network = shipped((6, 6), 0)
    errors = measure(network, sequences(run, 250))
    assert max(ratios(errors["argmax"])) < 0.1
    assert min(ratios(errors["second"])) > 0.7
    assert min(map(min, followed(network, run.regression()[0], sequences(run, 400)))) > 0.9


def test_the_weights_of_the_best_seeds_are_enough_to_measure_again(tmp_path: Path) -> None:
    """Six of the fourteen are not shipped: nothing is trained for want of them, and for want of a best one all is."""
    if not (RESULTS / "infoflow" / "recovery" / "best" / "store").is_dir():
        pytest.skip("results/infoflow/recovery/best/store is not part of this copy")
    store = Store(copytree(RESULTS / "infoflow" / "recovery" / "best" / "store", tmp_path / "store"))
    context = Context("best", tmp_path)
    grid = plan(context)
    assert all(_kept(store, runs, context) for runs in grid.values())
    found = _trained(Context("best", tmp_path, seconds=1e-3), grid)
    assert all(best_of(found, cell).network().config.heads == cell[1] for cell in grid)
    runs = grid["eq. (6)", (5, 6)]
    (tmp_path / "store" / "weights" / f"{runs[1].key}.safetensors").unlink()
    assert not _kept(store, runs, context)
    assert not _kept(store, [*grid["eq. (6)", (6, 6)], replace(runs[0], seed=9)], context)


def test_what_was_measured_of_a_network_stands_for_its_weights(tmp_path: Path) -> None:
    """D-retrieval's are not shipped: its table is made again from what was measured, and from nothing else."""
    source = RESULTS / "infoflow" / "recovery" / "paper"
    if not (source / "measured").is_dir():
        pytest.skip("results/infoflow/recovery/paper/measured is not part of this copy")
    recorded = json.loads((source / "result.json").read_text(encoding="utf-8"))
    folder = copytree(source, tmp_path / "copy")
    parts = tuple(sorted({f"heads={row['heads'].strip('()')}" for row in recorded["rows"]}))
    made = run_recovery(Context("paper", folder, parts=parts, seconds=1e-3))
    key = itemgetter("heads", "rank")
    assert sorted(made.rows, key=key) == sorted(recorded["rows"], key=key)
    first = min((folder / "measured").iterdir())
    nothing = {"NMSE": 0.1, "errors": {"argmax": [[1, 0]], "second": [[1, 1]]}, "followed": None}
    for lie in (
        {},
        nothing,
        {"NMSE": "low", "errors": {"argmax": [[1, 1]], "second": [[1, 1]]}, "followed": None},
        [1],
    ):
        first.write_text(json.dumps(lie), encoding="utf-8")
        with pytest.raises(InfoFlowError, match="expected what was measured"):
            run_recovery(Context("paper", folder, parts=parts, seconds=1e-3))


def test_the_networks_in_the_repository_look_at_three_positions(tmp_path: Path) -> None:
    """Figure 4 of C.3 is made again from weights, and nothing is trained."""
    source = RESULTS / "infoflow" / "positions" / "paper"
    if not (source / "store" / "weights").is_dir():
        pytest.skip("results/infoflow/positions/paper/store/weights is not part of this copy")
    recorded = json.loads((source / "result.json").read_text(encoding="utf-8"))
    folder = copytree(source, tmp_path / "copy")
    made = find("infoflow/positions").run(Context("paper", folder, seconds=1e-3))
    for row, wanted in zip(made.rows, recorded["rows"], strict=True):
        assert row["mean attention"] == pytest.approx(wanted["mean attention"], abs=1e-5)
    assert [round(3 * row["mean attention"]) for row in made.rows] == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_heads_that_keep_their_token_need_not_be_enough() -> None:
    """(5,6), its second seed: each of the five keeps its token, and one of the six maxima is followed by none."""
    run, network = shipped((5, 6), 1)
    assert max(ratios(measure(network, sequences(run, 250))["argmax"])) < 0.2
    first, second = followed(network, run.regression()[0], sequences(run, 400))
    assert sum(share < 0.3 for share in first) == 1
    assert sum(share < 0.3 for share in second) == 1


@pytest.mark.parametrize("name", ITEMS)
def test_every_recorded_result_is_judged(name: str) -> None:
    """A finding for every table and figure that the rows speak of, and for no other."""
    item = find(name)
    results = results_of(item, RESULTS)
    if not results:
        pytest.skip(f"results/{name} is not part of this copy")
    for found in results.values():
        for _, result in found:
            judged = item.judge(result)
            assert set(judged) <= set(item.concludes)
            assert judged
            assert all(finding.number for finding in judged.values())


def test_judges_say_no(tmp_path: Path) -> None:
    """Rows that contradict a conclusion are found out."""

    def said(name: str, rows: list[dict[str, Any]], **more: Any) -> set[bool]:
        return {finding.holds for finding in find(name).judge({"rows": rows, "preset": "paper", **more}).values()}

    heads = [{"T": 8, "h": h, "N": 128, "mean": mean} for h, mean in ((1, 1.0), (2, 0.01), (3, 0.009), (4, 0.008))]
    assert said("head_count/synthetic", heads) == {False}
    widths = [{"T": 128, "h": h, "N": N, "mean": mean, "log10 N": log10(N), "log10 NMSE": log10(mean)}
              for h, found in ((1, (0.1, 0.09, 0.08)), (3, (0.02, 0.02, 0.02)), (4, (0.001, 0.001, 0.001)))
              for N, mean in zip((32, 64, 128), found, strict=True)]  # fmt: skip
    figure_b = "slides, figure (b)"
    assert find("head_count/synthetic").judge({"rows": widths, "preset": "paper"})[figure_b].holds
    widths[2] |= {"mean": 0.01, "log10 NMSE": -2.0}  # one head, faster than the theorem allows
    assert not find("head_count/synthetic").judge({"rows": widths, "preset": "paper"})[figure_b].holds
    sweep = [{"sweep": "p", "value": p, "MSE": mse} for p, mse in ((60, 0.1), (70, 0.05), (80, 0.2))]
    assert said("softmax_attention/figure2", sweep) == {False}
    assert said("softmax_attention/figure2", sweep[:2]) == {True}
    positions = [{"mean attention": 0.1}] * 10
    assert said("infoflow/positions", positions) == {False}
    table = [{"target": "triangle", "T": T, "size": "a", "encoder": "linear", "mean": T / 100, "paper": None}
             for T in (3, 64)]  # fmt: skip
    assert said("infoflow/table12", table) == {False}  # it grows, and never comes near a constant
    table[-1]["mean"] = 0.98
    assert said("infoflow/table12", table) == {True}
    short = [{**table[0], "encoder": "two-layer", "T": T, "mean": mean} for T, mean in ((3, 0.1), (4, 0.2))]
    assert said("infoflow/table12", [*table, *short]) == {True}  # an encoder that was run for short sequences alone
    assert said("infoflow/table12", [*table, *reversed(short)]) == {False}  # in the order of the rows it falls
    keys = [
        {"end keys": share, "end keys, other seeds": None, "one channel": 1.0, "mean predictor": 2.0}
        for share in (0.9, 0.5, 0.7)
    ]
    assert said("softmax_attention/figure3", keys) == {False}
    falls = [{**row, "end keys": share, "keys a query": count}
             for row, share, count in zip(keys, (0.9, 0.5, 0.4), (1.1, 1.4, 2.2), strict=True)]  # fmt: skip
    assert said("softmax_attention/figure3", falls) == {True}
    narrow = [{**row, "keys a query": 1.0} for row in falls]
    assert said("softmax_attention/figure3", narrow) == {False}  # it leaves the ends and does not spread
    recovery = [{"target": "eq. (6)", "NMSE": 0.1}]
    ratio = {"argmax": {(6, 5): 0.3, (5, 6): 0.2}, "second": {(6, 5): 0.5, (5, 6): 1.0}}
    heads = [{"heads": heads, "rank": rank, "trained_initialized": [[own, 1.0], [own, 1.0]]}
             for rank, found in ratio.items() for heads, own in found.items()]  # fmt: skip
    assert said("infoflow/recovery", recovery, heads=heads) == {False}  # five first heads keep their tokens better
    heads[0]["trained_initialized"], heads[2]["trained_initialized"] = [[0.1, 1.0]], [[0.9, 1.0]]
    assert said("infoflow/recovery", recovery, heads=heads) == {True}


def test_a_better_recipe_of_another_target_is_called_that() -> None:
    """C.2 names D-retrieval: that eq. (6) loses its second token is no better recipe for it."""
    item = find("infoflow/recovery")
    results: Results = {}
    for preset, target, ratio in (("paper", "D-retrieval", 0.1), ("best", "eq. (6)", 0.9)):
        heads = [{"heads": (6, 6), "rank": rank, "trained_initialized": [[ratio, 1.0]]}
                 for rank in ("argmax", "second")]  # fmt: skip
        rows = [{"target": target, "NMSE": 1e-3}]
        results[preset] = [(Path(), {"rows": rows, "preset": preset, "heads": heads})]
    said = {entry["what"]: entry["verdict"] for entry in verdicts(item, results)}
    assert said == {"Tables 1 to 3": "not run", "Tables 4 to 10": "holds on another target"}


def test_a_figure_of_heads_that_the_theorem_says_nothing_of_is_no_prediction() -> None:
    rows = [{"features": "words", "T": T, "h": h, "E": "E = 8h", "accuracy": 1 - 0.5 / h, "untrained model": 0.1,
             "log(1 - accuracy)": -h} for T in (400, 500) for h in (1, 2)]  # fmt: skip
    found = [finding.holds for finding in find("head_count/retrieval").judge({"rows": rows}).values()]
    assert found == [True, True]
    short = [{**row, "T": 31} for row in rows[:2]]
    assert [finding.holds for finding in find("head_count/retrieval").judge({"rows": short}).values()] == [True, False]


@pytest.mark.parametrize(
    ("epochs", "later", "sooner"),
    [
        ((90, 40, 30), None, True),
        ((30, 50, 30), None, False),
        ((90, 40, 30), (200, 150, 50), True),
        ((30, 50, 30), (200, 150, 50), False),  # the paper's order at the higher level alone
        ((30, 20, 10), (200, 250, 50), False),
        ((30, 20, 10), (200, None, 50), True),  # one of them never got there
        ((30, None, 20), None, None),
    ],
)
def test_depth_that_does_not_learn_sooner_is_called_that(
    epochs: tuple[int | None, ...], later: tuple[int | None, ...] | None, sooner: bool | None
) -> None:
    """The order has to be the paper's at every level that all depths reach; one that never got there says nothing."""
    names = ("ceiling: the word alone", "ceiling: the word and its sentence's multiset")
    ceilings = zip(names, (0.9, 1.0), strict=True)
    rows: list[dict[str, Any]] = [{"what": name, "accuracy": value} for name, value in ceilings]
    rows += [{"what": f"trained, {layers}", "accuracy": 0.99, "epochs to 0.99": epoch, "epochs to 0.996": high}
             for layers, epoch, high in zip(("1 layer", "3 layers", "6 layers"), epochs, later or (None,) * 3,
                                            strict=True)]  # fmt: skip
    found = find("rank_one/figure1").judge({"rows": rows, "preset": "paper"})
    assert found["Figure 1"].holds
    assert (found["Figure 1, depth"].holds if "Figure 1, depth" in found else None) is sooner


@pytest.mark.parametrize(("share", "hardly"), [(0.9, True), (0.2, False)])
def test_a_trend_among_models_that_hardly_beat_the_mean_is_called_that(share: float, hardly: bool) -> None:
    rows = [{"sweep": "p", "value": p, "MSE": 10 * s, "mean predictor": 10.0, "linear regression": 2.0}
            for p, s in ((10, 1.1), (20, share))]  # fmt: skip
    found = find("softmax_attention/figure4").judge({"rows": rows, "preset": "paper"})["Figure 4"]
    assert found.holds
    assert ("hardly beat the mean" in found.number) is hardly


def test_tables_of_which_the_same_is_said_are_named_together() -> None:
    first = {"what": "Table 1", "conclusion": "a", "verdict": "holds", "numbers": {}}
    found = together([first, {**first, "what": "Figure 1"}, {**first, "what": "Table 2", "conclusion": "b"}, first])
    assert [verdict["what"] for verdict in found] == ["Table 1, Figure 1", "Table 2", "Table 1"]
    assert first["what"] == "Table 1"
