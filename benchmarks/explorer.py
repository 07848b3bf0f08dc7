"""50 clients at once for a minute on the explorer, on loopback: latencies of cheap requests, and every error.

    python benchmarks/explorer.py [--clients 50] [--seconds 60] [--pause 0.2]

Each client keeps one connection and asks one question after the other with a pause between them, about what somebody
who drags a token sends. Questions: half are flows of inputs nobody has asked about before (computed by a worker), the
rest are those that many ask: examples, predictions and plans on a grid of sliders (kept after the first time), the page
and its files. Writes benchmarks/results/explorer.json.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from infoflow.files import write_json
from infoflow.provenance import provenance

RESULT = Path(__file__).parent / "results/explorer.json"
TARGETS = ("min_pair:d=2", "max_plus_min", "sum_of_maxima:D=2,d=2", "pairwise_max:D=2,d=2", "kth_largest:k=2,d=1")
FILES = ("/", "/assets/style.css", "/assets/main.js", "/assets/views/flow.js", "/assets/examples.json")


def question(draw: random.Random) -> tuple[str, str, bytes]:
    """What kind of request, its address, its body (none: a file)."""
    kind = draw.choices(("new flow", "known flow", "predict", "plan", "file"), (50, 15, 15, 5, 15))[0]
    if kind == "file":
        return kind, draw.choice(FILES), b""
    target = draw.choice(TARGETS)
    heads, T = draw.choice(("2,2", "1,1", "2,1")), draw.choice((4, 8, 16))
    if kind == "plan":
        return kind, "/api/plan", json.dumps({"target": target, "T": T}).encode()
    arch = f"heads={heads} embed=8"
    seed = draw.randrange(10**9) if kind == "new flow" else draw.randrange(3)
    more = {"eps": draw.choice((0.1, 0.01))} if kind == "predict" else {"seed": seed}
    verb = "predict" if kind == "predict" else "trace"
    return kind, f"/api/{verb}", json.dumps({"target": target, "arch": arch, "T": T, **more}).encode()


async def client(
    place: tuple[str, int], number: int, end: float, pause: float, seen: dict[str, list[float]]
) -> Counter:
    draw, errors = random.Random(number), Counter[str]()
    reader, writer = await asyncio.open_connection(*place, limit=1 << 22)
    while time.monotonic() < end:
        kind, path, body = question(draw)
        head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nhost: {place[0]}:{place[1]}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n" if body else "\r\n"
        begin = time.perf_counter()
        writer.write(head.encode() + body)
        status, answer = await response(reader)
        seen[kind].append(time.perf_counter() - begin)
        if status != 200:
            errors[f"{kind}: {status} {answer[:120].decode()}"] += 1
        await asyncio.sleep(pause * draw.uniform(0.5, 1.5))
    writer.close()
    await writer.wait_closed()
    return errors


async def response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    status = int((await reader.readline()).split()[1])
    length = 0
    while line := (await reader.readline()).strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return status, await reader.readexactly(length)


async def load(place: tuple[str, int], clients: int, seconds: float, pause: float) -> dict[str, Any]:
    seen: dict[str, list[float]] = defaultdict(list)
    end = time.monotonic() + seconds
    found = await asyncio.gather(*(client(place, number, end, pause, seen) for number in range(clients)))
    errors = sum(found, Counter())
    every = [took for times in seen.values() for took in times]
    return {
        "requests": len(every),
        "a_second": len(every) / seconds,
        "errors": dict(errors),
        "all": summary(every),
        "by_kind": {kind: summary(times) for kind, times in sorted(seen.items())},
    }


def summary(times: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=100)
    return {"requests": len(times), "median_ms": 1e3 * statistics.median(times), "p95_ms": 1e3 * cuts[94],
            "p99_ms": 1e3 * cuts[98], "largest_ms": 1e3 * max(times)}  # fmt: skip


def memory(pid: int) -> float:
    """MiB of the explorer and its workers."""
    pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split())]
    kib = 0
    for one in pids:
        for line in Path(f"/proc/{one}/status").read_text(encoding="ascii").splitlines():
            kib += int(line.split()[1]) if line.startswith("VmRSS") else 0
    return kib / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pause", type=float, default=0.2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "infoflow", "serve", "--port", "0", "--folder", folder]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline().split()[4].rstrip("/").rpartition(":")[2])
            asyncio.run(load(("127.0.0.1", port), given.clients, 10.0, given.pause))  # workers start
            found = asyncio.run(load(("127.0.0.1", port), given.clients, given.seconds, given.pause))
            found["memory_mib"] = memory(server.pid)
        finally:
            server.terminate()
            server.wait(30)
    report = {"provenance": provenance(("numpy", "starlette", "uvicorn")), "clients": given.clients,
              "seconds": given.seconds, "pause": given.pause, "load": os.getloadavg()[0],
              "niceness": os.nice(0), **found}  # fmt: skip
    write_json(RESULT, report)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
