"""The rules of the house, read from the source: rooms import only from rooms above, `import infoflow` stays light."""

import ast
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import infoflow

SOURCE = Path(__file__).parent.parent / "src" / "infoflow"
BASE = ["apart", "errors", "arguments", "architecture", "cost", "files", "kernels"]
BASE += ["installation", "progress", "provenance", "reading"]
ROOMS = ["report", "targets", "certificates", "flow", "nn", "compiler", "construct", "verdicts", "refutations", "train"]
ROOMS += ["forecasts", "proofs", "probes", "lab", "book", "web"]
ORDER = (
    dict.fromkeys(BASE, 0) | {name: 1 + i for i, name in enumerate(ROOMS)} | {"verbs": 98, "commands": 99, "cli": 100}
)
LOADERS = SOURCE / "nn" / "files.py"  # its table names the loader of every kind of file, whatever room it is in
MODULE = re.compile(r"(infoflow(?:\.[a-z_0-9]+)+)(?::\w+)?")


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "infoflow":
                names |= {f"infoflow.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and path != LOADERS:
            found = MODULE.fullmatch(node.value)
            names |= {found.group(1)} if found else set()
    return names


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_room_imports_only_from_rooms_above(path: Path) -> None:
    room = room_of(path)
    if room in {"__init__", "__main__"}:
        return
    assert room in ORDER, f"{room} is not a room of the house"
    for name in imported(path):
        if name.startswith("infoflow."):
            other = name.split(".")[1]
            if other in ORDER:
                assert ORDER[other] <= ORDER[room], f"{path.relative_to(SOURCE)} imports {name} from below"


RUNNERS = {"eval", "exec", "compile", "__import__", "exec_module", "spec_from_file_location", "run_path", "run_module"}
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "runpy", "code"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_one_place_runs_a_file_and_only_commands_reach_it(path: Path) -> None:
    """A header, a store, a text or a request cannot run code, for what reads them has no way to."""
    own = SOURCE / "commands" / "own_code.py"
    names = imported(path)
    assert not PICKLES & {name.split(".")[0] for name in names}
    assert "infoflow.commands.own_code" not in names or path.is_relative_to(SOURCE / "commands")
    for call in (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        plain = call.func.id if isinstance(call.func, ast.Name) else ""
        whose = ast.unparse(call.func)
        if plain in RUNNERS or (method in RUNNERS - {"eval", "compile"}):
            assert path == own, f"{whose} in {path}"
        keys = {key.arg: ast.unparse(key.value) for key in call.keywords}
        if whose in ("np.load", "numpy.load"):
            assert keys.get("allow_pickle") == "False"
        if whose == "torch.load":
            assert keys.get("weights_only") == "True"
        if method == "from_pretrained":
            assert keys.get("trust_remote_code") == "False"


def test_no_verb_names_a_room() -> None:
    verbs = {"predict", "plan", "trace", "scale", "build", "certify", "refute", "fit", "probe", "load"}
    assert not verbs & {p.name for p in SOURCE.iterdir()}


HEAVY = ["torch", "scipy", "matplotlib", "flint", "ray", "transformers", "polars", "onnx", "triton", "click"]


@pytest.mark.parametrize(
    "module", ["infoflow", "infoflow.targets", "infoflow.flow", "infoflow.certificates", "infoflow.verdicts"]
)
def test_light_rooms_stay_light(module: str) -> None:
    code = f"import {module}, sys; print(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_verdicts_never_import_torch() -> None:
    code = (
        "import sys, infoflow as i\n"
        "i.predict('min_pair', 'heads=1 embed=6', T=8, weight_bound=None)\n"
        "i.predict('triangle_center', 'heads=2,2 embed=24', T=4)\n"
        "i.plan('triangle_center', T=8), i.scale('min_pair', 'heads=1 embed=6', [8])\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_help_never_imports_torch() -> None:
    code = (
        "import sys\nfrom infoflow.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert "predict" in done.stdout


def test_train_is_read_from_top_to_bottom() -> None:
    """Each file of the trainer imports only from those before it, inside functions, too; in the order of the design."""
    listed = (SOURCE.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    journey = listed[listed.index("## A journey: `fit`") : listed.index("## A journey: `reproduce`")]
    files = sorted((SOURCE / "train").glob("[a-z]*.py"), key=lambda path: journey.index(f"`{path.name}`"))
    order = [path.stem for path in files]
    for path in files:
        used = {name.split(".")[2] for name in imported(path) if name.startswith("infoflow.train.")}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "infoflow.train":
                used |= {alias.name for alias in node.names}
        assert all(order.index(name) < order.index(path.stem) for name in used), (path.stem, used)


def test_one_version_is_told_everywhere() -> None:
    root = SOURCE.parents[1]
    wanted = infoflow.__version__
    for name, form in (("pyproject.toml", f'version = "{wanted}"'), ("CITATION.cff", f"version: {wanted}")):
        assert form in (root / name).read_text(encoding="utf-8").splitlines()
    assert wanted in (root / "CHANGELOG.md").read_text(encoding="utf-8")


def test_hosted_pythons_are_those_we_say_we_run_on() -> None:
    root = SOURCE.parents[1]
    told = re.findall(r"Python :: (3\.\d+)", (root / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"python: {json.dumps(told)}" in (root / ".github/workflows/test.yml").read_text(encoding="utf-8")


def journeys() -> dict[str, list[Path]]:
    """The files of each journey in docs/design.md, in their order; those of `train/` are named without their room."""
    listed = (SOURCE.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    found = {}
    for part in listed.split("## A journey: ")[1:]:
        title, text = part.partition("\n## ")[0].split("\n", 1)
        names = dict.fromkeys(re.findall(r"`((?:\w+/)*\w+\.py)`", text))
        here = [SOURCE / name if (SOURCE / name).exists() else SOURCE / "train" / name for name in names]
        found[title] = here
    return found


def test_a_journey_goes_one_way() -> None:
    """A file imports, at its top, only from files of the journey named before it."""
    found = journeys()
    assert [title.split("`")[1] for title in found] == ["predict", "build", "fit", "reproduce"]
    for title, files in found.items():
        order = {
            ".".join(("infoflow", *path.relative_to(SOURCE).with_suffix("").parts)): i for i, path in enumerate(files)
        }
        for path, place in zip(files, order.values(), strict=True):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ImportFrom) and node.module:
                    used = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                    later = [name for name in used if order.get(name, -1) > place]
                    assert not later, f"{title}: {path.relative_to(SOURCE)} imports {later}, named after it"


@pytest.mark.parametrize("verb", ["build", "fit"])
def test_no_file_that_a_verb_reaches_is_left_out_of_its_journey(verb: str) -> None:
    """Those of the journey, of the ones before it, or of what all pass; indexes of rooms have nothing to read."""
    listed = (SOURCE.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    start, end = listed.index("## Four journeys"), listed.index(f"## A journey: `{verb}`")
    text = listed[start : listed.index("\n## ", end + 1)]
    named = {f"infoflow.{name[:-3].replace('/', '.')}" for name in re.findall(r"`((?:\w+/)*\w+\.py)`", text)}
    named |= {name.replace("infoflow.", "infoflow.train.", 1) for name in named}
    house: Any = runpy.run_path(str(SOURCE.parents[1] / "benchmarks" / "house.py"))
    known = house["modules"](SOURCE)
    reached = house["reached"](verb, house["_home"](verb, known), known)
    assert {name for name in reached if known[name].name != "__init__.py"} <= named
