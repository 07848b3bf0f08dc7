"""How results look in Python: `dir`, short reprs, views for notebooks, tables and pictures of results."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

import infoflow as iflow
from infoflow.refutations import Collision, NoCollision
from infoflow.train.fit import Recipe, fit

RECIPE = Recipe(samples=16, validation=8, batch=8, epochs=None, steps=4, evaluate_every=1)


def test_dir_shows_what_a_user_wants_and_nothing_else() -> None:
    shown = dir(iflow)
    assert {"targets", "predict", "plan", "build", "certify", "refute", "fit", "probe", "Architecture"} <= set(shown)
    assert not {"Any", "importlib", "annotations"} & set(shown)
    assert [name for name in shown if name.startswith("_")] == ["__version__"]
    assert all(getattr(iflow, name) is not None for name in shown)


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """One of everything that a verb returns."""
    F = iflow.targets.pairwise_max(D=1, d=2)
    network = iflow.build(F, T=4, eps=0.5)
    X = F.sample(24, 4, kind="torch")
    return {
        "prediction": iflow.predict(F, "heads=1,1", T=8),
        "plan": iflow.plan(F, T=8),
        "scaling": iflow.scale(F, "heads=1,1 embed=4", [8, 16]),
        "flow": iflow.trace(F, "heads=1,1 embed=4", F.sample(1, 4, seed=0)[0]),
        "network": network,
        "certificate": network.certificate,
        "result": fit(F, "heads=1,1 embed=4 width=4", T=4, seeds=1, recipe=RECIPE)[0],
        "results": fit(F, "heads=1,1 embed=4 width=4", T=4, seeds=2, recipe=RECIPE),
        "probe": iflow.probe(network, [{"X": X}]),
        "target": F,
        "none": NoCollision("nothing was found"),
    }


def test_reprs_are_one_short_line(shown: dict[str, Any]) -> None:
    for name, value in shown.items():
        text = repr(value)
        assert "\n" not in text, name
        assert len(text) < 220, (name, text)
        assert text.startswith("<"), name
    assert "pairwise_max:D=1,d=2,seed=0" in repr(shown["prediction"])
    assert "heads=1,1" in repr(shown["network"])
    assert "float64" in repr(shown["network"])
    assert "holds" in repr(shown["certificate"])


@pytest.mark.parametrize("name", ["prediction", "plan", "flow", "certificate", "result", "results", "probe"])
def test_a_notebook_shows_text_and_picture(shown: dict[str, Any], name: str) -> None:
    page = shown[name]._repr_html_()
    assert page.startswith("<pre")
    assert ("<svg" in page) is (name in ("flow", "results", "probe"))
    assert "<script" not in page


def test_ids_of_two_figures_differ(shown: dict[str, Any]) -> None:
    ids = [
        {part.partition('"')[0] for part in shown[name]._repr_html_().split(' id="')[1:]} for name in ("flow", "probe")
    ]
    assert ids[0]
    assert ids[1]
    assert not ids[0] & ids[1]


def test_markup_in_a_text_is_text() -> None:
    assert "<script" not in NoCollision("<script>")._repr_html_()


def test_results_are_a_table_and_a_picture(shown: dict[str, Any], tmp_path: Path) -> None:
    results = shown["results"]
    path = results.to_csv(tmp_path / "results.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["seed"]) for row in rows] == [0, 1]
    assert [float(row["best"]) for row in rows] == [result.best for result in results]
    assert rows[0]["target"] == "pairwise_max:D=1,d=2,seed=0"
    assert [p.suffix for p in results.plot(tmp_path / "curves")] == [".svg", ".png"]
    assert len(results.figure().axes[0].lines) == 2
    assert isinstance(results, list)


def test_tokens_and_built_networks_agree_in_dtype() -> None:
    F = iflow.targets.pairwise_max(D=1, d=2)
    network = iflow.build(F, T=4, eps=0.5)
    X = F.sample(8, 4, kind="torch")
    assert X.dtype == next(network.parameters()).dtype == torch.float64
    with torch.no_grad():
        assert (network(X.clamp(-1, 1)) - F(X.clamp(-1, 1))).abs().max() <= network.certificate.bound
    with pytest.raises(iflow.InfoFlowError, match=r"torch.float64, got torch.float32; convert them by X.to"):
        network(X.float())
    with pytest.raises(iflow.InfoFlowError, match="expected a torch tensor, got ndarray"):
        network(X.numpy())


def test_a_collision_has_a_headline(shown: dict[str, Any]) -> None:
    F = shown["target"]
    Y, Z = F.sample(2, 4, seed=0)
    found = Collision(Y, Z, 1.0, 0.0, 0.1, None, Y[0], Z[0], 2.0, 1.0, "float64", "none")
    assert repr(found).startswith("<Collision: collision (numerical): two inputs with targets 2 and 1")
