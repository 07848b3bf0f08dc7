"""The engine of a Ray cluster (extra `cluster`): every part is a task, results come back to the one store.

The caller alone writes results, so nothing can be doubled. A task whose worker or node dies is started again by Ray,
from its last checkpoint where the worker sees the store's folder (one machine, or a shared file system). When the
caller is interrupted, tasks are cancelled; the same call goes on with what is not in the store.
"""

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from infoflow import apart
from infoflow.cost import cores
from infoflow.errors import InfoFlowError, JobError, first_line
from infoflow.installation import extra
from infoflow.train.part import Board, Finished, Keep, Stop, Sweep, provider, remembered, taken_up, train_or_split
from infoflow.train.plan import Part, choose, threads

RETRIES = 3  # times Ray starts a part again whose worker died
LOOK = 0.5  # seconds between looks at the clock
ANSWER = 10.0  # seconds a cluster has to say that it is there
AHEAD = 64  # tasks handed over beyond two for every core and GPU: a node that joins finds work at once
GRACE = 30.0  # seconds in which running parts save their state when the time is up


def train_parts(cluster: "Cluster", sweep: Sweep) -> None:
    """Train all parts on the cluster; `keep` is called here with the results of each. Returns early when stopped."""
    ray, device, checkpoints, stop = cluster.ray, sweep.device, sweep.checkpoints, sweep.stop
    needs = {"num_gpus": 1} if device.type == "cuda" else {"num_cpus": 1}
    task = ray.remote(**needs, max_retries=RETRIES)(train_there)
    folder = None if checkpoints is None else str(checkpoints.resolve())
    until = None if stop.end is None else time.time() + stop.end - time.monotonic()
    # Checkpoints are found by the worker: the latest, also when the task is started again.
    plain = (replace(part, checkpoint=None) for part in sweep.parts)
    try:
        tasks = (task.remote(part, device.type, folder, until) for part in plain)
        _collect(ray, tasks, sweep.keep, stop, sweep.board)
    except (TypeError, ray.exceptions.RayError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise JobError(f"expected every part to run on the Ray cluster, one did not ({reason}).") from None
    finally:
        if cluster.ours:
            ray.shutdown()


def _collect(ray: Any, tasks: Iterator[Any], keep: Keep, stop: Stop, board: Board) -> None:
    """Hand over the tasks a window at a time and keep what comes back.

    A look costs as much as the tasks it waits for. The window has the size of the cluster, not of the sweep, so the
    whole costs as much as there are tasks, and the cluster holds no more of them than it can soon begin.
    """
    last = float("inf") if stop.end is None else stop.end + GRACE
    waiting: list[Any] = list(islice(tasks, _window(ray)))
    try:
        while waiting and time.monotonic() < last:
            ready, waiting = ray.wait(waiting, timeout=LOOK)
            for reference in ready:
                pieces, failure = ray.get(reference)
                if failure is not None:
                    raise JobError(failure)
                for finished in pieces:
                    keep(finished)
                    board.finish([result for result, _ in finished])
            if ready and not stop():
                waiting += islice(tasks, max(_window(ray) - len(waiting), 0))
    finally:
        for reference in waiting:
            ray.cancel(reference)


def _window(ray: Any) -> int:
    resources = ray.cluster_resources()
    return AHEAD + 2 * int(resources.get("CPU", 0) + resources.get("GPU", 0))


def train_there(part: Part, device: str, folder: str | None, until: float | None) -> tuple[list[Finished], str | None]:
    """In a worker of the cluster: the finished pieces of a part, or why it failed in one sentence."""
    where = torch.device(device)
    checkpoints = None if folder is None else Path(folder)
    if checkpoints is not None and not (checkpoints.parent / "store.json").exists():
        checkpoints = None  # another machine, without the store's file system
    stop = Stop(None if until is None else max(until - time.time(), 0.0))
    try:
        with threads(1):
            provide = remembered(provider(where))
            pieces = [taken_up(piece, checkpoints) for piece in _fitted(part, where)]
            done = [train_or_split(piece, where, provide, checkpoints, stop, lambda _: None) for piece in pieces]
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


class Cluster(NamedTuple):
    """The Ray module, and whether we started the cluster and must end it."""

    ray: Any  # the module, connected
    ours: bool  # connected by us, so ours to disconnect


def connect(address: str | None) -> Cluster:
    """Connect to the cluster, or start one on this machine; one sentence when it does not answer.

    Without an address (here or in RAY_ADDRESS) the cluster is always a new one: left to itself, Ray
    joins whatever cluster last started on the machine, which may be another sweep's.
    """
    ray = extra("ray", "cluster", "the engine ray")
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
        with apart.folder():  # Ray's workers look for modules in the current folder, before the installed ones
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = first_line(error)
        raise JobError(f"expected a Ray cluster at {address or 'this machine'}, none answered ({reason}).") from None
    return Cluster(ray, ours=True)


def _reach(address: str) -> None:
    """Ask the address whether it is Ray's: Ray itself waits for minutes where nothing, or something else, listens.

    A head node answers CheckAlive, be it that our token is missing; the proxy of ray:// clients does not know that
    question and says so, which is at least gRPC. With TLS only Ray has the certificates, and Ray alone can ask.
    """
    if address == "auto":
        address = _last_started()
        if not address:
            return  # Ray itself says at once that there is none
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdigit() and 0 < int(port) < 2**16):
        raise InfoFlowError(f"expected an address like HOST:PORT, ray://HOST:PORT or auto, got {address!r}.")
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return
    import grpc

    silent = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
    if not address.startswith("ray://"):
        silent.add(grpc.StatusCode.UNIMPLEMENTED)
    with grpc.insecure_channel(f"{host}:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")(b"", timeout=ANSWER)
        except grpc.RpcError as error:
            if error.code() in silent:
                reason = " ".join(str(error.details()).split())
                raise JobError(f"expected a Ray cluster at {address}, none answered there ({reason}).") from None
            if error.code() == grpc.StatusCode.UNAUTHENTICATED and os.environ.get("RAY_AUTH_MODE") != "token":
                raise JobError(
                    f"expected the token that the Ray cluster at {address} asks for, none is sent; set "
                    "RAY_AUTH_MODE=token (Ray then takes the token from RAY_AUTH_TOKEN or ~/.ray/auth_token)."
                ) from None


def _last_started() -> str:
    """What Ray reads for `auto`: the address of the cluster last started on this machine, which may be gone."""
    try:
        return (Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
