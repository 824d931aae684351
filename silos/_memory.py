"""Memory that one step frees and the next needs again."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
_LARGEST = 1 << 25
"""Bytes of the largest block that glibc can be told to keep."""


def keep_freed_memory() -> None:
    """Let the process keep large blocks that it frees, instead of giving them back to the system.

    A step of a CNN allocates and frees tens of megabytes. Given back and asked for again, each page costs a page fault,
    up to a quarter of the step. Only glibc is told; elsewhere nothing changes.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
