"""A disk that is full: every writer ends in one sentence and leaves nothing half-written; what was there before stays.

A limit on the size of a file stands in for the disk: the write fails in the middle, as it does when space runs out.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import infoflow as iflow
from infoflow.files import write_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
SCRIPT = """
import json, resource, signal, sys
from pathlib import Path
import torch
import infoflow as iflow
from infoflow import files
from infoflow.commands.options import encode
from infoflow.errors import JobError
from infoflow.nn import Transformer, TransformerConfig, files as networks
from infoflow.nn.export import to_onnx
from infoflow.probes.record import record
from infoflow.provenance import note
from infoflow.report import html, style

out = Path(sys.argv[1])
network = Transformer(TransformerConfig(dim=2, heads=(2,), head_dims=(4,), widths=(64,)))
drawing, axes = style.figure()
axes.plot(range(100))
built = iflow.build("min_pair:d=1", 4, 0.5)
recording = record(network, torch.zeros(4, 16, 2))
writers = {
    "text": lambda: files.write_text(out / "text", "x" * 10000),
    "json": lambda: files.write_json(out / "json", list(range(10000))),
    "svg": lambda: style.save(drawing, out / "figure", ("svg",)),
    "png": lambda: style.save(drawing, out / "figure", ("png",)),
    "pdf": lambda: style.save(drawing, out / "figure", ("pdf",)),
    "html": lambda: html.write(out / "page.html", "x", "y", [html.Section("z").text("w" * 10000)]),
    "safetensors": lambda: networks.write(out / "n", "transformer", {"w": torch.zeros(10000)}, {}),
    "network": lambda: network.save(out / "network.safetensors"),
    "built": lambda: built.save(out / "built.safetensors"),
    "recording": lambda: recording.save(out / "recording"),
    "onnx": lambda: to_onnx(network, out / "network.onnx", 3),
}
Path(out / "text").write_text("before")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
said = {}
for name, write in writers.items():
    try:
        write()
        said[name] = "wrote"
    except JobError as error:
        said[name] = str(error)
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
left = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
print(json.dumps([said, left, Path(out / "text").read_text()]))
"""


def test_every_writer_on_a_full_disk(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said, left, before = json.loads(done.stdout)
    assert {name: words for name, words in said.items() if "free some space and call again" not in words} == {}
    assert (left, before) == (["text"], "before")


def test_a_full_disk_is_found_before_the_work(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from infoflow.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\n"
        "main(['demo', '--out', sys.argv[1]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("infoflow: expected a folder in which files can be made")
    assert not list(tmp_path.iterdir())


def test_a_signal_while_a_file_is_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come when the temporary file is there and nobody knows its name yet."""
    close = os.close

    def stopped(handle: int) -> None:
        close(handle)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "a.json", "{}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_a_file_is_as_private_as_its_user_makes_files(tmp_path: Path, umask: int, mode: int) -> None:
    """Text and saved networks: those of a store that several people share are read by all of them."""
    network = iflow.build(iflow.targets.sum_of_maxima(D=1, d=1), T=2, eps=0.5)
    before = os.umask(umask)
    try:
        for path in (write_text(tmp_path / "a.json", "{}"), network.save(tmp_path / "a.safetensors")):
            assert path.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
