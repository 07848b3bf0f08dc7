"""Which small mistakes in the code that proves things would no test notice?

    python benchmarks/mutants.py [--mutants 600] [--seed 0] [--jobs 2] [--seconds 120] [--most N] [--known-calls]
    python benchmarks/mutants.py --again                       the test that killed a mutant on today's code, for all
    python benchmarks/mutants.py --try KEY=FILE[,FILE]...      these tests on these mutants, recorded where they kill
    python benchmarks/mutants.py --explain KEY "why no test can tell it from the code"

Writes benchmarks/results/mutants.json after every mutant; a later call goes on where this one stopped, and the record
is that of the first line, whichever calls filled it. The draw orders all mutants by a hash of seed and change, so an
edit of one function leaves the others where they are in the order, with their results. A survivor is tried again once a
test file that concerns it has changed, or with more --seconds; with --again, a mutant that its test no longer kills
counts as not yet run. Reasons of survivors are kept in mutants_explained.json. --most ends the call after so many
mutants; --known-calls takes the calls of an earlier pass although test files have changed.

A first pass runs each test file once and notes which functions every test calls and how much CPU time it takes (kept
in out/mutants/calls.json). A mutant is written into a copy of the package in a temporary folder. A fork of a process
that has torch and pytest in memory then runs the tests that call the mutated function, then the others of their files,
fastest files first, up to --seconds of measured CPU time. Killed is one with a failing test, a crash, a limit of CPU
time (ten times what the tests take) or of memory.
"""

import argparse
import compileall
import contextlib
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from _mutations import Mutant, mutants
from infoflow.files import write_json
from infoflow.progress import Progress
from infoflow.provenance import provenance

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "infoflow"
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
EXPLAINED = ROOT / "benchmarks" / "mutants_explained.json"  # key -> why no test can tell the mutant from the code
CALLS = ROOT / "out" / "mutants" / "calls.json"
PROVING = ("certificates/*.py", "compiler/verification*.py", "compiler/certification*.py",
           "verdicts/bounds.py", "verdicts/pigeonhole.py", "refutations/ball*.py",
           "refutations/proof.py", "book/statements/proposition_two.py", "refutations/twins.py",
           "construct/rank_one/certificate.py", "construct/rank_one/context_map.py",
           "construct/rank_one/memorize.py")  # fmt: skip
TESTED = (
    "certificates",
    "compiler",
    "construct",
    "book",
    "refutations",
    "rank_one",
    "verdicts",
    "nn",
    "softmax_attention",
)
WARM = ("torch", "scipy.optimize", "scipy.special", "hypothesis", "safetensors.torch", "flint", "click", "jaxtyping")
DRAW = {"mutants": 600, "seed": 0}  # what the record is of, unless another draw is asked for
MEMORY = 8 << 30  # bytes of a mutant's heap
TO_BE_KILLED = "to be killed"
Calls = dict[str, dict[str, Any]]  # test file -> its digest, and of every test the seconds and the functions it calls


class Tracer:
    """A pytest plugin: the functions of the package that each test calls, and its CPU time."""

    def __init__(self) -> None:
        self.called: set[CodeType] = set()
        self.tests: dict[str, dict[str, Any]] = {}

    def enter(self, frame: FrameType, event: str, argument: object) -> None:
        self.called.add(frame.f_code)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.called = set()
        start = time.process_time()
        sys.settrace(self.enter)
        yield
        sys.settrace(None)
        inside = [code for code in self.called if code.co_filename.startswith(f"{PACKAGE}/")]
        calls = sorted({f"{Path(c.co_filename).relative_to(PACKAGE)}:{plain_name(c.co_qualname)}" for c in inside})
        self.tests[item.nodeid] = {"seconds": time.process_time() - start, "calls": calls}


class Chosen:
    """A pytest plugin: only the chosen tests, in their order; the first that fails is written to a file."""

    def __init__(self, tests: list[str], failed: Path) -> None:
        self.order, self.failed = {name: i for i, name in enumerate(tests)}, failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed.exists():
            self.failed.write_text(report.nodeid, encoding="utf-8")


class Failing(Chosen):
    """The same with every test of its files."""

    def __init__(self, failed: Path) -> None:
        super().__init__([], failed)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Nothing is left out."""


def plain_name(qualified: str) -> str:
    """`f.<locals>.g.<listcomp>` is written g of f: `f.g`."""
    return ".".join(part for part in qualified.split(".") if not part.startswith("<"))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def forked(work: Callable[[], int], log: Path) -> int:
    """Run the work in a fork, in a process group of its own; returns its pid."""
    if pid := os.fork():
        return pid
    code = 70
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def finished(pid: int, status: int) -> int:
    """The exit code, negative for a signal; what the fork left running ends with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def run_tests(package: Path, folder: Path, files: Iterable[str], plugin: object) -> int:
    """pytest over some files, with the package imported from `package`."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "infoflow"]:
        del sys.modules[name]
    sys.path.insert(0, str(package.parent))
    os.environ |= {"PYTHONPATH": str(package.parent), "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
    os.chdir(ROOT)
    own = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--basetemp={folder / 'tmp'}"]
    own += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*own, *files], plugins=[plugin]))


def trace_calls(folder: Path, jobs: int) -> Calls:
    """What every test calls; files that have not changed since the last call of this script are not run again."""
    known: Calls = json.loads(CALLS.read_text(encoding="utf-8")) if CALLS.is_file() else {}
    files = [path for room in TESTED for path in sorted((ROOT / "tests" / room).rglob("test_*.py"))]
    digests = {str(path.relative_to(ROOT)): digest(path) for path in files}
    known = {name: known[name] for name in digests if name in known and known[name]["digest"] == digests[name]}
    waiting = [name for name in digests if name not in known][::-1]
    running: dict[int, tuple[str, Path]] = {}
    with Progress("test files", len(digests), before=len(known)) as bar:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop()
                own = folder / Path(name).stem
                own.mkdir()
                running[forked(lambda: trace_file(name, own), own / "log.txt")] = name, own  # noqa: B023 (a fork)
            pid, status = os.wait()
            name, own = running.pop(pid)
            if code := finished(pid, status):
                log = (own / "log.txt").read_text(encoding="utf-8")
                raise SystemExit(f"expected {name} to pass before any mutant, it ended with {code}:\n{log[-3000:]}")
            tests = json.loads((own / "calls.json").read_text(encoding="utf-8"))
            known[name] = {"digest": digests[name], "tests": tests}
            write_json(CALLS, known)
            bar.update(len(known), name)
    return known


def trace_file(name: str, folder: Path) -> int:
    tracer = Tracer()
    code = run_tests(PACKAGE, folder, [name], tracer)
    write_json(folder / "calls.json", tracer.tests)
    return code


def concerned(mutant: Mutant, calls: Calls, seconds: float) -> tuple[list[str], float, bool]:
    """The tests to run on a mutant, the CPU time they took, and whether these are all that concern it.

    Tests that call the function come first; then the rest of their files, for a cache or a fixture may have made the
    call for them. What runs at import concerns every test that calls anything of the module.
    """
    exact, module = f"{mutant.module}:{mutant.function}", f"{mutant.module}:"
    callers = callers_of(calls, lambda name: name == exact) or callers_of(calls, lambda name: name.startswith(module))
    time_of = {test: run["seconds"] for file in calls.values() for test, run in file["tests"].items()}
    direct = sorted(callers, key=lambda file: sum(time_of[test] for test in callers[file]))
    order = [test for file in direct for test in sorted(callers[file], key=time_of.__getitem__)]
    others = [test for file in direct for test in calls[file]["tests"] if test not in callers[file]]
    order += sorted(others, key=time_of.__getitem__)
    kept: list[str] = []
    spent = 0.0
    for test in order:
        if spent + time_of[test] <= seconds:
            kept.append(test)
            spent += time_of[test]
    return kept, spent, len(kept) == len(order)


def callers_of(calls: Calls, asked: Callable[[str], bool]) -> dict[str, set[str]]:
    found = {file: {t for t, run in noted["tests"].items() if any(map(asked, run["calls"]))}
             for file, noted in calls.items()}  # fmt: skip
    return {file: tests for file, tests in found.items() if tests}


class Slot:
    """A copy of the package that holds one mutant at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.package = folder, folder / "src" / "infoflow"
        shutil.copytree(PACKAGE, self.package)
        compileall.compile_dir(self.package, quiet=2)
        self.failed = folder / "failed.txt"
        self.mutant: Mutant | None = None
        self.original = b""

    def start(self, mutant: Mutant, tests: list[str], seconds: float) -> int:
        self.mutant = mutant
        path = self.package / mutant.module
        for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            cached.unlink()  # else one of equal size and second would stand for the mutant
        self.original = path.read_bytes()
        path.write_text(mutant.source, encoding="utf-8")
        self.failed.unlink(missing_ok=True)

        def work() -> int:
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            limit = 20 + int(10 * seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            signal.alarm(60 + 20 * limit)  # one that sleeps
            files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
            plugin = Chosen(tests, self.failed) if any("::" in test for test in tests) else Failing(self.failed)
            return run_tests(self.package, self.folder, files, plugin)

        return forked(work, self.folder / "log.txt")

    def end(self, code: int, gone: bool = False) -> dict[str, Any]:
        """What came out, and the file as it was; `gone`: a test that is there no longer kills nothing."""
        assert self.mutant is not None
        (self.package / self.mutant.module).write_bytes(self.original)
        log = (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        if gone and code in (4, 5):  # usage error, no test collected
            return {"killed": False}
        if code in (4, 5, 70):
            raise SystemExit(f"expected tests to run on {self.mutant.key}, pytest ended with {code}:\n{log[-3000:]}")
        by = self.failed.read_text(encoding="utf-8") if self.failed.is_file() else f"exit {code}"
        return {"killed": code != 0, **({"by": by} if code else {})}


def drawn(seed: int) -> list[Mutant]:
    """All mutants in the order of a hash of seed and key."""
    paths = sorted({path for pattern in PROVING for path in PACKAGE.glob(pattern)})
    found = [m for p in paths for m in mutants(str(p.relative_to(PACKAGE)), p.read_text(encoding="utf-8"))]
    return sorted(found, key=lambda m: hashlib.sha256(f"{seed}:{m.key}".encode()).digest())


def settled(before: dict[str, Any] | None, tests: str, seconds: float) -> bool:
    """Whether an earlier result still stands: killed, explained, or survived these very tests for as long."""
    if before is None:
        return False
    explained = before.get("reason", TO_BE_KILLED) != TO_BE_KILLED
    return before["killed"] or explained or (before["tests"] == tests and (before["all"] or before["limit"] >= seconds))


def described(mutant: Mutant) -> dict[str, Any]:
    shown = {name: value for name, value in asdict(mutant).items() if name not in ("source", "number")}
    return {"key": mutant.key, **shown}


def survey(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    known, everything = recorded(options.seed), drawn(options.seed)
    order = everything[: options.mutants]
    if all(settled(known.get(m.key), "", float("inf")) for m in order):  # killed or explained: no test is asked for
        write_record(options, everything, known)
        return json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in WARM:
        importlib.import_module(name)
    calls = json.loads(CALLS.read_text(encoding="utf-8")) if options.known_calls else trace_calls(folder, options.jobs)
    digests = hashlib.sha256(json.dumps({f: calls[f]["digest"] for f in sorted(calls)}).encode()).hexdigest()[:12]
    waiting = [m for m in order if not settled(known.get(m.key), digests, options.seconds)][: options.most][::-1]
    free = [Slot(folder / str(i)) for i in range(options.jobs)]
    running: dict[int, tuple[Slot, dict[str, Any]]] = {}

    with Progress("mutants", len(order), before=len(order) - len(waiting)) as bar:
        while waiting or running:
            while free and waiting:
                mutant, slot = waiting.pop(), free.pop()
                tests, spent, whole = concerned(mutant, calls, options.seconds)
                noted = {"key": mutant.key, "tests": digests, "all": whole, "limit": options.seconds}
                running[slot.start(mutant, tests, spent)] = slot, noted
            pid, status = os.wait()
            slot, noted = running.pop(pid)
            noted |= slot.end(finished(pid, status))
            known[noted["key"]] = {"key": noted["key"], "killed": True, "by": noted["by"]} if noted["killed"] else (
                noted | {"reason": TO_BE_KILLED})  # fmt: skip
            free.append(slot)
            write_record(options, everything, known)
            bar.update(len(order) - len(waiting) - len(running), f"{len(survivors(known.values()))} survive")
    write_record(options, everything, known)
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def recorded(seed: int) -> dict[str, dict[str, Any]]:
    """What earlier calls found, by key."""
    record: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    return {each["key"]: each for each in record.get("mutants", []) if record.get("seed") == seed}


def tried(pairs: Iterable[tuple[str, list[str]]], options: argparse.Namespace) -> None:
    """Tests on one mutant, pair by pair; a kill is recorded, a survivor keeps what is known of it, but no kill."""
    for name in WARM:
        importlib.import_module(name)
    everything = {mutant.key: mutant for mutant in drawn(options.seed)}
    waiting = [(everything[key], tests) for key, tests in pairs if key in everything]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Progress("mutants", len(waiting)) as bar:
        slot = Slot(Path(folder))
        for done, (mutant, tests) in enumerate(waiting):
            pid, status = os.waitpid(slot.start(mutant, tests, 60.0), 0)
            found = slot.end(finished(pid, status), gone=options.again)
            known = recorded(options.seed)
            lived = known.get(mutant.key, {"killed": True})
            if found["killed"]:
                known[mutant.key] = {"key": mutant.key, **found}
            elif lived["killed"]:
                known.pop(mutant.key, None)
            write_record(options, list(everything.values()), known)
            bar.update(done + 1, f"{mutant.key} {found.get('by', 'lives')}")


def killers(seed: int) -> list[tuple[str, list[str]]]:
    """Every killed mutant with the test that killed it, but for those that a limit of time or memory killed."""
    return [(each["key"], [each["by"]]) for each in recorded(seed).values() if each["killed"] and "::" in each["by"]]


def write_record(options: argparse.Namespace, everything: list[Mutant], known: dict[str, dict[str, Any]]) -> None:
    """What is known of the drawn mutants, in the order of the draw, under the names that their code has today."""
    why: dict[str, str] = json.loads(EXPLAINED.read_text(encoding="utf-8"))
    done = [known[m.key] | described(m) for m in everything[: options.mutants] if m.key in known]
    for each in survivors(done):
        each["reason"] = why.get(each["key"], TO_BE_KILLED)
    made = provenance(("pytest", "torch"))
    asked = [f" --{name} {getattr(options, name)}" for name, usual in DRAW.items() if getattr(options, name) != usual]
    made["command"] = f"python mutants.py{''.join(asked)}"  # of all the calls that filled the record
    head = {"benchmark": "mutants", "seed": options.seed, "of": len(everything)}
    write_json(RESULTS, head | summary(done) | {"mutants": done, "provenance": made})


def survivors(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in found if not each["killed"]]


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of all and by module; the equivalent ones are those among the explained that compute the same."""

    def counts(some: list[dict[str, Any]]) -> dict[str, int]:
        reasons = [each["reason"] for each in survivors(some)]
        explained = [reason for reason in reasons if reason != TO_BE_KILLED]
        equivalent = sum(reason.startswith("equivalent") for reason in explained)
        killed = len(some) - len(reasons)
        return {"run": len(some), "killed": killed, "explained": len(explained), "equivalent": equivalent}

    of = {module: [each for each in found if each["module"] == module] for module in {each["module"] for each in found}}
    whole = counts(found)
    left = whole["run"] - whole["killed"] - whole["explained"]
    return whole | {"to_be_killed": left, "modules": {module: counts(of[module]) for module in sorted(of)}}


def explain(key: str, reason: str, options: argparse.Namespace) -> None:
    if key not in {each["key"] for each in survivors(recorded(options.seed).values())}:
        raise SystemExit(f"expected the key of a survivor, got {key}; {RESULTS.name} lists them.")
    write_json(EXPLAINED, json.loads(EXPLAINED.read_text(encoding="utf-8")) | {key: reason})
    write_record(options, drawn(options.seed), recorded(options.seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, usual in DRAW.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120.0, help="measured CPU time of the tests run on a mutant")
    parser.add_argument("--most", type=int, help="mutants that are run in this call")
    parser.add_argument("--known-calls", action="store_true", help="which tests call what, as of the last pass")
    parser.add_argument("--again", action="store_true", help="the test that killed a mutant once more, for every one")
    parser.add_argument("--try", dest="tried", nargs="+", metavar="KEY=FILE[,FILE]", help="tests for one mutant each")
    parser.add_argument("--explain", nargs=2, metavar=("KEY", "REASON"), help="note why a survivor is equivalent")
    options = parser.parse_args()
    if options.explain:
        return explain(*options.explain, options)
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.tried:
        pairs = (pair.partition("=") for pair in options.tried)
        return tried([(key, files.split(",")) for key, _, files in pairs], options)
    if options.again:
        return tried(killers(options.seed), options)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = survey(options, Path(folder))
    print(f"{found['run']} mutants: {found['killed']} killed, {found['explained']} explained, "
          f"{found['to_be_killed']} to be killed")  # fmt: skip
    for each in survivors(found["mutants"]):
        place = f"{each['key']} {each['module']}:{each['line']} {each['operator']}"
        print(f"  {place}: {each['after']}  [{each['reason']}]")
    return None


if __name__ == "__main__":
    main()
