"""Lanes of worker processes: how many questions run at once, how many wait, how long one may take."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

MEMORY = {"quick": 2 << 30, "long": 8 << 30}  # bytes of address space of a worker; torch alone maps more than one GiB
MOST_WAITING = 128  # questions that wait for a worker, in one lane
START_SECONDS = 120.0  # for a worker to load what its lane needs
LONGEST_ANSWER = 64 << 20  # bytes of one line from a worker

Hear = Callable[[dict[str, Any]], Awaitable[None]]


class Unanswered(Exception):
    """A question that gets no answer: the sentence and its HTTP status."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.sentence, self.status = sentence, status


class Said(Unanswered):
    """A refusal in the worker's own words: the worker is well."""


async def _deaf(event: dict[str, Any]) -> None:
    """Nobody listens to the progress of this question."""


class Lane:
    """At most `workers` questions at once; workers are started when they are first needed and used again.

    A worker whose question was not answered to the end (too long, its client gone, a crash) is killed: that is how a
    job is cancelled, whatever it is doing.
    """

    def __init__(self, name: str, workers: int, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.slots = asyncio.Semaphore(workers)
        self.idle: list[Process] = []
        self.all: set[Process] = set()
        self.waiting = 0

    async def ask(self, verb: str, question: Any, seconds: float, hear: Hear = _deaf) -> Any:
        """The answer; Unanswered with a sentence. `hear` gets what the worker tells on the way."""
        if self.waiting >= MOST_WAITING:
            raise Unanswered(
                "expected a free moment, too many questions wait already; ask again in a few seconds.", 503
            )
        self.waiting += 1
        try:
            await self.slots.acquire()
        finally:
            self.waiting -= 1
        worker: Process | None = None
        done = False
        try:
            worker = self.idle.pop() if self.idle else await self._start()
            async with asyncio.timeout(seconds):
                answer = await _exchange(worker, verb, question, hear)
            done = True
            return answer
        except Said:
            done = True
            raise
        except TimeoutError:
            raise Unanswered(
                f"expected an answer within {seconds:g} s, this takes longer; take smaller sizes, or the command line, "
                "which has no such limit.", 504,
            ) from None  # fmt: skip
        finally:
            self.slots.release()
            if worker is not None:
                self._leave(worker, done)

    async def _start(self) -> Process:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "infoflow.web.worker", str(MEMORY[self.name]), str(self.folder), self.name,
            stdin=PIPE, stdout=PIPE, limit=LONGEST_ANSWER,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        self.all.add(worker)
        assert worker.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                if await worker.stdout.readline():
                    return worker
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._leave(worker, False)
            raise
        self._leave(worker, False)
        raise Unanswered("expected a worker to start, it did not; the terminal says more.", 500)

    async def warm(self) -> None:
        """Start a first worker before the first question."""
        with suppress(Unanswered):
            self.idle.append(await self._start())

    def _leave(self, worker: Process, usable: bool) -> None:
        if usable and worker.returncode is None:
            self.idle.append(worker)
        else:
            self.all.discard(worker)
            _end(worker)

    async def close(self) -> None:
        for worker in self.all:
            _end(worker)
        await asyncio.gather(*(worker.wait() for worker in self.all))


def _end(worker: Process) -> None:
    if worker.returncode is None:
        worker.kill()


async def _exchange(worker: Process, verb: str, question: Any, hear: Hear) -> Any:
    assert worker.stdin is not None
    assert worker.stdout is not None
    gone = Unanswered("expected an answer, the worker ended without one (it may have run out of memory); take smaller "
                   "sizes.", 500)  # fmt: skip
    try:
        worker.stdin.write(json.dumps({"verb": verb, "question": question}).encode() + b"\n")
        await worker.stdin.drain()
        while line := await worker.stdout.readline():
            message = json.loads(line)
            if "progress" in message:
                await hear(message["progress"])
            elif "error" in message:
                raise Said(message["error"], message["status"])
            else:
                return message["answer"]
    except (ConnectionError, ValueError):  # a line longer than any answer of ours is a ValueError
        raise gone from None
    raise gone
