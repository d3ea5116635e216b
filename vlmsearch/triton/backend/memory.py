"""How the Python models of a server use the C library's memory."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The parameters' numbers, as in glibc's malloc.h."""
_KEPT = 256 * 2**20
_IN_HEAP = 32 * 2**20
"""The most that glibc takes."""


def keep_memory() -> None:
    """Have the process keep up to 256 MiB that it freed.

    Arrays of up to 32 MiB are taken from there.

    By default glibc gives the pages of each batch back to the system, which hands them out again for the next one,
    filled with zeros: for images of 80 kB that takes three times as long as copying them (mallopt(3)). Does nothing
    where the C library is another one.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_TRIM_THRESHOLD, _KEPT)
    mallopt(_MMAP_THRESHOLD, _IN_HEAP)
