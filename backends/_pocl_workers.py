"""A CPU for each of PoCL's workers.

Kernels of a tenth of a millisecond are too short for the system to move a thread while they run: it wakes two workers
on one CPU, beside an idle one, and they take turns. PoCL's own setting (POCL_AFFINITY) counts CPUs from 0, whichever
the process may use, and ends the process where it may not use one; here the same is done with those that it may. A user
who sets it, to 0 or 1, has decided.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_THREADS = Path("/proc/self/task")


@contextlib.contextmanager
def spread() -> Iterator[None]:
    """Give the threads that are started inside a CPU each, where they are one or more for every CPU."""
    before = _threads()
    yield
    if "POCL_AFFINITY" not in os.environ:
        _place(sorted(_threads() - before))


def _threads() -> set[int]:
    return {int(t.name) for t in _THREADS.iterdir()} if _THREADS.is_dir() else set()


def _place(threads: list[int]) -> None:
    cpus = sorted(os.sched_getaffinity(0)) if threads else []
    if not cpus or len(threads) % len(cpus):
        return
    for i, thread in enumerate(threads):
        with contextlib.suppress(OSError):  # it may have ended
            os.sched_setaffinity(thread, {cpus[i % len(cpus)]})
