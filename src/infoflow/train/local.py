"""The engine of this process: a few parts side by side on a GPU, one per core on a CPU, each in its own thread."""

import queue
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from infoflow.cost import cores
from infoflow.train.part import Finished, Keep, Sweep, provider, train_or_split
from infoflow.train.plan import Part, threads
from infoflow.train.run import Run
from infoflow.train.task import Data

SIDE_BY_SIDE = 3  # stacks a GPU advances at once, each on its stream: sixteen tiny models alone leave it half idle


def train_parts(sweep: Sweep) -> None:
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
