"""The words an installation prints run as they stand; what a base install lacks is one sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = ["transformers", "polars", "ray", "onnx", "onnxruntime", "onnxscript", "flint", "starlette", "uvicorn"]
BARE = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None  # as if it were not installed
from infoflow.cli import main
main(sys.argv[1:])
"""


def bare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line on an install without any extra."""
    call = [sys.executable, "-c", BARE, *words]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    done = bare(folder, "build", "min_pair:d=2", "-T", "4", "--eps", "0.5", "--out", ".")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.safetensors"))


def test_a_missing_extra_is_one_sentence_with_the_install_line(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"architectures": ["BertModel"]}))
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    fit = ["fit", "min_pair:d=2", "heads=1 embed=2", "-T", "4", "--seeds", "1", "--steps", "1", "--engine", "ray"]
    for words, module, extra in ((["probe", "model"], "transformers", "probe"), (fit, "ray", "cluster")):
        done = bare(tmp_path, *words)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert f"needs {module}, which is not installed; run: " in done.stderr
        assert done.stderr.strip().endswith(f"-m pip install 'infoflow[{extra}]'")


def test_export_without_onnx_is_one_sentence() -> None:
    code = """
import sys
sys.modules["onnx"] = None
import infoflow as iflow
from infoflow.nn.export import to_onnx
try:
    to_onnx(iflow.build("min_pair:d=2", 4, 0.5), "x.onnx", 4)
except iflow.InfoFlowError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "the export to ONNX needs onnx" in done.stdout
    assert "infoflow[onnx]" in done.stdout


def test_certify_and_refute_work_without_any_extra(built: Path) -> None:
    done = bare(built.parent, "certify", built.name, "--seconds", "0.2")
    assert done.returncode == 0, done.stderr
    done = bare(built.parent, "refute", built.name, "--seconds", "3")
    assert done.returncode == 0, done.stderr
    assert "needs flint, which is not installed" in done.stdout or "no certificate" in done.stdout
    assert "the certificate agrees: its error bound 0.2" in done.stdout


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """An installed `infoflow` in the bin folder of an environment that is not active."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "activate").write_text("")
    script = folder / "infoflow"
    script.write_text(f"#!{sys.executable}\nfrom infoflow.cli import main\nmain()\n")
    script.chmod(0o755)
    return script


def called(script: Path, path: str, *words: str) -> str:
    """What is printed, called from the folder of the environment as `.venv/bin/infoflow`."""
    folder = script.parents[2]
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        [str(script.relative_to(folder)), *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_commands_are_printed_so_that_they_run(script: Path) -> None:
    outside, inside = "/usr/bin:/bin", f"{script.parent}:/usr/bin:/bin"
    for words, shown in (
        (("reproduce",), "see {} reproduce --list"),
        (("predict", "--nothing"), "try: {} predict --help"),
        (("predict", "--help"), "  {} predict pairwise_max:D=4,d=4 heads=4,4 -T 64"),
        (("build", "pairwise_max"), "for example {} build pairwise_max:D=4,d=4 -T 64 --eps 0.01"),
    ):
        assert shown.format(".venv/bin/infoflow") in called(script, outside, *words)
        printed = called(script, inside, *words)
        assert shown.format("infoflow") in printed
        assert ".venv" not in printed


def test_how_to_activate(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from infoflow import installation

    monkeypatch.chdir(script.parents[2])
    monkeypatch.setattr(sys, "argv", [".venv/bin/infoflow", "demo"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert installation.activation() == "source .venv/bin/activate"
    assert installation.runnable("see `infoflow plan x`, infoflow/figures") == (
        "see `.venv/bin/infoflow plan x`, infoflow/figures"
    )
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    assert installation.activation() is None
