"""The engine of this process: a few parts side by side on a GPU, one per core on a CPU, each in its own thread.

Every engine feeds one `Board`, the bar of a whole sweep, and asks one `Stop` whether it shall end.
"""

import queue
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from infoflow.progress import Progress
from infoflow.train.loop import Report, Trained
from infoflow.train.part import Finished, provider, train_or_split
from infoflow.train.plan import Part, cores, threads
from infoflow.train.run import Run
from infoflow.train.store import Result
from infoflow.train.task import Data

Keep = Callable[[Finished], None]
SIDE_BY_SIDE = 3  # stacks a GPU advances at once, each on its stream: sixteen tiny models alone leave it half idle


class Stop:
    """True once the time is up or somebody said so."""

    def __init__(self, seconds: float | None = None) -> None:
        self.end = None if seconds is None else time.monotonic() + seconds
        self.told = threading.Event()

    def __call__(self) -> bool:
        return self.told.is_set() or (self.end is not None and time.monotonic() >= self.end)

    def now(self) -> None:
        self.told.set()


class Board:
    """Progress in model-steps; beside it models per second, and best and median of each model's least error so far.

    What is told costs as much as it tells; the line beside the bar looks at every model, and is made for the bar
    alone, which asks for it when it draws.
    """

    def __init__(self, parts: Sequence[Part], bar: Progress) -> None:
        self.bar = bar
        self.total = {run.key: run.recipe.all_steps for part in parts for run in part.runs}
        self.done = {run.key: part.before for part in parts for run in part.runs}  # by run: steps
        self.best: dict[str, float] = {}
        self.steps = sum(self.done.values())
        self.models = 0.0  # trained by this call, in parts of a model
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.last = 0.0

    def follow(self, part: Part) -> Report:
        keys = [run.key for run in part.runs]

        def report(state: Trained) -> None:
            now = time.monotonic()
            if now - self.last >= 0.1 or state.finished:  # a look at the device's numbers now and then
                self.last = now
                best = state.best.tolist() if state.steps and state.together == 1 else []
                self.tell(keys, state.done, best)

        return report

    def tell(self, keys: Sequence[str], step: int, best: Sequence[float]) -> None:
        with self.lock:
            for key in keys:
                self.steps += step - self.done[key]
                self.models += (step - self.done[key]) / self.total[key]
                self.done[key] = step
            self.best.update(zip(keys, best, strict=False))
            self.bar.update(self.steps, self._note)

    def finish(self, results: Sequence[Result]) -> None:
        for result in results:
            self.tell([result.key], self.total[result.key], [] if result.best is None else [result.best])

    def _note(self) -> str:
        seconds = time.monotonic() - self.began
        note = f"{self.models / seconds:.3g} models/s" if seconds > 0 else ""
        if self.best:
            note += f"  best {min(self.best.values()):.2e}  median {statistics.median(self.best.values()):.2e}"
        return note


def train_parts(
    parts: Sequence[Part], device: torch.device, keep: Keep, checkpoints: Path | None, stop: Stop, board: Board
) -> None:
    """Train all parts; `keep` is called in this thread with the results of each. Returns early when stopped."""
    desk = _Desk(parts, device, checkpoints, stop, board)
    workers = min(len(parts), SIDE_BY_SIDE if device.type == "cuda" else cores())
    todo: queue.SimpleQueue[Part] = queue.SimpleQueue()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for part in parts:
        todo.put(part)
    with threads(1):
        pool = [threading.Thread(target=_work, args=(desk, todo, done), daemon=True) for _ in range(workers)]
        for thread in pool:
            thread.start()
        try:
            _collect(done, len(pool), keep)
        finally:  # also on Ctrl-C or an error: every stack saves its state and ends
            stop.now()
            for thread in pool:
                thread.join()


def _work(desk: "_Desk", todo: "queue.SimpleQueue[Part]", done: "queue.SimpleQueue[Any]") -> None:
    """One worker thread: parts, then None; an error instead of results ends the sweep."""
    try:
        with _lane(desk.device):
            while not desk.stop():
                for finished in desk.train(todo.get_nowait()):
                    _settle(desk.device)
                    done.put(finished)
    except queue.Empty:
        pass
    except BaseException as error:
        done.put(error)
    done.put(None)


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


class _Desk:
    """What the workers share: data that many parts train on, made once and dropped after the last of them."""

    def __init__(
        self, parts: Sequence[Part], device: torch.device, checkpoints: Path | None, stop: Stop, board: Board
    ) -> None:
        self.device, self.checkpoints, self.stop, self.board = device, checkpoints, stop, board
        self.make = provider(device)
        self.waiting = Counter(part.runs[0].data_name for part in parts)
        self.shared: dict[str, Data] = {}
        self.lock = threading.Lock()

    def train(self, part: Part) -> list[Finished]:
        """The results of a part, in one piece or several; nothing of what was stopped."""
        name = part.runs[0].data_name
        try:
            return train_or_split(part, self.device, self._data, self.checkpoints, self.stop, self.board.follow)
        finally:
            with self.lock:
                self.waiting[name] -= 1
                if not self.waiting[name]:
                    self.shared.pop(name, None)

    def _data(self, runs: Sequence[Run]) -> Data:
        """Data of each seed's own belong to one part, others are shared."""
        first = runs[0]
        with self.lock:
            if first.data_name in self.shared:
                return self.shared[first.data_name]
            made = self.make(runs)
            _settle(self.device)
            if not first.task.seeded:
                self.shared[first.data_name] = made
            return made
