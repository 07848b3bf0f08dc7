"""Faults under a sweep, counted: each must end bit-equal to the unbroken run, or in one sentence with nothing lost.

    python benchmarks/faults.py [KILLS [EVERY [KIND...]]]      writes benchmarks/results/faults.json

With KILLS (200) signals, half as many flipped bits, a twentieth as many losses of a cluster's node and of its driver,
and a fault at every EVERY-th (1) write and read. KIND names what is to be tried (all: kill write read flip writers
clock cluster); the record keeps what earlier calls found of other kinds, each with the call that found it.

A sweep (two groups of three models, a checkpoint after every step, weights kept) runs in a forked child:

    kill     SIGKILL, SIGTERM or SIGINT at a random moment, then the same call again
    write    the disk is full at the k-th write, then the same call again
    read     the k-th read of a call that goes on with a store stopped half-way fails, then the same call again; every
             read of three such stores (EVERY = 1)
    flip     one bit of one file of such a store is flipped; a file that is then named is removed, as the sentence says,
             and its run trained again: in a smaller stack, so equal to rounding where it is not bit-equal
    clock    the wall clock jumps by days at every look at it
    writers  two to four children train in one store at once
    node     the sweep runs on a Ray cluster of two nodes; one of them is killed at a random moment
    driver   the caller of such a sweep is killed (SIGKILL) at a random moment, then the same call again
"""

import errno
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError, JobError
from infoflow.files import write_json
from infoflow.nn import files
from infoflow.provenance import provenance
from infoflow.targets import pairwise_max
from infoflow.train import plan
from infoflow.train.fit import Recipe, Run, Store, fit_many
from infoflow.train.store import tensor_checksum

RECIPE = Recipe(samples=16, validation=8, batch=4, epochs=6, dtype="float64", rollback=1.001)
ARCHES = (Architecture((1, 1), (2, 2), 3), Architecture((2, 1), (2, 2), 3))
RUNS = [Run(pairwise_max(D=1, d=2, seed=0), arch, 3, seed, RECIPE) for arch in ARCHES for seed in range(3)]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SWEEP = "sweep"  # the word with which `spawned` calls this file
Fault = Callable[[], None]
Place = tuple[Any, str]  # a function by its owner and its name


def sweep(store: Path, fault: Fault, said: Path, address: str | None) -> int:
    """In the child: train here or on a cluster, and leave as `infoflow` would: 0, or one sentence and a code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    plan.SAVE_EVERY = 0.0
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    fault()
    try:
        fit_many(RUNS, store, keep_weights=True, engine="ray" if address else "local", address=address)
    except (InfoFlowError, JobError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def nothing() -> None: ...


def forked(store: Path, said: Path, fault: Fault = nothing) -> int:
    """The process number of a child that runs the sweep here."""
    child = os.fork()
    if child:
        return child
    code = 70  # what a traceback would be
    try:
        code = sweep(store, fault, said, None)
    finally:
        os._exit(code)
    return 0


def spawned(store: Path, said: Path, address: str) -> int:
    """The process number of a new Python that sweeps on a cluster: Ray's threads do not live through a fork."""
    words = [sys.executable, __file__, SWEEP, str(store), str(said), address]
    return os.posix_spawn(sys.executable, words, os.environ)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def call(store: Path, said: Path, fault: Fault = nothing) -> int:
    return ended(forked(store, said, fault))


def numbers(store: Path) -> dict[str, Any]:
    """Everything that must not change: what each run reached, and its weights to the last bit."""
    kept, found = Store(store), {}
    for run in RUNS:
        result = kept.get(run.key, with_weights=True)
        if result is not None:
            weights = tensor_checksum(kept.network(run.key).state_dict(), {})
            found[run.key] = [result.status, result.curve, result.best, result.rollbacks, weights]
    return found


def compared(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """Bit-equal; or every curve within 1e-11, as a model is that was trained in another stack; or wrong."""
    if found == expected:
        return "bit-equal"
    if found.keys() != expected.keys():
        return "wrong"
    near = all(
        len(found[key][1]) == len(expected[key][1])
        and all(abs(a - b) <= 1e-11 * abs(b) for a, b in zip(found[key][1], expected[key][1], strict=True))
        for key in expected
    )
    return "equal to 1e-11" if near else "wrong"


class Every:
    """Counts the calls of some functions and fails the chosen one."""

    def __init__(self, places: list[Place], chosen: int, error: Callable[[], Exception]) -> None:
        self.places, self.chosen, self.error, self.seen = places, chosen, error, 0

    def __call__(self) -> None:
        for owner, name in self.places:
            setattr(owner, name, self._watched(getattr(owner, name)))

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*words: Any, **options: Any) -> Any:
            self.seen += not writing(function, words, options)
            if self.seen == self.chosen:
                self.chosen = 0
                sys.stderr.write("\0")  # the fault was met
                sys.stderr.flush()
                raise self.error()
            return function(*words, **options)

        return watched


WRITES: list[Place] = [(Path, "touch"), (Path, "write_text"), (files, "save_file"), (Path, "replace")]
READS: list[Place] = [(files, "safe_open"), (Path, "open")]  # read_text and read_bytes open


def writing(function: Callable[..., Any], words: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether a call of `Path.open` is to write."""
    mode = options.get("mode", words[1] if len(words) > 1 else "r")
    return function.__name__ == "open" and not mode.startswith("r")


def full() -> Exception:
    return OSError(errno.ENOSPC, "No space left on device")


def unreadable() -> Exception:
    return OSError(errno.EIO, "Input/output error")


def jumping_clock() -> None:
    real, jumps = time.time, random.Random(0)
    time.time = lambda: real() + jumps.choice((-1, 1)) * jumps.uniform(0, 1e6)


def patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a node 30 s to start; on a busy machine that may take more than one try."""
    for _ in range(20):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    raise SystemExit(
        "expected Ray to start a node within 30 s, it did not in twenty tries; give it a less busy machine."
    )


class Trials:
    """Trials of each kind, with what came out: bit-equal at once, or a sentence and bit-equal at the next call."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.counts, self.wrong = folder, Counter[str](), []
        self.store, self.said = folder / "store", folder / "said"
        self.address: str | None = None  # of the cluster that the sweep runs on
        began = time.monotonic()
        assert call(self.folder / "unbroken", self.said) == 0
        self.took = time.monotonic() - began
        self.expected = numbers(self.folder / "unbroken")
        assert len(self.expected) == len(RUNS)

    def half_way(self) -> None:
        """A store whose sweep was ended on its way, with results and checkpoints in it."""
        while True:
            shutil.rmtree(self.store, ignore_errors=True)
            child = forked(self.store, self.said)
            time.sleep(random.uniform(0.3, 0.9) * self.took)
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
            if list(self.store.glob("checkpoints/*.safetensors")):
                return

    def finish(self, kind: str, code: int, known: tuple[int, ...]) -> None:
        """The same call again until it is done; a file that a sentence asks to remove is removed."""
        said = self.said.read_text(encoding="utf-8").replace("\0", "")
        lines = [line for line in said.splitlines() if "is set aside as" not in line]
        if code not in known or "Traceback" in said or (code == 1 and len(lines) != 1):
            self.wrong.append({"kind": kind, "code": code, "said": said[-500:]})
        how = "at once" if code == 0 else "after a sentence" if code == 1 else "after the signal"
        found: dict[str, Any] = {}
        for _ in range(3):
            for path in re.findall(r"(/\S+?\.(?:json|safetensors))", said if "remove" in said else ""):
                Path(path).unlink(missing_ok=True)
            done = self.again() == 0
            said = self.said.read_text(encoding="utf-8")
            try:
                found = numbers(self.store) if done else {}
                if done:
                    break
            except InfoFlowError as error:  # weights are read when they are asked for
                said, how = str(error), "after a sentence"
        same = compared(found, self.expected)
        if same == "wrong":
            self.wrong.append({"kind": kind, "code": code, "said": said[-500:], "numbers": "differ"})
        left = [path.name for path in self.store.rglob(".*")] if kind not in ("kill", "node", "driver") else []
        if left:
            self.wrong.append({"kind": kind, "left behind": left})
        self.counts[f"{kind}: {same} {how}"] += 1

    def again(self) -> int:
        return ended(spawned(self.store, self.said, self.address)) if self.address else call(self.store, self.said)

    def kill(self, number: int) -> None:
        shutil.rmtree(self.store, ignore_errors=True)
        child = forked(self.store, self.said)
        time.sleep(random.uniform(0.0, 1.0) * self.took)
        chosen = SIGNALS[number % len(SIGNALS)]
        os.kill(child, chosen)
        code = ended(child)
        self.finish("kill", code, (0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 130, 143))

    def at_every(self, kind: str, places: list[Place], error: Callable[[], Exception], step: int) -> None:
        """The fault at one call after the other, until there is none left to fail; a read always of the same store."""
        kept, chosen = self.folder / "kept", 1
        if kind == "read":
            self.half_way()
            shutil.copytree(self.store, kept, dirs_exist_ok=True)
        while True:
            shutil.rmtree(self.store, ignore_errors=True)
            if kind == "read":
                shutil.copytree(kept, self.store)
            code = call(self.store, self.said, Every(places, chosen, error))
            if "\0" not in self.said.read_text(encoding="utf-8"):
                break
            self.finish(kind, code, (0, 1))
            chosen += step
        shutil.rmtree(kept, ignore_errors=True)

    def flip(self) -> None:
        self.half_way()
        paths = [path for path in sorted(self.store.rglob("*")) if path.is_file() and path.stat().st_size]
        path = random.choice(paths)
        data = bytearray(path.read_bytes())
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(data)
        marker = path.name == "store.json"
        code = call(self.store, self.said)
        if marker and code:  # a store whose marker is damaged is refused and left alone
            path.write_text('{"format": 1}')
        self.finish("flip", code, (0, 1))

    def writers(self, count: int) -> None:
        shutil.rmtree(self.store, ignore_errors=True)
        children = [forked(self.store, self.folder / f"said{number}") for number in range(count)]
        codes = [ended(child) for child in children]
        shutil.copy(self.folder / "said0", self.said)
        self.finish(f"{count} writers", max(codes, key=abs), (0,))

    def lost(self, kind: str, number: int, took: float, lose: Callable[[int], None]) -> None:
        """A node or the driver is lost: at any moment, or (every second time) while a stack is being trained."""
        assert self.address is not None
        shutil.rmtree(self.store, ignore_errors=True)
        child = spawned(self.store, self.said, self.address)
        until = time.monotonic() + random.uniform(0.0, 1.0) * took
        while time.monotonic() < until or (number % 2 and not list(self.store.glob("[cr]*/[!.]*.*"))):
            time.sleep(0.02)  # until there is a checkpoint or a result
        lose(child)
        self.finish(kind, ended(child), (0,) if kind == "node" else (0, -signal.SIGKILL))

    def on_a_cluster(self, count: int) -> None:
        """A head that stays, and a second node that is there at the start of every trial."""
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "include_dashboard": False}
        cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.address, nodes = cluster.address, [patiently(lambda: cluster.add_node(num_cpus=1))]
        shutil.rmtree(self.store, ignore_errors=True)
        began = time.monotonic()
        assert ended(spawned(self.store, self.said, self.address)) == 0
        took = time.monotonic() - began

        def lose_node(child: int) -> None:
            cluster.remove_node(nodes.pop(), allow_graceful=False)

        for number in range(count):
            if not nodes:
                nodes.append(patiently(lambda: cluster.add_node(num_cpus=1)))
            self.lost("node", number, took, lose_node)
        for number in range(count):
            self.lost("driver", number, took, lambda child: os.kill(child, signal.SIGKILL))
        cluster.shutdown()
        self.address = None

    def clock(self) -> None:
        self.half_way()
        self.finish("clock", call(self.store, self.said, jumping_clock), (0,))


def kinds(kills: int, every: int) -> dict[str, Callable[[Trials], None]]:
    """What each kind of fault tries, by its name."""

    def each(count: int, try_it: Callable[[Trials, int], None]) -> Callable[[Trials], None]:
        return lambda made: [try_it(made, number) for number in range(count)] and None

    return {
        "kill": each(kills, Trials.kill),
        "write": lambda made: made.at_every("write", WRITES, full, every),
        "read": each(3, lambda made, _: made.at_every("read", READS, unreadable, every)),
        "flip": each(kills // 2, lambda made, _: made.flip()),
        "writers": each(3, lambda made, number: made.writers(2 + number)),
        "clock": each(3, lambda made, _: made.clock()),
        "cluster": lambda made: made.on_a_cluster(kills // 20),
    }


def main(kills: int, every: int, asked: list[str], path: Path) -> None:
    """Every kind in turn, recorded when it is done."""
    random.seed(0)
    torch.set_num_threads(1)
    known = kinds(kills, every)
    if unknown := set(asked) - set(known):
        raise SystemExit(f"expected kinds of faults ({' '.join(known)}), got {' '.join(sorted(unknown))}.")
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    found = {kind: each for kind, each in record.get("kinds", {}).items() if kind in known}
    wrong = []
    for kind in asked or known:
        with tempfile.TemporaryDirectory() as folder:
            made = Trials(Path(folder))
            known[kind](made)
        counts, wrong = dict(made.counts), [*wrong, *made.wrong]
        found[kind] = {"counts": counts, "wrong": made.wrong, "provenance": provenance(("torch", "safetensors", "ray"))}
        write_json(path, {"kinds": {k: found[k] for k in known if k in found}, "provenance": found[kind]["provenance"]})
        print(kind, json.dumps(counts), f"{len(made.wrong)} wrong", flush=True)
    if wrong:
        raise SystemExit(json.dumps(wrong[:5], indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == [SWEEP]:
        sys.exit(sweep(Path(sys.argv[2]), nothing, Path(sys.argv[3]), sys.argv[4]))
    sizes = [int(word) for word in sys.argv[1:3]]
    main(*(sizes + [200, 1][len(sizes) :]), asked=sys.argv[3:], path=Path(__file__).parent / "results" / "faults.json")
