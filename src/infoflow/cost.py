"""What a call costs, from its sizes, before anything is made: an absurd one is refused with the number.

    memory(size, "the scores of T=100000 tokens", "T")     refuses what does not fit
    work(operations, rate, "the farthest points", "D")     refuses what takes too long, announces what takes long

An estimate counts the largest arrays and the innermost operations alone, so a limit is a share of what is free. Limits:
half of the free memory (of the machine, of the control group, of the process) and at most 64 GiB; one hour of work for
a call that cannot be resumed. A call above 20 seconds says on standard error how long it will take.

Here, too: how the command's own process holds its memory, and how running out of it is told from other failures.
"""

import ctypes
import math
import os
import platform
import sys
from pathlib import Path

from infoflow.errors import InfoFlowError

SHARE = 0.5  # of the free memory that a call may be expected to take
MOST_MEMORY = 64 << 30  # bytes; beyond it a size is a slip of the finger, whatever the machine
UNKNOWN_MEMORY = 4 << 30  # a machine that does not say: assume what every laptop has
MOST_SECONDS = 3600.0
LONG = 20.0  # seconds from which on a call says how long it will take
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
LARGEST_KEPT = 32 << 20  # bytes; glibc lets its own threshold grow to this and no further
# Words of PyTorch's RuntimeErrors for tensors that cannot be had, or whose size does not even fit in 64 bits.
NO_MEMORY = ("can't allocate memory", "not enough memory", "storage size calculation overflowed", "numel: integer")


def memory(size: float, what: str, lower: str) -> None:
    """Refuse `what` when its `size` in bytes is more than a call may take; `lower` names what makes it smaller."""
    room = min(SHARE * available_memory(), MOST_MEMORY)
    if not size <= room:
        raise InfoFlowError(
            f"expected {what} to fit in {spelled_bytes(room)} of memory, it needs about {spelled_bytes(size)}; "
            f"lower {lower}."
        )


def work(operations: float, rate: float, what: str, lower: str) -> None:
    """Refuse what takes longer than an hour at `rate` operations a second, and announce what takes long."""
    took = operations / rate if operations < 1e300 else math.inf  # an integer beyond floats is absurd, too
    if not took <= MOST_SECONDS:
        raise InfoFlowError(
            f"expected {what} to take at most {spelled_seconds(MOST_SECONDS)}, it would take about "
            f"{spelled_seconds(took)}; lower {lower}."
        )
    announce(took, what)


def announce(took: float, what: str) -> None:
    """Say how long `what` will take, when that is long."""
    if took >= LONG:
        print(f"infoflow: {what} takes about {spelled_seconds(took)}.", file=sys.stderr, flush=True)


def available_memory() -> int:
    """Bytes this process may still take: the least of what machine, control groups and the process's limit leave."""
    found = [_machine(), *_control_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")), _address_space()]
    return max(0, min((size for size in found if size is not None), default=UNKNOWN_MEMORY))


def spelled_bytes(size: float) -> str:
    """As a person says it."""
    if not size < 2**80:
        return "more memory than there is"
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if size >= 2**power:
            return f"{size / 2**power:,.3g} {unit}" if size < 1000 * 2**power else f"{size / 2**power:,.0f} {unit}"
    return f"{size / 2**10:,.3g} KiB"


def spelled_seconds(took: float) -> str:
    """As a person says it."""
    if not took < 1000 * 365 * 86400:
        return "more than 1000 years"
    for unit, size in (("years", 365 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if took >= 2 * size:
            return f"{took / size:,.0f} {unit}"
    return "an hour" if took >= 3600 else f"{took:.0f} s"


def _machine() -> int | None:
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def _control_groups(membership: Path, root: Path) -> list[int]:
    """What the limits of the process's control group and of every group around it leave, in both versions."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    left = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            top, names = root, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        group = top / path.strip("/")
        for folder in (group, *group.parents):
            limit, used = (_count(folder / name) for name in names)
            if limit is not None and used is not None:
                left.append(limit - used + _reclaimable(folder))
            if folder == top:
                break
    return left


def _count(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file; "max"
        return None


def _reclaimable(folder: Path) -> int:
    """Pages of files that the group gives back when memory is short."""
    try:
        fields = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        return int(fields["inactive_file"])
    except (OSError, KeyError, ValueError):
        return 0


def _address_space() -> int | None:
    """What a limit on the process's address space (ulimit -v) leaves."""
    try:
        import resource  # not on every system
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        return limit - int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return None


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed_memory() -> bool:
    """Let glibc keep freed blocks of up to 32 MB for the next tensor; whether it took the setting.

    By default freed memory at the end of the heap goes back to the system, so every step of a training loop gets the
    pages of its tensors anew, and a new page costs more than the arithmetic on it. Tensors above 32 MB stay mappings of
    their own, so the peak hardly grows. It is a setting of the whole process: the command line and the trainer's worker
    processes make it, the library never does in a process of its caller's.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # -1: never give back. With this alone every tensor above 128 kB would be a mapping, made and undone each step.
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)) and bool(mallopt(M_TRIM_THRESHOLD, -1))


def out_of_memory(error: BaseException | None) -> bool:
    """Whether memory is what failed, here or underneath (a failed capture of a CUDA graph hides it)."""
    while error is not None:
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # the latter is PyTorch's
            return True
        if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False
