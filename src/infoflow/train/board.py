"""One bar for a whole sweep, fed by many stacks; and the one way a sweep is told to stop."""

import statistics
import threading
import time
from collections.abc import Sequence

from infoflow.progress import Progress
from infoflow.train.loop import Report, Trained
from infoflow.train.plan import Part
from infoflow.train.results import Result


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
