"""`infoflow fit` as a user calls it."""

import json
from pathlib import Path

import pytest

from infoflow.cli import main
from infoflow.provenance import machine_kind

SMALL = ["-T", "3", "--seeds", "2", "--samples", "16", "--validation", "8", "--batch", "4", "--epochs", "2"]


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str, int]:
    code = 0
    try:
        main(["fit", *words])
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    return out, err, code


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pairwise_max:D=2,d=2", "heads=2,2 embed=4,4", *SMALL, "--store", str(tmp_path)]
    out, _, code = call(capsys, *words)
    assert code == 0
    assert "median" in out
    assert "chosen on cpu" in out
    assert "2 never came below half the labels' variance" in out  # two epochs on sixteen samples
    out, _, code = call(capsys, *words, "--json")
    found = json.loads(out)
    assert code == 0
    assert [run["identity"]["seed"] for run in found["runs"]] == [0, 1]
    assert found["summary"]["models"] == found["summary"]["unlearned"] == 2
    assert found["unfinished"] == 0
    assert [record["machine"] for record in found["trained"]] == [machine_kind()]
    assert len(list((tmp_path / "weights").glob("*.safetensors"))) == 2


def test_sizes_that_are_left_open_are_filled_in_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pairwise_max:D=2,d=2", "heads=2,2", *SMALL, "--store", str(tmp_path)]
    out, _, code = call(capsys, *words)
    assert code == 0
    assert "heads=2,2 leaves sizes open; trained as heads=2,2 embed=12,12 width=32,32" in out
    found = json.loads(call(capsys, *words, "--json")[0])
    assert (found["asked"], found["arch"]) == ("heads=2,2", "heads=2,2 embed=12,12 width=32,32")


def test_several_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pairwise_max:D=2,d=2", "heads=2,2 embed=4,4", *SMALL, "--store", str(tmp_path), "--starts", "3"]
    out, _, code = call(capsys, *words, "--start-epochs", "1")
    assert code == 0
    assert "8 steps, from the best of 3 starts of 4 steps" in out
    out, _, code = call(capsys, *words, "--start-epochs", "1", "--json")
    assert json.loads(out)["starts"] == 3
    _, err, code = call(capsys, *words)
    assert code == 2
    assert "start_epochs above zero exactly with several starts" in err


def test_a_sweep_out_of_time_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pairwise_max:D=2,d=2", "heads=2,2", "embed=4", *SMALL, "--store", str(tmp_path), "--seconds", "1e-6"]
    _, err, code = call(capsys, *words)
    assert code == 1
    assert "goes on" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["pairwise_max:D=2", "heads=2,2 embed=5,5", "-T", "3"],
        ["pairwise_maxx:D=2", "heads=2,2 embed=4,4", "-T", "3"],
        ["pairwise_max:D=2", "heads=2,2 embed=4,4", "-T", "0"],
        ["pairwise_max:D=2", "heads=2,2 embed=4,4", "-T", "3", "--device", "abacus"],
        ["pairwise_max:D=2", "heads=2,2 embed=4,4", "-T", "3", "--epochs", "2", "--steps", "2"],
        ["pairwise_max:D=2", "heads=2,2 embed=4,4", "-T", "3", "--lr", "nan"],
        ["pairwise_max:D=2", "heads=2,2 embed=4,4", "-T", "3", "--engine", "cloud"],
        ["pairwise_max:D=2", "heads=2,2 embed=4,4", "-T", "100000000"],
    ],
)
def test_wrong_calls_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    out, err, code = call(capsys, *words, "--store", str(tmp_path / "store"))
    assert code == 2
    assert out == ""
    assert err.startswith("infoflow: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "store").exists()
