"""The hit path in C (native/hot): each type is the Python of the same meaning, without its interpreter."""

from collections.abc import Callable, Sequence
from typing import Any

class Counters:
    """runtime.buffers.Counters."""

    active: int
    peak: int
    made: int
    made_bytes: int
    freed: int

class Buffer:
    """runtime.buffers.Buffer."""

    device: Any
    handle: Any
    nbytes: int
    shelf: list[Any]
    def __init__(self, device: Any, handle: Any, nbytes: int, shelf: list[Any], counters: Counters) -> None: ...
    def swap(self, other: Buffer) -> None: ...

class Allocator:
    """runtime.buffers.Allocator."""

    watched: bool
    def __init__(
        self, device: Any, counters: Counters, by_request: dict[int, list[Any]], slow: Callable[[int], Buffer]
    ) -> None: ...
    def __call__(self, nbytes: int) -> Buffer: ...

MAX_SLOTS: int
"""Buffers of one plan that a Replay holds, and arguments of one kernel that a Call takes."""

class Lock:
    """A lock for the kernels of one chip: what Calls that share it run is never at once, nor inside `with lock`."""

    def __enter__(self) -> None: ...
    def __exit__(self, *error: Any) -> None: ...

class Call:
    """A launcher: the C function at `address`, called with an array of pointers to its arguments and with the grid.

    `arguments` in order: bytes of a scalar, (slot, extra offset, itemsize) of a buffer, or (get, steady) of a number
    that is known at launch; steady ones are computed again only when a launch-time value is another object. Handles
    have their memory's `address`. `lock` is shared by what must not run at once; `keep` lives as long as the launcher.
    """

    def __init__(
        self, address: int, grid: tuple[int, int, int], arguments: list[Any], lock: Lock, keep: Any
    ) -> None: ...
    def __call__(self, handles: Sequence[Any], offsets: Sequence[int], values: Sequence[Any]) -> None: ...

class Enqueue:
    """A launcher: `slow`, until it is armed; then a kernel object launched on a queue that runs it at once.

    It goes to `slow` whenever `backend.streams` or `queue.last` is not None, `queue.waiting` is not empty, or the
    driver refuses: what was launched before comes first, and Python tells the driver's errors. Handles have the
    driver's `pointer`. A pointer that the kernel object has been given is not given again.
    """

    armed: int
    def __init__(self, slow: Callable[..., Any], backend: Any, queue: Any) -> None: ...
    def arm(
        self,
        functions: tuple[int, int],
        queue: int,
        kernel: int,
        size: tuple[int, ...],
        local: tuple[int, ...],
        buffers: list[tuple[int, int, int]],
        numbers: list[tuple[int, int, Callable[[Sequence[Any]], bytes], bool]],
        struct: bytes,
        keep: Any,
    ) -> None:
        """Launch through `functions` (clSetKernelArg, clEnqueueNDRangeKernel) with these pointers; once.

        Arguments are the buffers (byte of the offset in `struct`, slot, extra offset), then `struct` with the numbers
        (byte, size, get, steady as in Call) in it.
        """

    def __call__(self, handles: Sequence[Any], offsets: Sequence[int], values: Sequence[Any]) -> None: ...

class Replay:
    """plan.Plan.run."""

    def __init__(
        self,
        wrapper: tuple[Any, Any, Any],
        allocator: Allocator,
        n_inputs: int,
        allocs: tuple[Any, ...],
        steps: tuple[Any, ...],
        results: tuple[tuple[int, tuple[Any, ...], Any], ...],
        pack: Callable[[list[Any]], Any] | None,
    ) -> None: ...
    def __call__(self, tensors: list[Any], values: list[Any], args: Any, kwargs: Any) -> Any: ...

class View:
    """plan.ViewPlan.run of one result."""

    def __init__(
        self,
        wrapper: tuple[Any, Any, Any],
        index: int,
        layout: tuple[Any, ...],
        spec: Any,
        offset: int,
        inference: Callable[[], bool],
        slow: Callable[..., Any],
    ) -> None: ...
    def __call__(self, tensors: list[Any], values: list[Any], args: Any, kwargs: Any) -> Any: ...

class Route:
    """dispatch._torch_dispatch for ops that have a plan."""

    def __init__(
        self,
        ops: dict[Any, Any],
        dispatch: dict[str, Any],
        interrupts: dict[str, Any],
        handler_in_force: Callable[[int], Any],
        signal: int,
        slow: Callable[..., Any],
        failed: Callable[..., Any],
    ) -> None: ...
    def __call__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any: ...
