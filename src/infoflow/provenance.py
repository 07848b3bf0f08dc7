"""Where a number comes from: command, commit, versions, machine kind. Every recorded JSON carries this.

A store is filled by several calls, often on several machines, and read by others: each call that trains leaves its own
record in the folder `trained` of the store (`note`), and a table made from the store names them all (`noted`).
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from infoflow.errors import InfoFlowError
from infoflow.files import write_json
from infoflow.reading import json_of


def provenance(packages: tuple[str, ...] = ("numpy", "torch")) -> dict[str, Any]:
    """Where a number comes from: command, commit, versions, machine."""
    return {
        "command": _command(),
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
        "machine": machine_kind(),
    }


def note(store: Path) -> None:
    """Keep in the store that this call trained there; the same call on the same machine is one record."""
    made = provenance()
    name = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:12]
    write_json(store / "trained" / f"{name}.json", made)


def noted(store: Path) -> list[dict[str, Any]]:
    """The calls that trained there."""
    found = []
    for path in sorted((store / "trained").glob("[!.]*.json")):
        try:
            found.append(json_of(path))
        except InfoFlowError:
            raise InfoFlowError(f"expected the record of a call in {path}, could not read it; remove it.") from None
    return found


def _command() -> str:
    """The call as typed; an absolute path is written by its last part, for it names a machine and not a command."""
    script = Path(sys.argv[0]).name
    words = ["infoflow" if script in {"infoflow", "__main__.py"} else f"python {script}", *sys.argv[1:]]
    return " ".join(Path(word).name if word.startswith("/") else word for word in words)


def machine_kind() -> str:
    """Processor, cores and GPU, without the machine's name."""
    cores = os.cpu_count()
    kind = f"{platform.machine()}, {cores} cores"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        kind += f", {torch.cuda.get_device_name(0)}"
    return kind


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit named by INFOFLOW_COMMIT, for code that runs apart from its history, else that of the checkout."""
    if named := os.environ.get("INFOFLOW_COMMIT"):
        return named
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()
