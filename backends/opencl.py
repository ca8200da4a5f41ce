"""OpenCL devices through PyOpenCL: discrete cards, integrated GPUs, and PoCL on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch_fl.runtime.adapter import Backend, Discovery, Handle, KernelArg, Launcher, Properties

from . import _opencl_discovery
from ._opencl_direct import direct
from ._opencl_inline import MAX_ITEMS, Inline, Program, Thread, inline_device
from ._opencl_invokers import keep_invokers
from ._opencl_launch import Arguments, Submit, submitter
from ._opencl_memory import HostMemory, allocator, memory_of
from ._opencl_queue import Queue


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
        cpu = properties.kind == "cpu"
        inline = inline_device(properties.handle) if cpu else None
        self.context = cl.Context([properties.handle] if inline is None else [properties.handle, inline])
        burst, small, lock = (16, 4, threading.RLock()) if cpu else (1, 0, threading.RLock())
        self._queue_options = (cl, self.context, properties.handle, burst, small, lock)
        self.main = Queue(*self._queue_options)
        self._queues = [self.main]
        self._thread = Thread(cl, self.context, inline) if inline is not None else None
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
        return Program(
            lambda devices: self._cl.Program(self.context, source).build(options=options, devices=devices),
            self.properties.handle,
        )

    def bind(
        self, program: Program, name: str, grid: tuple[int, int, int], args: Sequence[KernelArg], local: int = 0
    ) -> Launcher:
        passed = Arguments([*args, grid[0].to_bytes(8, "little")])
        block = local or self._block
        size = (grid[0] * local or -(-grid[0] // block) * block, grid[1], grid[2])
        per_group = (block, 1, 1)
        if grid[1] == grid[2] == 1:
            size, per_group = size[:1], per_group[:1]  # type: ignore[assignment]

        def bound(built: Any) -> Submit:
            return submitter(self._cl, self._cl.Kernel(built, name), passed, size, per_group)

        items = grid[0] * grid[1] * grid[2] * (local or 1)
        small = items <= self.main.small and not passed.held  # a launch that waits holds its buffers, but not those
        inline = None
        if self._thread is not None and items <= MAX_ITEMS and not passed.held:
            inline = Inline(self._thread, self.main, program, bound)
        launcher = self._launcher(passed, bound(program.main), small, inline)
        return (
            launcher if inline is None else direct(launcher, self, self.main, inline, passed, name, (size, per_group))
        )

    def _launcher(self, args: Arguments, submit: Submit, small: bool, inline: Inline | None) -> Launcher:
        """What a plan calls: the launch in this thread where that is open, else on the queue of the current stream."""
        slots, offsets_at, values_at, straight = args.slots, args.offsets_at, args.values_at, args.straight
        addresses_at, held = args.addresses_at, args.held
        none: list[bytes] = []
        main, here = self.main, self

        def run(handles: Sequence[Handle], offsets: Sequence[int], values: Sequence[Any]) -> None:
            if len(handles) == straight:
                found, wanted = handles, offsets
            else:
                found = [handles[slot] for slot in slots]
                wanted = [offsets[slot] + extra for _, slot, extra in offsets_at]
            packed = [get(values) for _, get in values_at] if values_at else none
            if held:
                packed = packed + [get(handles, offsets) for _, get in addresses_at]
            if here.streams is not None:
                stream = here.streams.current()
                stream.queue.add(small, (submit, found, wanted, packed))
                here.streams.used(stream, [*found, *(handles[slot] for slot in held)])
            elif inline is None or inline.run is None:
                main.add(small, (submit, found, wanted, packed))
            elif not inline.run(found, wanted, packed):
                main.add(small, (submit, found, wanted, packed), inline.run is not None)

        return run

    def close(self) -> None:
        self.empty_cache()
