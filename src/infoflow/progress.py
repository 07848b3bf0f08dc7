"""One progress bar for the whole project: a bar on a terminal, a line now and then elsewhere, always on stderr."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO


class Progress:
    """Progress over a known total; `update(done, note)` redraws at most ten times a second, or a line every 15 s.

    `before` is what an earlier call had done: it counts as done, and not as the work of the seconds since.

    >>> with Progress("training", 100) as bar:
    ...     bar.update(50, "best 1e-3")
    """

    def __init__(self, title: str, total: int, stream: TextIO | None = None, before: int = 0) -> None:
        self.title, self.total, self.stream = title, max(int(total), 1), stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.start = self.last = time.monotonic()
        self.done = self.before = before

    def skip(self, count: int) -> None:
        """So much more turns out to have been done by an earlier call."""
        self.before += count

    def update(self, done: int, note: str | Callable[[], str] = "") -> None:
        """`note` stands beside the bar; one that is costly to make is given as the function that makes it."""
        self.done = done
        now = time.monotonic()
        if now - self.last < (0.1 if self.terminal else 15.0):
            return
        self.last = now
        self._draw(note if isinstance(note, str) else note())

    def _draw(self, note: str) -> None:
        share = min(self.done / self.total, 1.0)
        elapsed = time.monotonic() - self.start
        timing = f"{elapsed:.0f} s"
        if self.done > self.before:
            timing += f", {elapsed * max(self.total - self.done, 0) / (self.done - self.before):.0f} s left"
        if self.terminal:
            filled = round(28 * share)
            bar = "█" * filled + "·" * (28 - filled)
            self.stream.write(f"\r\x1b[K{self.title} {bar} {share:4.0%}  {timing}  {note}")
        else:
            self.stream.write(f"{self.title} {share:.0%}  {timing}  {note}\n")
        self.stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.terminal:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
