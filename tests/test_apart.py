"""The current folder may be a stranger's: its modules are not imported, its matplotlibrc is not read."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infoflow import apart
from infoflow.web.lanes import Lane

SOURCE = Path(apart.__file__).parent
MODULES = ["infoflow", "numpy", "torch", "multiprocessing", "json", "struct", "click", "sympy", "signal"]
MODULES += ["tempfile", "pickle", "asyncio", "matplotlib", "cycler"]


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A folder of modules that end the Python that imports them, and settings for matplotlib."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text("import os\nos._exit(99)\n")
    (folder / "matplotlibrc").write_text("text.usetex: True\nlines.linewidth: 77\n")
    return folder


def run(script: str, tmp_path: Path, stranger: Path) -> str:
    """What the script prints, called there as an installed command is: by its path."""
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, str(path)], cwd=stranger, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_modules_do_end_a_python_that_looks_there(stranger: Path) -> None:
    assert subprocess.run([sys.executable, "-c", "import multiprocessing"], cwd=stranger).returncode == 99


CHILD = """
import os, sys
from infoflow.apart import processes
if __name__ == "__main__":
    with processes() as spawn:
        child = spawn.Process(target=print, args=("ran",), daemon=True)
        child.start()
        child.join()
    assert "PYTHONSAFEPATH" not in os.environ
    sys.exit(child.exitcode)
"""


def test_a_process_of_ours_imports_nothing_there(stranger: Path, tmp_path: Path) -> None:
    assert run(CHILD, tmp_path, stranger) == "ran\n"


POOL = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from infoflow.apart import end_with_parent, processes
if __name__ == "__main__":
    with processes() as spawn, ProcessPoolExecutor(1, spawn, end_with_parent) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        time.sleep(600)
"""


def test_a_worker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """What the killed process printed to is closed only when the worker is gone, too."""
    path = tmp_path / "script.py"
    path.write_text(POOL)
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        assert int(caller.stdout.readline()) != caller.pid
        caller.kill()
        assert caller.communicate(timeout=120)[0] == ""


DRAWN = """
from infoflow.probes.measured_figures import style
with style.settings():
    import matplotlib
print(matplotlib.rcParams["text.usetex"], matplotlib.rcParamsOrig["lines.linewidth"])
"""


def test_its_settings_for_figures_are_not_read(stranger: Path, tmp_path: Path) -> None:
    assert run(DRAWN, tmp_path, stranger) == "False 1.5\n"


def test_a_worker_of_the_explorer_imports_nothing_there(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, finished: Any
) -> None:
    monkeypatch.chdir(stranger)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)

    async def asked() -> object:
        lane = Lane("quick", 1, stranger)
        try:
            return await lane.ask("targets", {}, 60.0)
        finally:
            await lane.close()

    assert finished(asked())


def test_python_m_forgets_the_folder(tmp_path: Path) -> None:
    """But for an `infoflow` and parts of the standard library there, which Python takes before any code of ours."""
    for name in ("click", "numpy", "torch", "sympy"):
        (tmp_path / f"{name}.py").write_text("import os\nos._exit(99)\n")
    call = [sys.executable, "-m", "infoflow", "predict", "min_pair:d=1", "heads=1,1 embed=4", "-T", "4"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    assert subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, timeout=120).returncode == 0


def test_folder_goes_away_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    with apart.folder():
        assert Path.cwd() == apart.OWN
    assert Path.cwd() == tmp_path
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # a notebook: what lies there is the caller's own
    with apart.folder():
        assert Path.cwd() == tmp_path
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with apart.folder():
        pass


def test_nothing_else_starts_a_python() -> None:
    """Every new Python goes through `apart.processes`, or is told -P; Ray is started away from the folder."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "apart.py":
            assert "get_context" not in text, path
            assert 'sys.executable, "-m"' not in text, path
            assert 'sys.executable, "-c"' not in text, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "ray.init":
                line = text.splitlines()[node.lineno - 2]
                assert "with apart.folder()" in line, path
