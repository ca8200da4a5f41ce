"""Kernel objects without a look at PyOpenCL's cache on disk for each: plans make one per launch.

PyOpenCL generates Python that sets a kernel's arguments, and reads it from an SQLite file for every object, which costs
more than the rest of a plan. It depends on names and numbers only; here it is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def keep_invokers() -> None:
    """Keep what `pyopencl.invoker` generates; once per process, and only where PyOpenCL generates it so."""
    from pyopencl import invoker

    made = getattr(invoker, "generate_enqueue_and_set_args", None)
    if made is not None and not isinstance(made, _Kept):
        invoker.generate_enqueue_and_set_args = _Kept(made)


class _Kept:
    """The same function, called once for each of its arguments. Devices do not change what it gives."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make
        self.found: dict[Any, Any] = {}

    def __call__(self, *args: Any, devs: Any = None, **flags: Any) -> Any:
        key = (args, tuple(flags.items()))
        found = self.found.get(key)
        if found is None:
            found = self.found[key] = self.make(*args, devs=devs, **flags)
        return found
