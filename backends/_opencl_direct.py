"""Launches in this thread without Python: the compiled hit path calls the driver's C functions itself.

They are asked of PyOpenCL's own extension module, so they are those of the library that it is linked to, and pointers
that it gives fit them. An OpenCL without them, or an install without a compiler, launches through PyOpenCL.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from torch_fl.hot import compiled
from torch_fl.runtime.adapter import Launcher

from ._opencl_inline import Inline, Program, Thread
from ._opencl_launch import Arguments
from ._opencl_queue import Queue

_LARGEST = 16
"""Bytes of a number that the compiled launch takes."""


@functools.cache
def functions() -> tuple[int, int] | None:
    """Addresses of clSetKernelArg and clEnqueueNDRangeKernel; None where they cannot be found."""
    import pyopencl

    try:
        library = ctypes.CDLL(pyopencl._cl.__file__)
        found = [library[name] for name in ("clSetKernelArg", "clEnqueueNDRangeKernel")]
    except (OSError, AttributeError):
        return None
    set_arg, enqueue = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in found)
    return set_arg, enqueue


def direct(
    launcher: Launcher, backend: Any, queue: Queue, inline: Inline, args: Arguments, name: str, sizes: Sequence[Any]
) -> Launcher:
    """`launcher`, and once `inline` has proved short the same without Python. `sizes`: global and local."""
    found = functions()
    if compiled is None or found is None or not _fits(args, compiled.MAX_SLOTS):
        return launcher
    step = compiled.Enqueue(launcher, backend, queue)
    numbers = [(byte, v.nbytes, v.get, v.steady) for (byte, _), v in zip(args.values_at, args.values)]

    def arm(thread: Thread, program: Program) -> None:
        import pyopencl

        kernel = pyopencl.Kernel(thread.built(program), name)  # of its own: it keeps what was set last
        driver = thread.driver
        step.arm(found, driver.int_ptr, kernel.int_ptr, *sizes, args.offsets_at, numbers, bytes(args.struct), kernel)

    inline.when_trusted = arm
    return step  # type: ignore[no-any-return]


def _fits(args: Arguments, most: int) -> bool:
    numbers = len(args.values) <= most and all(v.nbytes <= _LARGEST for v in args.values)
    return numbers and len(args.slots) <= most and max(args.slots, default=0) < most
