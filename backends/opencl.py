"""OpenCL devices through PyOpenCL: discrete cards, integrated GPUs, and PoCL on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch_fl.kernels.source import FIELD
from torch_fl.runtime.adapter import (
    AddressArg,
    Backend,
    BufferArg,
    Discovery,
    Handle,
    KernelArg,
    Launcher,
    Properties,
    ValueArg,
)

from . import _opencl_discovery
from ._opencl_invokers import keep_invokers
from ._opencl_memory import HostMemory, allocator, memory_of
from ._opencl_queue import Queue


Places = list[tuple[int, Any]]
"""Byte in the struct of a kernel's scalars, and what gets what goes there."""


def _scalars(args: Sequence[KernelArg]) -> tuple[bytearray, list[tuple[int, int, int]], Places, Places]:
    """The struct of a kernel's scalars as `render` lays it out: its bytes, where offsets go (byte, slot, extra), where
    launch-time values go, and where addresses of buffers do."""
    data = bytearray()
    offsets_at: list[tuple[int, int, int]] = []
    values_at: Places = []
    addresses_at: Places = []
    for a in args:
        if isinstance(a, BufferArg):
            offsets_at.append((len(data), a.slot, a.offset))
        elif isinstance(a, ValueArg):
            values_at.append((len(data), a.get))
        elif isinstance(a, AddressArg):
            addresses_at.append((len(data), a.get))
        data += a if isinstance(a, bytes) else bytes(FIELD if isinstance(a, BufferArg) else a.nbytes)
        data += bytes(-len(data) % FIELD)
    return data, offsets_at, values_at, addresses_at


class OpenCL(Backend):
    """One OpenCL device: an in-order queue for each stream."""

    name = "opencl"
    family = "opencl"
    dialect = "opencl"
    preference = 20

    @classmethod
    def discover(cls) -> Discovery:
        return _opencl_discovery.discover()

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        import pyopencl as cl

        keep_invokers()
        self._cl = cl
        self.driver_errors = (cl.Error,)
        self.memory_errors = (cl.MemoryError,)
        self.context = cl.Context([properties.handle])
        cpu = properties.kind == "cpu"
        burst, small, lock = (16, 4, threading.RLock()) if cpu else (1, 0, threading.RLock())
        self._queue_options = (cl, self.context, properties.handle, burst, small, lock)
        self.main = Queue(*self._queue_options)
        self._queues = [self.main]
        self._memory = memory_of(cl, self.main, cpu)
        self.allocate = allocator(cl, self._memory.take)  # type: ignore[method-assign]
        self.addresses = isinstance(self._memory, HostMemory) and self._memory.addresses
        self._block = 1 if cpu else min(64, properties.handle.max_work_group_size)
        self.groups = properties.handle.max_work_group_size >= 256 and properties.handle.local_mem_size >= 32 << 10

    # -- memory -------------------------------------------------------------------------------------------------
    def allocate(self, nbytes: int) -> Handle:
        return self._memory.take(nbytes)  # replaced per instance in __init__, which saves a call on every use

    def copy_h2d(self, handle: Handle, byte_offset: int, source: memoryview) -> None:
        self._memory.write(self._queue_of(handle), handle, byte_offset, source)

    def copy_d2h(self, target: memoryview, handle: Handle, byte_offset: int) -> None:
        self._memory.read(self._queue_of(handle), target, handle, byte_offset)

    def copy_d2d(self, target: Handle, target_offset: int, source: Handle, source_offset: int, nbytes: int) -> None:
        options = {"byte_count": nbytes, "src_offset": source_offset, "dst_offset": target_offset}
        streams = self.streams
        if streams is None:
            return self.main.copy(target, source, **options)
        stream = streams.current()
        stream.queue.copy(target, source, **options)
        return streams.used(stream, (target, source))

    def _queue_of(self, handle: Handle) -> Queue:
        """Where the host's copies go: after everything that other streams do with this memory."""
        return self.main if self.streams is None else self.streams.for_host(handle).queue

    def memory_info(self) -> tuple[int, int]:
        return self._memory.free(self.properties.handle), self.properties.total_memory

    def reserved_bytes(self) -> int | None:
        return self._memory.reserved()

    def empty_cache(self) -> None:
        self.synchronize()
        self._memory.drop()

    # -- streams ------------------------------------------------------------------------------------------------
    def default_stream(self) -> Queue:
        return self.main

    def make_stream(self, priority: int) -> Queue:
        self._queues.append(Queue(*self._queue_options))
        return self._queues[-1]

    def record_event(self, stream: Queue) -> Any:
        return stream.record()

    def wait_event(self, stream: Queue, event: Any) -> None:
        stream.wait(event)

    def event_done(self, event: Any) -> bool:
        done: bool = event.command_execution_status <= self._cl.command_execution_status.COMPLETE
        return done

    def finish_event(self, event: Any) -> None:
        event.wait()

    def when_done(self, event: Any, callback: Callable[[], None]) -> None:
        event.set_callback(self._cl.command_execution_status.COMPLETE, lambda status: callback())

    def finish_stream(self, stream: Queue) -> None:
        stream.finish()

    def synchronize(self) -> None:
        for queue in self._queues:
            queue.finish()

    # -- kernels ------------------------------------------------------------------------------------------------
    def compile(self, source: str) -> Any:
        options = ["-cl-std=CL1.2"]
        if "double" not in source:
            options.append("-cl-single-precision-constant")
        return self._cl.Program(self.context, source).build(options=options)

    def bind(
        self, program: Any, name: str, grid: tuple[int, int, int], args: Sequence[KernelArg], local: int = 0
    ) -> Launcher:
        kernel = self._cl.Kernel(program, name)
        set_arg, set_bytes = kernel.set_arg, kernel._set_arg_buf
        buffers = [a.slot for a in args if isinstance(a, BufferArg)]
        scalars, offsets_at, values_at, addresses_at = _scalars([*args, grid[0].to_bytes(8, "little")])
        held = [slot for a in args if isinstance(a, AddressArg) for slot in a.slots]
        struct = len(buffers)
        set_bytes(struct, scalars)
        block = local or self._block
        size = (grid[0] * local or -(-grid[0] // block) * block, grid[1], grid[2])
        per_group = (block, 1, 1)
        if grid[1] == grid[2] == 1:
            size, per_group = size[:1], per_group[:1]  # type: ignore[assignment]
        places = [at for at, _ in values_at + addresses_at]
        last: list[Any] = [[0] * len(offsets_at), [b""] * len(places)]
        enqueue = self._cl.enqueue_nd_range_kernel

        def submit(queue: Any, found: Sequence[Handle], wanted: list[int], packed: list[bytes]) -> Any:
            for i, handle in enumerate(found):
                set_arg(i, handle)
            if wanted != last[0] or packed != last[1]:
                last[:] = wanted, packed
                for (at, _, _), offset in zip(offsets_at, wanted):
                    scalars[at : at + 8] = offset.to_bytes(8, "little")
                for at, data in zip(places, packed):
                    scalars[at : at + len(data)] = data
                set_bytes(struct, scalars)
            return enqueue(queue, kernel, size, per_group)

        none: list[bytes] = []
        small = not (local or held) and grid[0] * grid[1] * grid[2] <= self.main.small
        add, here = self.main.add, self

        def run(handles: Sequence[Handle], offsets: Sequence[int], values: Sequence[Any]) -> None:
            found = [handles[slot] for slot in buffers]
            wanted = [offsets[slot] + extra for _, slot, extra in offsets_at]
            packed = [get(values) for _, get in values_at] if values_at else none
            if held:
                packed = packed + [get(handles, offsets) for _, get in addresses_at]
            launch = (submit, found, wanted, packed)
            streams = here.streams
            if streams is None:
                add(small, launch)
            else:
                stream = streams.current()
                stream.queue.add(small, launch)
                streams.used(stream, found + [handles[slot] for slot in held])

        return run

    def close(self) -> None:
        self.empty_cache()
