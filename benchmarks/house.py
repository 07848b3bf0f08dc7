"""How large and how divided the house is: lines, files that a verb reaches, docstrings, long argument lists.

    python benchmarks/house.py                            print the measures of this checkout
    python benchmarks/house.py --commit 9079b93 before    of a commit, kept as "before" in benchmarks/results/house.json
    python benchmarks/house.py --keep now                 of this checkout, kept as "now"

A file is reached when a reached one imports it, at the top or inside a function, or names it in a string
(`"infoflow.train.fit"`, as the loader tables do). A package counts by its `__init__.py` where that has code. Lists that
name every entry of the house would reach everything: the tables of `infoflow/__init__.py` and `nn/files.py` and the
makers of the constructions are not followed; of the dispatcher `verbs.py` only the verb's own function is. Public is a
function, method or class that no name on its path hides with an underscore.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infoflow.files import write_json
from infoflow.provenance import provenance

ROOT = Path(__file__).parent.parent
VERBS = ("build", "fit")
LOADER_TABLES = {"infoflow", "infoflow.nn.files"}  # modules whose strings list the whole house
LISTS = {"infoflow.construct.makers"}  # imports every construction, one of which a call takes
DISPATCHER = "infoflow.verbs"
MODULE = re.compile(r"infoflow(\.[a-z_0-9]+)+")
MANY = 8  # arguments


def modules(source: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def reached(verb: str, start: str, known: dict[str, Path]) -> set[str]:
    """The modules that reading the verb from `start` leads to; empty packages are no reading."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += named(name, known, verb if name == DISPATCHER else None) - seen
    return {name for name in seen if known[name].read_text(encoding="utf-8").strip()}


def named(module: str, known: dict[str, Path], verb: str | None = None) -> set[str]:
    """What a module imports or names in a string, as modules of the package; of a dispatcher what its verb does."""
    names: set[str] = set()
    tree = ast.parse(known[module].read_text(encoding="utf-8"))
    if module in LISTS:
        return names
    if verb is not None:
        tree.body = [node for node in tree.body if _on_the_way(node, verb)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and module not in LOADER_TABLES:
            name = node.value.partition(":")[0]
            names |= {name} if MODULE.fullmatch(name) else set()
    return {name for name in names if name in known and name != "infoflow"}


def _on_the_way(node: ast.stmt, verb: str) -> bool:
    """Of a dispatcher: what is imported for all, the verb itself and its helpers; other verbs are other journeys."""
    if isinstance(node, ast.FunctionDef):
        return node.name.startswith("_") or node.name == verb
    return not isinstance(node, ast.If)  # types alone


def public(tree: ast.AST, hidden: bool = False) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes of a module and of its public classes; what stands inside a function is its own affair."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            private = hidden or node.name.startswith("_")
            if not private:
                yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node, private)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """All of them but self and cls."""
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in given)


def measures(source: Path) -> dict[str, Any]:
    known = modules(source)
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in known.items()}
    counts = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in known.items()}
    silent = [node for tree in trees.values() for node in public(tree) if ast.get_docstring(node) is None]
    verbs = {verb: sorted(reached(verb, _home(verb, known), known)) for verb in VERBS}
    return {
        "source lines": sum(counts.values()),
        "files": len(known),
        "longest file": max(counts.values()),
        **{f"files reached from {verb}": len(found) for verb, found in verbs.items()},
        "public functions without docstring": sum(not isinstance(node, ast.ClassDef) for node in silent),
        "public classes without docstring": sum(isinstance(node, ast.ClassDef) for node in silent),
        f"functions with {MANY} or more arguments": sum(
            arguments(node) >= MANY for tree in trees.values() for node in functions(tree)
        ),
        "lines by room": by_room(source, known, counts),
        "reached": verbs,
    }


def by_room(source: Path, known: dict[str, Path], counts: dict[str, int]) -> dict[str, int]:
    """Lines of each folder of the package; files of its own count as one room, the foundation."""
    found: dict[str, int] = {}
    for name, path in known.items():
        parts = path.relative_to(source).parts
        room = parts[0] if len(parts) > 1 else "foundation"
        found[room] = found.get(room, 0) + counts[name]
    return dict(sorted(found.items()))


def _home(verb: str, known: dict[str, Path]) -> str:
    """The module of a verb, from the table of public names."""
    for node in ast.walk(ast.parse(known["infoflow"].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == verb and isinstance(value, ast.Constant):
                    return str(value.value).partition(":")[0]
    raise SystemExit(f"house: expected the verb {verb} in the table of infoflow/__init__.py, found none.")


def beside(commit: str) -> dict[str, int]:
    """What stands beside the source at a commit: the bytes of recorded results, the lines that make the pages."""
    listed = git("ls-tree", "-r", "-l", "-z", commit, "results").decode().split("\0")
    pages = [name for name in git("ls-tree", "--name-only", commit, "docs/").decode().split() if name.endswith(".py")]
    return {
        "bytes of results": sum(int(line.split()[3]) for line in listed if line),
        "lines of docs/*.py": sum(len(git("show", f"{commit}:{name}").splitlines()) for name in pages),
    }


def git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True).stdout


def of_commit(commit: str) -> dict[str, Any]:
    packed = git("archive", commit, "src/infoflow")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        return measures(Path(folder) / "src" / "infoflow")


def main(words: list[str]) -> None:
    commit = words[1] if words[:1] == ["--commit"] else None
    found = of_commit(commit) if commit else measures(ROOT / "src" / "infoflow")
    found = {**found, **beside(commit or "HEAD")}
    for name, value in found.items():
        if not isinstance(value, dict):
            print(f"{value:>8}  {name}")
    for room, lines in found["lines by room"].items():
        print(f"{lines:>8}  lines in {room}")
    name = words[2] if commit and len(words) > 2 else words[1] if words[:1] == ["--keep"] else None
    if name:
        path = Path(__file__).parent / "results" / "house.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        about = {"commit": commit} if commit else {}
        write_json(path, {**kept, name: {**about, **found, "provenance": provenance(())}})


if __name__ == "__main__":
    main(sys.argv[1:])
