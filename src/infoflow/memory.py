"""How the command's own process holds its memory, and how running out of it is told apart from other failures."""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
LARGEST = 32 << 20  # bytes; glibc lets its own threshold grow to this and no further


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
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST)) and bool(mallopt(M_TRIM_THRESHOLD, -1))


# Words of PyTorch's RuntimeErrors for tensors that cannot be had, or whose size does not even fit in 64 bits.
NO_MEMORY = ("can't allocate memory", "not enough memory", "storage size calculation overflowed", "numel: integer")


def out_of_memory(error: BaseException | None) -> bool:
    """Whether memory is what failed, here or underneath (a failed capture of a CUDA graph hides it)."""
    while error is not None:
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # the latter is PyTorch's
            return True
        if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False
