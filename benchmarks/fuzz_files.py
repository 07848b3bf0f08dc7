"""Damaged and malicious files of every kind of network: a refusal in one sentence, or a verdict that is true.

    python benchmarks/fuzz_files.py [--files 5000] [--seed 0] [--seconds 0.2]

Every file is a saved network with bits, bytes, header fields, dtypes, shapes, offsets, names, nesting, numbers,
weights or targets changed (`_fuzz_damage.py`). It is loaded and certified; where the certificate holds, its claim is
attacked by code that knows nothing of the proofs (`_fuzz_attack.py`). A file fails when something other than a refusal
of one sentence reaches the caller, when a claim that is said to hold is broken, when no answer comes within LONGEST
seconds, or when the process that answers takes more than MEMORY bytes. Child processes answer a few hundred files each.
"""

import argparse
import json
import multiprocessing
import resource
import signal
import struct
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import infoflow as iflow
from _fuzz_attack import ATTACKS, found
from _fuzz_damage import damaged
from _fuzz_networks import originals
from infoflow.errors import InfoFlowError
from infoflow.files import write_json
from infoflow.nn.files import load
from infoflow.progress import Progress
from infoflow.provenance import provenance

MEMORY = 2 * 2**30  # bytes a process may hold
ADDRESSES = 12 * 2**30  # bytes of addresses, so that a greedy file ends in a MemoryError and not in a dead machine
LONGEST = 30.0  # seconds of CPU time for one answer
CHUNK = 250  # files a child process answers


class Late(Exception):
    pass


def answer(path: Path, seconds: float, rng: np.random.Generator) -> dict[str, Any]:
    """What load and certify say about a file: {"answer": .., "words": ..}, `failed` when that is wrong."""
    signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        return judged(path, seconds, rng)
    except Late:
        return {"answer": "late", "words": f"no answer in {LONGEST:g} s", "failed": True}
    except BaseException as error:  # whatever else reaches the caller is what is looked for here
        words = "".join(traceback.format_exception(error)[-3:])
        return {"answer": "traceback", "words": words, "failed": True}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _late(number: int, frame: Any) -> None:
    raise Late


def judged(path: Path, seconds: float, rng: np.random.Generator) -> dict[str, Any]:
    """The answer without a limit of time; everything but a refusal comes through as it is."""
    try:
        network = load(path)
        certificate = iflow.certify(network, seconds=0.01, seed=int(rng.integers(2**31)))
    except InfoFlowError as refusal:
        words = str(refusal)
        return {"answer": "refused", "words": words, "failed": "\n" in words or len(words) > 1000}
    if not certificate.holds:
        return {"answer": "does not hold", "words": certificate.why_not[0], "failed": not certificate.why_not}
    kind, header = own_header(path)
    claim = certificate.claim
    worst, slack = found(kind, header, network, seconds, rng)
    assert claim.limit is not None
    broken = worst + slack < claim.limit if claim.least else worst - slack > claim.limit
    words = f"{claim}: found {worst!r}"
    return {"answer": certificate.verdict.partition(" f ")[0], "words": words, "failed": bool(broken)}


def own_header(path: Path) -> tuple[str, dict[str, Any]]:
    """Kind and header by the container's own rules."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    own = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["infoflow"])
    return own["kind"], own["header"]


def child(job: tuple[int, int, int, float, str]) -> tuple[list[dict[str, Any]], int]:
    """Files first..last of a seed; the answers and the largest memory held, in bytes."""
    seed, first, last, seconds, folder = job
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    sources = sorted(Path(folder).glob("*.safetensors"))
    answers = []
    with tempfile.TemporaryDirectory() as own:
        path = Path(own) / "file.safetensors"
        for number in range(first, last):
            rng = np.random.default_rng([seed, number])
            source = sources[number % len(sources)]
            damage, data = damaged(rng, source.read_bytes())
            path.write_bytes(data)
            before = _held()
            said = answer(path, seconds, rng)
            if before < MEMORY <= _held():
                said = {"answer": "memory", "words": f"{_held() / 2**30:.2f} GiB", "failed": True}
            answers.append({"file": number, "network": source.stem, "damage": damage, **said})
    return answers, _held()


def _held() -> int:
    """The most memory this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fuzz(
    files: int, seed: int, seconds: float, keep: Callable[[list[dict[str, Any]], int], None]
) -> tuple[list[dict[str, Any]], int]:
    """All answers and the largest memory; `keep` gets what there is after every child."""
    answers: list[dict[str, Any]] = []
    most = 0
    with tempfile.TemporaryDirectory() as folder, Progress("files", files) as bar:
        for name, path in originals(Path(folder)):
            assert path.stem == name
        jobs = [(seed, first, min(first + CHUNK, files), seconds, folder) for first in range(0, files, CHUNK)]
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            for some, held in pool.imap(child, jobs):
                answers += some
                for one in some:
                    if one["failed"]:
                        print(one, flush=True)
                most = max(most, held)
                keep(answers, most)
                bar.update(len(answers), f"{sum(a['failed'] for a in answers)} failed")
    return answers, most


def summary(answers: list[dict[str, Any]], memory: int) -> dict[str, Any]:
    def table(key: str) -> dict[str, dict[str, int]]:
        rows: dict[str, Counter[str]] = {}
        for one in answers:
            rows.setdefault(one[key], Counter())["failed" if one["failed"] else one["answer"]] += 1
            rows[one[key]]["files"] += 1
        return {name: dict(row) for name, row in sorted(rows.items())}

    return {
        "files": len(answers),
        "failed": sum(one["failed"] for one in answers),
        "tracebacks": sum(one["answer"] == "traceback" for one in answers),
        "answers": dict(Counter(one["answer"] for one in answers)),
        "by_damage": table("damage"),
        "by_network": table("network"),
        "largest_memory": memory,
        "within_memory": memory < MEMORY,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.2, help="attack time for every claim that is said to hold")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "fuzz_files.json")
    options = parser.parse_args()
    assert set(ATTACKS) >= {"transformer"}
    settings = {"seconds": options.seconds, "seed": options.seed, "provenance": provenance()}

    def keep(answers: list[dict[str, Any]], memory: int) -> None:
        write_json(options.out, {**summary(answers, memory), **settings})

    report = summary(*fuzz(options.files, options.seed, options.seconds, keep))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
