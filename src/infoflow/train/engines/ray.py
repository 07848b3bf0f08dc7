"""The engine of a Ray cluster (extra `cluster`): every part is a task, results come back to the one store.

The caller alone writes results, so nothing can be doubled. A task whose worker or node dies is started again by Ray,
from its last checkpoint where the worker sees the store's folder (one machine, or a shared file system). When the
caller is interrupted, tasks are cancelled; the same call goes on with what is not in the store.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from infoflow.errors import InfoFlowError, JobError
from infoflow.train import checkpoint
from infoflow.train.engines.board import Board, Stop
from infoflow.train.engines.choice import choose, cores, threads
from infoflow.train.part import Finished, Part, labelled, train_or_split

RETRIES = 3  # times Ray starts a part again whose worker died
LOOK = 0.5  # seconds between looks at the clock
GRACE = 30.0  # seconds in which running parts save their state when the time is up

Keep = Callable[[Finished], None]


def train_parts(
    cluster: "Cluster",
    parts: Sequence[Part],
    device: torch.device,
    keep: Keep,
    checkpoints: Path | None,
    stop: Stop,
    board: Board,
) -> None:
    """Train all parts on the cluster; `keep` is called here with the results of each. Returns early when stopped."""
    ray = cluster.ray
    needs = {"num_gpus": 1} if device.type == "cuda" else {"num_cpus": 1}
    task = ray.remote(**needs, max_retries=RETRIES)(train_there)
    folder = None if checkpoints is None else str(checkpoints.resolve())
    until = None if stop.end is None else time.time() + stop.end - time.monotonic()
    try:
        # Checkpoints are found by the worker: the latest, also when the task is started again.
        plain = [replace(part, checkpoint=None) for part in parts]
        waiting = {task.remote(part, device.type, folder, until): part for part in plain}
        _collect(ray, waiting, keep, stop, board)
    except (TypeError, ray.exceptions.RayError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise JobError(f"expected every part to run on the Ray cluster, one did not ({reason}).") from None
    finally:
        if cluster.ours:
            ray.shutdown()


def _collect(ray: Any, waiting: dict[Any, Part], keep: Keep, stop: Stop, board: Board) -> None:
    last = float("inf") if stop.end is None else stop.end + GRACE
    try:
        while waiting and time.monotonic() < last:
            ready, _ = ray.wait(list(waiting), timeout=LOOK)
            for reference in ready:
                pieces, failure = ray.get(reference)
                del waiting[reference]
                if failure is not None:
                    raise JobError(failure)
                for finished in pieces:
                    keep(finished)
                    board.finish([result for result, _ in finished])
    finally:
        for reference in waiting:
            ray.cancel(reference)


def train_there(part: Part, device: str, folder: str | None, until: float | None) -> tuple[list[Finished], str | None]:
    """In a worker of the cluster: the finished pieces of a part, or why it failed in one sentence."""
    where = torch.device(device)
    checkpoints = None if folder is None else Path(folder)
    if checkpoints is not None and not (checkpoints.parent / "store.json").exists():
        checkpoints = None  # another machine, without the store's file system
    stop = Stop(None if until is None else max(until - time.time(), 0.0))
    try:
        with threads(1):
            data = labelled(part.runs[0], where)
            pieces = _taken_up(_fitted(part, where), checkpoints)
            done = [train_or_split(piece, where, data, checkpoints, stop, lambda _: None) for piece in pieces]
        return [finished for some in done for finished in some], None
    except (InfoFlowError, JobError) as error:
        return [], str(error)


def _fitted(part: Part, device: torch.device) -> list[Part]:
    """The part in pieces that fit this node's GPU, whatever the caller's machine is like."""
    if device.type != "cuda":
        return [part]
    choice, runs = choose(part.runs, device), part.runs
    starts = range(0, len(runs), choice.stack)
    return [replace(part, runs=runs[first : first + choice.stack], choice=choice) for first in starts]


def _taken_up(parts: list[Part], checkpoints: Path | None) -> list[Part]:
    """Each part with the checkpoint that holds all of it, if there is one."""
    if checkpoints is None:
        return parts
    return [replace(part, checkpoint=checkpoint.holding(checkpoints, part.runs)) for part in parts]


class Cluster(NamedTuple):
    ray: Any  # the module, connected
    ours: bool  # connected by us, so ours to disconnect


def connect(address: str | None) -> Cluster:
    """Connect to the cluster, or start one on this machine; one sentence when it does not answer.

    Without an address (here or in RAY_ADDRESS) the cluster is always a new one: left to itself, Ray
    joins whatever cluster last started on the machine, which may be another sweep's.
    """
    try:
        import ray
    except ImportError:
        raise InfoFlowError("expected Ray for engine ray, found none; install infoflow[cluster].") from None
    if ray.is_initialized():
        return Cluster(ray, ours=False)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    address = address or os.environ.get("RAY_ADDRESS")
    if address in (None, "local"):
        options |= {"address": "local", "num_cpus": cores(), "include_dashboard": False}
    else:
        _reach(address)
        options["address"] = address
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).strip().splitlines()[0]
        raise JobError(f"expected a Ray cluster at {address or 'this machine'}, none answered ({reason}).") from None
    return Cluster(ray, ours=True)


def _reach(address: str) -> None:
    """Ray itself waits for minutes on an address where nothing listens."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not colon or not port.isdigit():
        raise InfoFlowError(f"expected an address like HOST:PORT, ray://HOST:PORT or auto, got {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise JobError(f"expected a Ray cluster at {address}, none answered ({error}).") from None
