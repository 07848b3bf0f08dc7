"""One progress bar for the whole project: a bar on a terminal, a line now and then elsewhere, always on stderr."""

import sys
import time
from types import TracebackType
from typing import Self, TextIO


class Progress:
    """Progress over a known total; `update(done, note)` redraws at most ten times a second, or a line every 15 s.

    >>> with Progress("training", 100) as bar:
    ...     bar.update(50, "best 1e-3")
    """

    def __init__(self, title: str, total: int, stream: TextIO | None = None) -> None:
        self.title, self.total, self.stream = title, max(int(total), 1), stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.start = self.last = time.monotonic()
        self.done = 0

    def update(self, done: int, note: str = "") -> None:
        self.done = done
        now = time.monotonic()
        if now - self.last < (0.1 if self.terminal else 15.0):
            return
        self.last = now
        self._draw(note)

    def _draw(self, note: str) -> None:
        share = min(self.done / self.total, 1.0)
        elapsed = time.monotonic() - self.start
        left = elapsed * (1 - share) / share if share > 0 else float("inf")
        timing = f"{elapsed:.0f} s, {left:.0f} s left" if share > 0 else f"{elapsed:.0f} s"
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
