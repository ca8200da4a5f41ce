"""What the adapters for CUDA and ROCm share: memory, copies, streams and launches through CuPy.

Every call to the driver is made with the adapter's card current, and the caller's current card is put back. Kernels
are compiled by NVRTC or hipRTC themselves: CuPy's RawModule would always flush denormal numbers to zero.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torch_fl.kernels.source import FIELD
from torch_fl.runtime import settings
from torch_fl.runtime.adapter import Backend, BufferArg, Handle, KernelArg, Launcher, Properties, ValueArg

from . import _cudnn, _cupy_products, _cupy_solver
from . import _cupy_arrays as _cupy_arrays
from ._cupy_libraries import Libraries, Turns

BLOCK = 256
"""Work-items of a block: fits every card, whatever registers a kernel takes."""
LINE = 1 << 22
"""Most blocks in a line of the grid: HIP counts the work-items of a line in 32 bits."""
STAGED = 1 << 20
"""Most bytes that a copy to the card puts into pinned memory first, so that it need not wait for the card."""
_OPTIONS = ("--std=c++17",)


def lines_of_blocks(grid: tuple[int, int, int], size: int = BLOCK) -> tuple[int, int]:
    """Blocks of a launch, as (length of a line, lines); `size`: how much of the grid is a block."""
    blocks = -(-grid[0] * grid[1] * grid[2] // size)
    return min(blocks, LINE), -(-blocks // LINE)


def scalars(args: Sequence[KernelArg], grid: tuple[int, int, int]) -> tuple[bytes, list[tuple[int, Any]]]:
    """The struct of a kernel's scalars as `render` lays it out, and where launch-time values go (byte, getter)."""
    data = bytearray()
    values_at: list[tuple[int, Any]] = []
    for a in [*args, *(n.to_bytes(8, "little") for n in grid)]:
        if isinstance(a, BufferArg):
            continue
        if isinstance(a, ValueArg):
            values_at.append((len(data), a.get))
        data += a if isinstance(a, bytes) else bytes(FIELD)
        data += bytes(-len(data) % FIELD)
    return bytes(data), values_at


def _by_value(data: bytes | bytearray) -> Any:
    """A struct as CuPy passes it by value: a NumPy array of one element."""
    return np.frombuffer(data, f"V{len(data)}")


def _address(data: memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])


class _Program:
    """A loaded module and its kernels by name."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._kernels: dict[str, Any] = {}

    def kernel(self, name: str) -> Any:
        if name not in self._kernels:
            self._kernels[name] = self._module.get_function(name)
        return self._kernels[name]


class CuPy(Backend):
    """One card: CuPy's pools, the default stream and others beside it."""

    family = "cupy"
    product = staticmethod(_cupy_products.product)
    routine = staticmethod(_cupy_solver.routine)
    layer = staticmethod(_cudnn.layer)
    groups = True
    preference = 30

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        import cupy

        self._cupy = cupy
        cuda = cupy.cuda
        self._runtime = cuda.runtime
        self.driver_errors = (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)
        self.memory_errors = (cuda.memory.OutOfMemoryError,)
        self._index = int(properties.handle)
        self.card = cuda.Device(self._index)
        with self.card:
            self._pool = cuda.MemoryPool()
            self._pinned = cuda.PinnedMemoryPool()
        self.main = cuda.Stream.null
        self.libraries, self.turns = Libraries(self), Turns()
        self._staged: deque[tuple[Any, Any]] = deque()
        self._lock = threading.Lock()

    # -- memory -------------------------------------------------------------------------------------------------
    def allocate(self, nbytes: int) -> Handle:
        with self.card:
            return self._pool.malloc(nbytes)

    def copy_h2d(self, handle: Handle, byte_offset: int, source: memoryview) -> None:
        nbytes = source.nbytes
        if not nbytes:
            return
        if nbytes > STAGED:
            stream = self._stream_of(handle)
            with self.card:
                self._copy(handle.ptr + byte_offset, _address(source), nbytes, "HostToDevice", stream)
                stream.synchronize()
            return
        block = self.pin(nbytes)
        np.frombuffer(block, np.uint8, nbytes)[:] = source
        self._start(handle, handle.ptr + byte_offset, block.ptr, nbytes, "HostToDevice", block)

    def pin(self, nbytes: int) -> Any:
        with self.card:
            return self._pinned.malloc(nbytes)

    def send(self, handle: Handle, byte_offset: int, source: memoryview, keep: Any) -> None:
        self._start(handle, handle.ptr + byte_offset, _address(source), source.nbytes, "HostToDevice", keep)

    def fetch(self, target: memoryview, handle: Handle, byte_offset: int, keep: Any) -> None:
        self._start(handle, _address(target), handle.ptr + byte_offset, target.nbytes, "DeviceToHost", keep)

    def _start(self, handle: Handle, target: int, source: int, nbytes: int, kind: str, keep: Any) -> None:
        """A copy of pinned memory behind everything that uses the handle; later work there waits for it."""
        streams = self.streams
        stream = None if streams is None else streams.for_host(handle)
        queue = self.main if stream is None else stream.queue
        with self.card:
            self._copy(target, source, nbytes, kind, queue)
            self._hold(self._record(queue), keep)
        if streams is not None and stream is not None:
            streams.used(stream, [handle])

    def _hold(self, event: Any, block: Any) -> None:
        """Keep pinned memory until its copy is done."""
        with self._lock:
            self._staged.append((event, block))
            while self._staged and self._staged[0][0].done:
                self._staged.popleft()

    def copy_d2h(self, target: memoryview, handle: Handle, byte_offset: int) -> None:
        if not target.nbytes:
            return
        stream = self._stream_of(handle)
        with self.card:
            self._copy(_address(target), handle.ptr + byte_offset, target.nbytes, "DeviceToHost", stream)
            stream.synchronize()

    def copy_d2d(self, target: Handle, target_offset: int, source: Handle, source_offset: int, nbytes: int) -> None:
        streams, queue = self.streams, self.main
        current = None if streams is None else streams.current()
        queue = self.main if current is None else current.queue
        with self.card:
            self._copy(target.ptr + target_offset, source.ptr + source_offset, nbytes, "DeviceToDevice", queue)
        if streams is not None and current is not None:
            streams.used(current, (target, source))

    def copy_peer(
        self, target: Handle, target_offset: int, other: Backend, source: Handle, source_offset: int, nbytes: int
    ) -> bool:
        if not isinstance(other, CuPy):
            return False
        queue, theirs = self._stream_of(target), other._stream_of(source)
        self.wait_event(queue, other.record_event(theirs))
        to, of = target.ptr + target_offset, source.ptr + source_offset
        with self.card:
            self._runtime.memcpyPeerAsync(to, self._index, of, other._index, nbytes, queue.ptr)
        other.wait_event(theirs, self.record_event(queue))  # the source may be freed or written then, not before
        for chip, handle in ((self, target), (other, source)):
            if chip.streams is not None:
                chip.streams.used(chip.streams.current(), [handle])
        return True

    def _copy(self, target: int, source: int, nbytes: int, kind: str, stream: Any) -> None:
        self._runtime.memcpyAsync(target, source, nbytes, getattr(self._runtime, f"memcpy{kind}"), stream.ptr)

    def _stream_of(self, handle: Handle) -> Any:
        """Where the host's copies go: after everything that other streams do with this memory."""
        return self.main if self.streams is None else self.streams.for_host(handle).queue

    def notes(self) -> list[str]:
        return self.libraries.notes()

    def memory_info(self) -> tuple[int, int]:
        with self.card:
            free, total = self._runtime.memGetInfo()
        return int(free), int(total)

    def reserved_bytes(self) -> int | None:
        with self.card:
            return int(self._pool.total_bytes())

    def empty_cache(self) -> None:
        self.synchronize()
        with self.card:
            with self._lock:
                self._staged.clear()
            self._pool.free_all_blocks()
            self._pinned.free_all_blocks()

    # -- streams ------------------------------------------------------------------------------------------------
    def default_stream(self) -> Any:
        return self.main

    def make_stream(self, priority: int) -> Any:
        with self.card:  # non-blocking: the default stream does not wait for it, nor it for the default stream
            return self._cupy.cuda.Stream(non_blocking=True, priority=priority)

    def _record(self, stream: Any) -> Any:
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def record_event(self, stream: Any) -> Any:
        with self.card:
            return self._record(stream)

    def wait_event(self, stream: Any, event: Any) -> None:
        with self.card:
            stream.wait_event(event)

    def event_done(self, event: Any) -> bool:
        return bool(event.done)

    def finish_event(self, event: Any) -> None:
        event.synchronize()

    def when_done(self, event: Any, callback: Callable[[], None]) -> None:
        """A thread that waits: a function called by the driver may not call the driver, and Python might."""

        def wait() -> None:
            event.synchronize()
            callback()

        threading.Thread(target=wait, daemon=True).start()

    def finish_stream(self, stream: Any) -> None:
        with self.card:
            stream.synchronize()

    def synchronize(self) -> None:
        with self.card:
            self._runtime.deviceSynchronize()

    # -- kernels ------------------------------------------------------------------------------------------------
    def compile(self, source: str) -> Any:
        with self.card:
            module = self._cupy.cuda.function.Module()
            module.load(self._binary(source))
        return _Program(module)

    def _binary(self, source: str) -> bytes:
        """What the compiler makes of a source for this card; kept on disk."""
        compiler = self._cupy.cuda.compiler
        versions = (self._cupy.__version__, self._runtime.runtimeGetVersion(), self.properties.capability)
        key = hashlib.sha256(repr((source, _OPTIONS, versions, self.properties.name)).encode()).hexdigest()[:32]
        kept: Path = settings.cache_dir() / f"{self.name}-{key}.bin"
        if kept.exists():
            return kept.read_bytes()
        binary: bytes = compiler.compile_using_nvrtc(source, _OPTIONS, None, "torch_fl.cu")[0]
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{threading.get_ident()}.part")
        part.write_bytes(binary)
        part.replace(kept)  # atomic: two processes may build the same kernel
        return binary

    def bind(
        self, program: Any, name: str, grid: tuple[int, int, int], args: Sequence[KernelArg], local: int = 0
    ) -> Launcher:
        with self.card:
            kernel = program.kernel(name)
        blocks, block = lines_of_blocks(grid, 1 if local else BLOCK), (local or BLOCK,)
        buffers = [(a.slot, a.offset, a.itemsize) for a in args if isinstance(a, BufferArg)]
        struct, values_at = scalars(args, grid)
        fixed = _by_value(struct)
        card, mine, current, here = self.card, self._index, self._runtime.getDevice, self

        def by_value(values: Sequence[Any]) -> Any:
            data = bytearray(struct)  # a new one: two threads may launch at once
            for at, get in values_at:
                packed = get(values)
                data[at : at + len(packed)] = packed
            return _by_value(data)

        def launch(pointers: Sequence[Any], queue: Any) -> None:
            if current() == mine:
                kernel(blocks, block, pointers, stream=queue)
            else:
                with card:
                    kernel(blocks, block, pointers, stream=queue)

        def run(handles: Sequence[Handle], offsets: Sequence[int], values: Sequence[Any]) -> None:
            full: list[Any] = [handles[s].ptr + (offsets[s] + extra) * size for s, extra, size in buffers]
            full.append(by_value(values) if values_at else fixed)
            streams = here.streams
            if streams is None:
                launch(full, here.main)
            else:
                stream = streams.current()
                launch(full, stream.queue)
                streams.used(stream, [handles[s] for s, _, _ in buffers])

        return run

    def close(self) -> None:
        self.empty_cache()
