"""Absurd sizes: refused before anything is made, with the number and what to lower; no traceback, no silence."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import infoflow as iflow
from infoflow import cli
from infoflow.cost import MOST_MEMORY, _control_groups, available_memory, memory, spelled_bytes, spelled_seconds, work
from infoflow.errors import InfoFlowError, JobError, unknown
from infoflow.nn import Transformer, TransformerConfig

PAIRS, SHAPE, LONG = "pairwise_max:D=4,d=4", "heads=4,4 embed=24", "1000000000"
TINY = ["fit", "pairwise_max:D=1,d=2", "heads=1,1 embed=4", "-T", "4"]


@pytest.mark.skipif(sys.platform != "linux", reason="forks, and limits a process's memory")
def test_drawn_calls_end_with_a_sentence_or_a_result() -> None:
    script = Path(__file__).with_name("absurd_calls.py")
    done = subprocess.run([sys.executable, str(script), "7", "45"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("\n") == 1, done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["predict", f"pairwise_max:D={LONG},d=4", SHAPE, "-T", "64"], "memory, .* lower D or d"),
        (["predict", "pairwise_max:D=4,d=1000000", SHAPE, "-T", "64"], "memory, .* lower D or d"),
        (["predict", "min_pair:d=99999999999999999999", SHAPE, "-T", "64"], "d to be at most"),
        (["predict", "d_retrieval:D=100000", SHAPE, "-T", "64"], "memory, .* lower D or d"),
        (["predict", "star:k=1000000", SHAPE, "-T", "64"], "k to be at most 1000"),
        (["predict", "kth_largest:k=1000000", SHAPE, "-T", "10000000"], "4000 digits"),
        (["predict", PAIRS, f"heads={LONG},4 embed={LONG}", "-T", "64"], "at most 100000 heads"),
        (["predict", PAIRS, SHAPE, "-T", LONG, "--temperature"], "lower batch or T"),
        (["predict", PAIRS, SHAPE, "-T", "64", "--eps", "nan"], "eps to be a finite number above 0"),
        (["scale", "triangle_center", SHAPE, "-T", "0..8"], "at least 1, got 0"),
        (["scale", "triangle_center", SHAPE, "-T", f"8..{LONG}:1"], "999999993; take a larger step"),
        (["scale", "triangle_center", SHAPE, "-T", "8..4"], "a range that rises, got '8..4'"),
        (["scale", "triangle_center", SHAPE, "-T", "8..64:0"], "step of a range"),
        (["plan", "triangle_center", "-T", "64", "--max-layers", "1000000"], "years; lower max_layers or max_heads"),
        (["plan", "pairwise_max:D=40", "-T", "64", "--max-layers", LONG, "--max-heads", LONG], "ways to spread 80"),
        (["trace", PAIRS, SHAPE, "-T", "1000000"], "memory, .* lower T"),
        (["trace", PAIRS, SHAPE, "-T", "8", "--seed", "-1"], "seed to be an integer of at least 0, got -1"),
        (["build", "grid", "--function", "x11", "--d", "100", "--n", "100"], "lower d, n or g"),
        (["build", PAIRS, "-T", "8", "--eps", "0.1", "--domain", "-1e300", "1e300"], "within .-1e.50"),
        (["build", "equivariant", "--points", "1000000000000"], "lower points"),
        (["build", "equivariant", "--seed", "-1"], "seed to be an integer of at least 0"),
        (["build", "exponential_head", "-T", LONG, "--eps", "0.1"], "T=1000000000 has 4000000000"),
        (["refute", "hardmax", "--d", "1000000", "--n", "1000000"], "lower n or d"),
        (["refute", "none.safetensors", "--seconds", "nan"], "seconds to be a finite number above 0, got nan"),
        (["certify", "none.safetensors", "--seconds", "nan"], "seconds to be a finite number"),
        (["reproduce", "infoflow/figures", "--device", "0x10"], "cpu, cuda or cuda:K"),
        ([*TINY, "--seeds", LONG], "a list of 1000000000 models .* lower seeds or starts"),
        ([*TINY, "--steps", "1000000000000"], "lower steps, epochs, samples or starts"),
        (["fit", PAIRS, "heads=1,1 embed=1000000", "-T", "4", "--seeds", "1"], "take a smaller embed or width"),
        ([*TINY, "--samples", "1000000000000", "--steps", "2"], "take fewer samples"),
        ([*TINY, "--seconds", "nan"], "seconds to be a finite number above 0, got nan"),
        ([*TINY, "--store", "/dev/null/x"], "a folder in which files can be made"),
        (["build", PAIRS, "-T", "8", "--eps", "0.1", "--out", "/dev/null/x"], "a folder in which files can be made"),
        (["demo", "--out", "/dev/null/x"], "a folder in which files can be made"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_what_was_met(
    words: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert said.count("\n") == 1
    assert re.search(says, said), said
    assert not list(tmp_path.iterdir())  # the check of a folder leaves nothing behind


def test_a_plan_may_be_asked_for_any_depth() -> None:
    assert iflow.plan(PAIRS, 64, max_layers=10**6).options == iflow.plan(PAIRS, 64, max_layers=8).options


def test_a_long_call_says_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    work(100, 1.0, "this", "that")
    assert capsys.readouterr().err == "infoflow: this takes about 100 s.\n"
    work(19, 1.0, "this", "that")
    assert capsys.readouterr().err == ""
    with pytest.raises(InfoFlowError, match="at most 60 minutes, it would take about 28 hours; lower that"):
        work(100_000, 1.0, "this", "that")
    with pytest.raises(InfoFlowError, match="more than 1000 years"):
        work(10**400, 1.0, "this", "that")


def test_memory_is_counted_before_it_is_asked_for() -> None:
    memory(1000, "this", "that")
    for size in (available_memory(), MOST_MEMORY + 1, float("inf"), float("nan"), 10**400):
        with pytest.raises(InfoFlowError, match=r"of memory, it needs about .*; lower that"):
            memory(size, "this", "that")


def test_sizes_in_words() -> None:
    assert [spelled_bytes(size) for size in (512, 3 << 20, 119 << 30, 1.9e12)] == [
        "0.5 KiB",
        "3 MiB",
        "119 GiB",
        "1.73 TiB",
    ]
    assert [spelled_seconds(s) for s in (5, 119, 120, 7200, 3e9)] == [
        "5 s",
        "119 s",
        "2 minutes",
        "2 hours",
        "95 years",
    ]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("0::/job/step", ("memory.max", "memory.current")),
        ("4:memory:/job/step", ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")),
    ],
)
def test_control_groups_of_both_versions(line: str, names: tuple[str, str], tmp_path: Path) -> None:
    """A limit of a group around ours counts; what the group would give back is free."""
    root = tmp_path / "cgroup"
    for group, limit, used in (("job", "1000", "300"), ("job/step", "max", "200")):
        for name, value in zip(names, (limit, used), strict=True):
            path = root / Path(name).parent / group / Path(name).name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(value)
    (tmp_path / "self").write_text(f"{line}\n")
    assert _control_groups(tmp_path / "self", root) == [700]
    (root / Path(names[0]).parent / "job" / "memory.stat").write_text("inactive_file 50\n")
    assert _control_groups(tmp_path / "self", root) == [750]
    assert _control_groups(tmp_path / "none", root) == []


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (MemoryError(), 1, "to fit in memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
            1,
            "to fit in memory",
        ),
        (OSError(28, "No space left on device", "a.json"), 1, "a.json, .*free some space"),
        (PermissionError(13, "Permission denied", "a.json"), 1, "check the path"),
        (OverflowError("int too large"), 2, "floating point"),
        (RecursionError(), 2, "nested less deeply"),
        (KeyboardInterrupt(), 130, "stopped"),
        (KeyboardInterrupt("the same call goes on."), 130, "^the same call goes on.$"),
        (InfoFlowError("expected x."), 2, "expected x"),
        (JobError("expected x."), 1, "expected x"),
    ],
)
def test_one_guard_for_what_remains(error: BaseException, code: int, says: str) -> None:
    found = cli.ending_of(error)
    assert found is not None
    assert (found[1], bool(re.search(says, found[0]))) == (code, True)


def test_a_bug_keeps_its_traceback() -> None:
    assert cli.ending_of(KeyError("x")) is None
    assert cli.ending_of(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fit = importlib.import_module("infoflow.train.fit")

    def stopped(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fit, "fit_many", stopped)
    with pytest.raises(SystemExit) as left:
        cli.main([*TINY, "--store", str(tmp_path / "here")])
    assert left.value.code == 130
    assert f"the same call goes on from what is in {tmp_path / 'here'}" in capsys.readouterr().err


def test_only_near_names_are_offered() -> None:
    known = ["predict", "plan", "pairwise_max", "d_retrieval"]
    assert "did you mean 'predict'" in str(unknown("command", "pedict", known))
    assert "did you mean 'pairwise_max'" in str(unknown("target", "pairwise", known))
    for far in ("foo", "paint", "xyz", "retrain", "", "p"):
        assert "did you mean" not in str(unknown("command", far, known))
    assert len(str(unknown("command", "x" * 10**6, known))) < 300


def test_a_trained_network_of_absurd_length(tmp_path: Path) -> None:
    """Its file may say any T: tuples, groups of sequences and draws are counted before they are listed."""
    network = Transformer(TransformerConfig(dim=1, heads=(1,), head_dims=(2,), widths=(4,)))
    found = iflow.certify(network, "pairwise_max:D=1,d=1", 10**9, seconds=0)
    assert not found.holds
    assert "compares up to 1e+18 tuples" in str(found)
    with pytest.raises(InfoFlowError, match=r"groups of sequences of T=1000000000 tokens out of 2.*lower T"):
        iflow.certify(network, "sum_of_maxima:D=1,d=1", 10**9, seconds=0, vocabulary=[[0.1], [0.2]])
    network.header |= {"target": "sum_of_maxima:D=1,d=1", "T": 2}
    with pytest.raises(InfoFlowError, match=r"1000000000 draws .* lower draws or T"):
        iflow.trace(network, [[0.1], [0.2]], draws=10**9)
    for tokens in ([1, 2, 3], [["a"], [1]], [[1e999], [1]], [[1], [1, 2]], [[[[1]]]]):
        with pytest.raises(InfoFlowError, match=r"real numbers|finite numbers|rows of numbers"):
            iflow.trace(network, tokens)


def test_headers_of_absurd_length(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    path = iflow.build("min_pair:d=1", 4, 0.5).save(tmp_path / "a.safetensors")
    with safe_open(str(path), "pt") as file:
        said, tensors = json.loads(file.metadata()["infoflow"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for T in (100_000, 10**9):
        said["header"]["T"] = T
        save_file(tensors, str(path), {"infoflow": json.dumps(said)})
        with pytest.raises(InfoFlowError, match=r"memory, .* lower T"):
            iflow.refute(iflow.load(path), "min_pair:d=1", T, seconds=0.1)
        assert not iflow.certify(iflow.load(path), seconds=0).holds
