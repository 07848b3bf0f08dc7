"""What fails under a sweep: flipped bytes, numbers that cannot be, a full disk, SIGTERM. Nothing is lost in silence."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.nn import files
from infoflow.nn.files import load
from infoflow.targets import pairwise_max
from infoflow.train import checkpoint, loop
from infoflow.train.fit import Recipe, Run, Store, fit_many
from infoflow.train.run import key_of
from infoflow.train.store import checksum, tensor_checksum

CPU = torch.device("cpu")
RECIPE = Recipe(samples=16, validation=8, batch=4, epochs=4, dtype="float64")
RUNS = [Run(pairwise_max(D=1, d=2, seed=0), Architecture((1, 1), (2, 2), 3), 3, seed, RECIPE) for seed in range(2)]


def saved(folder: Path, *steps: int) -> Path:
    """Checkpoints after these steps, the last one current."""
    state = loop.start(RUNS, CPU, None)
    for step in steps:
        loop.train(state, stop=lambda: state.step == step)  # noqa: B023  (used before the loop goes on)
        path = checkpoint.save(folder, state)
    return path


def rewritten(path: Path, change: Callable[[dict[str, torch.Tensor], dict[str, Any]], None]) -> None:
    """Changed by somebody who knows how the checksum is made."""
    _, tensors, header = files.read(path)
    del header["checksum"]
    change(tensors, header)
    files.write(path, "checkpoint", tensors, {**header, "checksum": tensor_checksum(tensors, header)})


def numbers(store: Path | None = None) -> list[Any]:
    return [(result.status, result.curve) for result in fit_many(RUNS, store) if result is not None]


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_a_flipped_byte_is_named_and_the_one_before_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: float
) -> None:
    Store(tmp_path).prepare()
    path = saved(tmp_path / "checkpoints", 5, 9)
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 0x10
    path.write_bytes(data)
    (found,) = checkpoint.find(tmp_path / "checkpoints", {RUNS[0].key})
    assert found.step == 5
    said = capsys.readouterr().err
    assert f"the checkpoint {path} is damaged" in said
    assert said.count("\n") == 1
    assert path.with_name(path.name + checkpoint.DAMAGED).read_bytes() == data  # set aside, not lost
    assert numbers(tmp_path) == numbers()


def at_the_end(tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> None:
    tensors["step"].fill_(16)


def beyond(tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> None:
    tensors["step"].fill_(10**6)


def not_numbers(tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> None:
    tensors["weights"].fill_(torch.nan)


def too_good(tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> None:
    tensors["best"].fill_(-torch.inf)


def short_curve(tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> None:
    header["steps"] = header["steps"][:-1]
    tensors["curve nmse"] = tensors["curve nmse"][:-1].clone()
    tensors["best"].copy_(tensors["curve nmse"].amin(0))


def told(**header: Any) -> Callable[[dict[str, torch.Tensor], dict[str, Any]], None]:
    """The header with these values."""
    return lambda tensors, found: found.update(header)


def made(name: str, value: torch.Tensor | torch.dtype | float) -> Callable[[dict[str, torch.Tensor], Any], None]:
    """One tensor in another type, of another value, or another one."""

    def change(tensors: dict[str, torch.Tensor], header: Any) -> None:
        new = value if isinstance(value, torch.Tensor) else tensors[name]
        tensors[name] = new.to(value) if isinstance(value, torch.dtype) else new
        if isinstance(value, (int, float)):
            tensors[name] = torch.full_like(new, value)

    return change


FORGED = [told(seconds=10**400), told(tried=[[10**400]] * 2), made("step", torch.tensor([torch.nan])),
          made("step", torch.tensor([1j])), made("best", torch.int64), made("best", torch.float8_e4m3fn),
          made("weights", torch.float8_e4m3fn), made("curve nmse", torch.complex64), made("weights", torch.zeros(2, 0)),
          made("alive", torch.zeros(0, dtype=torch.bool)), made("rate", torch.nan), made("rate", 1e9),
          made("first", torch.nan), made("second", -1.0), made("diverged_at", 10)]  # fmt: skip


@pytest.mark.parametrize("change", [at_the_end, beyond, not_numbers, too_good, short_curve, *FORGED])
def test_a_state_that_training_cannot_have_left_is_not_taken_up(tmp_path: Path, change: Any) -> None:
    Store(tmp_path).prepare()
    rewritten(saved(tmp_path / "checkpoints", 9), change)
    assert numbers(tmp_path) == numbers()


@pytest.mark.parametrize("change", [{"identity": {}}, {"best": 1e-9}, {"curve": [0.0] * 4}, {"checksum": "0" * 24}])
def test_a_result_that_changed_is_one_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    fit_many(RUNS[:1], tmp_path)
    path = tmp_path / "runs" / f"{RUNS[0].key}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InfoFlowError, match="remove the file to train it again"):
        fit_many(RUNS[:1], tmp_path)


CHANGES: list[dict[str, Any]] = [{"best": 10**400}, {"measure": 5}, {"measure": "\x1b[2J"}, {"diverged_at": "x"},
                                 {"metrics": {"\x1b": [0.0] * 4}}, {"steps": 10**400}, {"rollbacks": -1},
                                 {"curve_steps": {"first": 10**400, "every": 1}}]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_result_of_other_values_is_one_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    """Also where somebody who knows how the checksum is made wrote it anew."""
    fit_many(RUNS[:1], tmp_path)
    path = tmp_path / "runs" / f"{RUNS[0].key}.json"
    payload = json.loads(path.read_text()) | change
    del payload["checksum"]
    path.write_text(json.dumps(payload | {"checksum": checksum(payload)}))
    with pytest.raises(InfoFlowError, match=r"their types.* remove the file to train it again"):
        fit_many(RUNS[:1], tmp_path)


ESCAPE = "\x1b[2J"
IDENTITIES: list[Any] = [{}, {"seed": "x"}, {"arch": ESCAPE}, {"arch": 7}, {"target": ESCAPE}, {"task": 5}, {"T": "\n"}]


@pytest.mark.parametrize("change", IDENTITIES)
def test_a_store_of_others_holds_runs_or_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """A result under the key of an identity that no run has: whatever is made of the store would end in a KeyError."""
    fit_many(RUNS[:1], tmp_path)
    payload = json.loads((tmp_path / "runs" / f"{RUNS[0].key}.json").read_text())
    del payload["checksum"]
    payload["identity"] = payload["identity"] | change if change else {}
    payload["key"] = key_of(payload["identity"])
    path = tmp_path / "runs" / f"{payload['key']}.json"
    path.write_text(json.dumps(payload | {"checksum": checksum(payload)}))
    with pytest.raises(InfoFlowError, match="their types"):
        Store(tmp_path).results()


def test_the_name_of_a_damaged_checkpoint_is_obeyed_by_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "\x1b[2J\n.safetensors").write_bytes(b"x")
    checkpoint.find(tmp_path, {RUNS[0].key})
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "\x1b" not in said


def test_an_identity_is_that_of_its_key(tmp_path: Path) -> None:
    """Also where somebody who knows how the checksum is made wrote it anew; a result without one is none."""
    fit_many(RUNS[:1], tmp_path)
    path = tmp_path / "runs" / f"{RUNS[0].key}.json"
    payload = json.loads(path.read_text())
    del payload["checksum"]
    path.write_text(json.dumps(payload))
    with pytest.raises(InfoFlowError, match="and checksum"):
        Store(tmp_path).get(RUNS[0].key)
    payload["identity"]["seed"] = 1
    path.write_text(json.dumps(payload | {"checksum": checksum(payload)}))
    with pytest.raises(InfoFlowError, match="identity is that of another"):
        Store(tmp_path).get(RUNS[0].key)


def test_weights_that_changed_are_one_sentence(tmp_path: Path) -> None:
    (result,) = fit_many(RUNS[:1], tmp_path, keep_weights=True)
    assert result is not None
    assert result.network().header["run"]["seed"] == 0
    path = tmp_path / "weights" / f"{RUNS[0].key}.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(InfoFlowError, match=rf"{path} .*checksum differs; remove that file"):
        result.network()
    network = load(path)
    del network.header["checksum"]
    network.save(path, **network.header)
    with pytest.raises(InfoFlowError, match="their checksum differs"):
        result.network()


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_sigterm_while_the_call_is_noted_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if target.parent.name == "trained":
            signal.raise_signal(signal.SIGTERM)
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with pytest.raises(SystemExit, match="143"):
        fit_many(RUNS[:1], tmp_path)
    assert not list(tmp_path.rglob(".*"))
    assert Store(tmp_path).get(RUNS[0].key) is not None


SWEEP = [sys.executable, "-m", "infoflow", "fit", "pairwise_max:D=1,d=2", "heads=1,1 embed=2,2 width=3", "-T", "3"]
SWEEP += ["--seeds", "2", "--samples", "16", "--validation", "8", "--batch", "4", "--json", "--epochs"]


def test_sigterm_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    command = [*SWEEP, "3000", "--store", str(tmp_path / "store")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (tmp_path / "store" / "store.json").exists():
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[1].splitlines()
    assert process.returncode == 143
    assert said[-1] == f"infoflow: stopped by SIGTERM; the same call goes on from {tmp_path / 'store'}."
    assert [line for line in said[:-1] if "training will take about" not in line] == []  # said on a busy machine
    assert list((tmp_path / "store" / "checkpoints").glob("*.safetensors"))


FULL = """
import json, resource, sys
from infoflow.architecture import Architecture
from infoflow.errors import JobError
from infoflow.targets import pairwise_max
from infoflow.train import plan
from infoflow.train.fit import Recipe, Run, fit_many
plan.SAVE_EVERY = 0.0  # a checkpoint after every step
store, largest = sys.argv[1], int(sys.argv[2])
recipe = Recipe(samples=16, validation=8, batch=4, epochs=4, dtype="float64")
runs = [Run(pairwise_max(D=1, d=2, seed=0), Architecture((1, 1), (2, 2), 3), 3, seed, recipe) for seed in range(2)]
if largest:
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
try:
    print(json.dumps([result.curve for result in fit_many(runs, store, keep_weights=True)]))
except JobError as error:
    sys.exit(str(error))
"""


def test_a_disk_that_takes_no_more_is_one_sentence(tmp_path: Path) -> None:
    """Files of at most 60 and 900 bytes: the marker of the store fits, then a result does, a checkpoint never."""
    script = tmp_path / "full.py"
    script.write_text(FULL)

    def call(largest: int) -> Any:
        command = [sys.executable, str(script), str(tmp_path / "store"), str(largest)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    for largest in (60, 900):
        full = call(largest)
        assert full.returncode == 1
        assert full.stderr.count("\n") == 1
        assert "free some space and call again" in full.stderr
        assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.name != "store.json"]
    again = call(0)
    assert json.loads(again.stdout) == [curve for _, curve in numbers()]
