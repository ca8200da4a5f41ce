"""Pages of two megabytes for large blocks of host memory.

Passes over a large block touch more pages of 4 KiB than a core remembers the places of, and each one it forgot costs a
walk through tables in memory. Linux gives large pages where a program asks for them, and small ones where it has none
left; a system that is told never to (`/sys/kernel/mm/transparent_hugepage/enabled`) ignores the wish. The first touch
of a large page can take longer, in virtual machines most of all, so blocks that gain nothing do without.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

PAGE = 1 << 21
LEAST = 1 << 24
"""Bytes of a block from which on large pages pay."""
_WISH: int | None = getattr(mmap, "MADV_HUGEPAGE", None)


def _advise() -> Callable[[int, int, int], object] | None:
    """The C library's madvise; None where the system has no such wish."""
    if _WISH is None:
        return None
    found = ctypes.CDLL(None).madvise
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found


_madvise = _advise()


def wish(address: int, nbytes: int) -> None:
    """Ask for large pages wherever a whole one fits into a large block, before anything is written there."""
    if nbytes < LEAST:
        return
    start = -(-address // PAGE) * PAGE
    length = (address + nbytes) // PAGE * PAGE - start
    if _madvise is not None and _WISH is not None and length > 0:
        _madvise(start, length, _WISH)  # what cannot be had is no error
