"""The engines of this machine: parts side by side in threads of this process, or in processes of their own.

Threads: a few parts on a GPU, one per core on a CPU.

Processes: stacks of many different shapes. A stack of four tiny models leaves a GPU nearly idle, and threads of one
process wait for each other: for Python's lock, and while a graph is captured. Processes do not. Their kernels run on
the GPU at the same time where NVIDIA's MPS is on (`nvidia-cuda-mps-control -d`), in turns where it is not. The caller
alone writes results. A worker gets a part, trains it from its last checkpoint, tells how far it is, and sends back what
its models leave. It ends when it is told to, when there is nothing left, and when the caller is gone.
"""

import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from infoflow.apart import processes
from infoflow.cost import cores, keep_freed_memory
from infoflow.errors import InfoFlowError, JobError
from infoflow.train.loop import Report, Training
from infoflow.train.part import Finished, Keep, Sweep, provider, remembered, taken_up, train_or_split
from infoflow.train.plan import Part, threads
from infoflow.train.run import Run
from infoflow.train.stack import network_of
from infoflow.train.task import Data

SIDE_BY_SIDE = 3  # stacks a GPU advances at once, each on its stream: sixteen tiny models alone leave it half idle
TELL = 0.5  # seconds between two words of a worker about how far it is
LOOK = 0.5  # seconds between looks of the caller at its clock

# What a worker process says: ("step", keys, step, best), ("finished", pieces), ("wrong", sentence), ("failed",
# sentence), ("broken", traceback). A piece is a list of results with the numbers of their networks, as numpy arrays.
Pool = dict[Connection, Any]


def train_in_threads(sweep: Sweep) -> None:
    """Train all parts; `keep` is called in this thread with the results of each. Returns early when stopped."""
    shared = _Shared(sweep)
    workers = min(len(sweep.parts), side_by_side(sweep.device))
    todo: queue.SimpleQueue[Part] = queue.SimpleQueue()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for part in sweep.parts:
        todo.put(part)
    with threads(1):
        pool = [threading.Thread(target=_work, args=(shared, todo, done), daemon=True) for _ in range(workers)]
        for thread in pool:
            thread.start()
        try:
            _collect(done, len(pool), sweep.keep)
        finally:  # also on Ctrl-C or an error: every stack saves its state and ends
            sweep.stop.now()
            for thread in pool:
                thread.join()


def _work(shared: "_Shared", todo: "queue.SimpleQueue[Part]", done: "queue.SimpleQueue[Any]") -> None:
    """One worker thread: parts, then None; an error instead of results ends the sweep."""
    try:
        with _lane(shared.sweep.device):
            while not shared.sweep.stop():
                for finished in shared.train(todo.get_nowait()):
                    _settle(shared.sweep.device)
                    done.put(finished)
    except queue.Empty:
        pass
    except BaseException as error:
        done.put(error)
    done.put(None)


def side_by_side(device: torch.device) -> int:
    """Parts that are trained at once on a device."""
    return SIDE_BY_SIDE if device.type == "cuda" else cores()


@contextmanager
def _lane(device: torch.device) -> Iterator[None]:
    """A CUDA worker's own stream; on a CPU there is nothing to choose."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
        yield


def _settle(device: torch.device) -> None:
    """Tensors made on this thread's stream may now be read from any other."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _collect(done: "queue.SimpleQueue[Any]", workers: int, keep: Keep) -> None:
    while workers:
        item = done.get()
        if isinstance(item, BaseException):
            raise item
        if item is None:
            workers -= 1
        else:
            keep(item)


class _Shared:
    """What the workers share: data that many parts train on, made once and dropped after the last of them."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep, self.make = sweep, provider(sweep.device)
        self.waiting = Counter(part.runs[0].data_name for part in sweep.parts)
        self.data: dict[str, Data] = {}
        self.lock = threading.Lock()

    def train(self, part: Part) -> list[Finished]:
        """The results of a part, in one piece or several; nothing of what was stopped."""
        name = part.runs[0].data_name
        try:
            sweep = self.sweep
            return train_or_split(part, sweep.device, self._data_of, sweep.checkpoints, sweep.stop, sweep.board.follow)
        finally:
            with self.lock:
                self.waiting[name] -= 1
                if not self.waiting[name]:
                    self.data.pop(name, None)

    def _data_of(self, runs: Sequence[Run]) -> Data:
        """Data of each seed's own belong to one part, others are shared."""
        first = runs[0]
        with self.lock:
            if first.data_name in self.data:
                return self.data[first.data_name]
            made = self.make(runs)
            _settle(self.sweep.device)
            if not first.task.seeded:
                self.data[first.data_name] = made
            return made


def train_in_processes(sweep: Sweep, count: int) -> None:
    """Train all parts in so many processes; `keep` is called here with the results of each."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InfoFlowError('expected fit with workers under `if __name__ == "__main__":`, a worker has run it again.')
    with processes() as context:
        _employ(context, sweep, count)


def _employ(context: SpawnContext, sweep: Sweep, count: int) -> None:
    told = context.Event()
    until = None if sweep.stop.end is None else time.time() + sweep.stop.end - time.monotonic()
    # The longest first: what is left at the end is short.
    todo = deque(sorted(sweep.parts, key=lambda part: -part.runs[0].recipe.all_steps))
    pool: Pool = {}
    try:
        for _ in range(min(count, len(todo))):
            ours, theirs = context.Pipe()
            given = (theirs, str(sweep.device), sweep.checkpoints, until, told)
            pool[ours] = context.Process(target=_serve, args=given, daemon=True)
            pool[ours].start()
            theirs.close()
            _hand_over(ours, todo)
        _gather(pool, todo, sweep)
    finally:  # also on Ctrl-C or an error: every stack saves its state and ends
        told.set()
        _dismiss(pool)


def _gather(pool: Pool, todo: deque[Part], sweep: Sweep) -> None:
    """Keep what comes back and hand out what is left, until there is nothing or nobody."""
    keys = {run.key: run for part in sweep.parts for run in part.runs}
    while pool:
        for ours in wait(list(pool), timeout=LOOK):
            assert isinstance(ours, Connection)
            said = _hear(ours)
            if said is None:  # it was sent away, or is gone
                process = pool.pop(ours)
                process.join()
                if process.exitcode:
                    raise JobError(f"expected every worker to end its part, one ended with code {process.exitcode}.")
            elif said[0] == "step":
                sweep.board.tell(*said[1:])
            elif said[0] == "finished":
                for piece in said[1]:
                    finished = [(result, _network(keys[result.key], numbers)) for result, numbers in piece]
                    sweep.keep(finished)
                    sweep.board.finish([result for result, _ in finished])
                _hand_over(ours, deque() if sweep.stop() else todo)
            else:
                raise _error(*said)


def _hand_over(ours: Connection, todo: deque[Part]) -> None:
    """The next part, or None: there is none. Checkpoints are found by the worker."""
    part = replace(todo.popleft(), checkpoint=None) if todo else None
    try:
        ours.send(part)
    except (AttributeError, TypeError, ValueError) as error:  # pickle's ways to say that it cannot
        assert part is not None
        name = part.runs[0].task.name
        raise InfoFlowError(f"expected a task that a worker can be given, {name} cannot ({error}).") from None
    except OSError:  # it is gone: the next look finds out
        pass


def _hear(ours: Connection) -> Any:
    """What a worker says, or None from one that has ended."""
    try:
        return ours.recv()
    except (EOFError, OSError):
        return None


def _error(kind: str, words: str) -> Exception:
    if kind == "wrong":
        return InfoFlowError(words)
    return JobError(words) if kind == "failed" else RuntimeError(f"a worker failed:\n{words}")


def _dismiss(pool: Pool) -> None:
    """Hear everybody out: who has something left to say would wait for us for ever."""
    for ours in pool:
        _hand_over(ours, deque())
    for ours, process in pool.items():
        while _hear(ours) is not None:
            pass
        process.join()


def _network(run: Run, numbers: dict[str, Any]) -> nn.Module:
    """The network of a run with these numbers."""
    network = network_of(run, ()).to(getattr(torch, run.recipe.dtype))
    network.load_state_dict({name: torch.from_numpy(values) for name, values in numbers.items()})
    network.header = run.task.header(run.T)  # type: ignore[assignment]
    return network


def _serve(
    theirs: Connection, device: str, checkpoints: Path | None, until: float | None, told: Any
) -> None:  # pragma: no cover (in another process)
    """In a worker: parts until None comes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to all of us; the caller says what to do
        signal.signal(number, signal.SIG_IGN)
    keep_freed_memory()
    torch.set_num_threads(1)
    caller = os.getppid()

    def stop() -> bool:
        return told.is_set() or (until is not None and time.time() >= until) or os.getppid() != caller

    try:
        while (part := theirs.recv()) is not None:
            theirs.send(_answer(part, torch.device(device), checkpoints, stop, theirs))
    except (EOFError, OSError):  # the caller is gone
        pass
    except (AttributeError, ImportError) as error:  # pickle's ways to say that it knows no such thing here
        theirs.send(("wrong", f"expected a task that a worker can be given, it cannot read it ({error})."))


def _answer(
    part: Part, device: torch.device, checkpoints: Path | None, stop: Callable[[], bool], theirs: Connection
) -> tuple[Any, ...]:
    """The pieces of a part, or why there are none."""
    try:
        provide = remembered(provider(device))
        part = taken_up(part, checkpoints)
        pieces = train_or_split(part, device, provide, checkpoints, stop, lambda piece: _follow(piece, theirs))
        sent = [[(result, _numbers(network)) for result, network in finished] for finished in pieces]
    except InfoFlowError as error:
        return "wrong", str(error)
    except JobError as error:
        return "failed", str(error)
    except Exception:
        return "broken", traceback.format_exc()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # others may need it
    return "finished", sent


def _numbers(network: nn.Module) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in network.state_dict().items()}


def _follow(part: Part, theirs: Connection) -> Report:
    """Say now and then how far a part is."""
    keys, last = [run.key for run in part.runs], 0.0

    def report(state: Training) -> None:
        nonlocal last
        if time.monotonic() - last >= TELL:
            last = time.monotonic()
            theirs.send(("step", keys, state.done, state.best.tolist() if state.steps and state.together == 1 else []))

    return report
