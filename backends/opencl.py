"""OpenCL devices through PyOpenCL: discrete cards, integrated GPUs, and PoCL on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torch_fl.kernels.source import FIELD
from torch_fl.runtime.adapter import (
    Backend,
    BufferArg,
    Discovery,
    Handle,
    KernelArg,
    Launcher,
    Properties,
    ValueArg,
    host_bytes,
)

from ._pocl_target import name_the_cpu


def _kind(cl: Any, device: Any) -> str:
    kinds = {cl.device_type.GPU: "gpu", cl.device_type.CPU: "cpu", cl.device_type.ACCELERATOR: "accelerator"}
    return next((name for bit, name in kinds.items() if device.type & bit), "accelerator")


def _fingerprint(device: Any) -> str:
    for name in ("pci_bus_id_nv", "pci_slot_id_nv", "topology_amd"):
        try:
            value = getattr(device, name)
        except Exception:  # noqa: BLE001 - each driver raises its own type for a query it does not know
            continue
        bus = getattr(value, "bus", value)
        return f"pci:{bus}"
    return f"{device.vendor}:{device.name}"


def _properties(cl: Any, device: Any, nth: int) -> Properties:
    extensions = device.extensions.split()
    kind = _kind(cl, device)
    mark = _fingerprint(device)
    return Properties(
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        driver=f"{device.platform.name} {device.driver_version}".strip(),
        kind=kind,
        total_memory=device.global_mem_size,
        compute_units=device.max_compute_units,
        local_memory=device.local_mem_size,
        fp64="cl_khr_fp64" in extensions,
        fp16="cl_khr_fp16" in extensions,
        int64_atomics="cl_khr_int64_base_atomics" in extensions,
        host_memory=kind == "cpu" or bool(device.host_unified_memory),
        fingerprint=f"cpu:{nth}" if kind == "cpu" else mark,
        handle=device,
    )


class _DeviceMemory:
    """Memory of a card: pyopencl's pool, and copies on the queue."""

    def __init__(self, cl: Any, queue: Any, finish: Callable[[], None] | None = None) -> None:
        from pyopencl.tools import ImmediateAllocator, MemoryPool

        self._cl = cl
        self._queue = queue
        self._before = finish or (lambda: None)
        self._pool = MemoryPool(ImmediateAllocator(queue))
        self.take = self._pool.allocate

    def write(self, handle: Handle, byte_offset: int, source: memoryview) -> None:
        self._before()
        self._cl.enqueue_copy(self._queue, handle, source, dst_offset=byte_offset, is_blocking=True)

    def read(self, target: memoryview, handle: Handle, byte_offset: int) -> None:
        self._before()
        self._cl.enqueue_copy(self._queue, target, handle, src_offset=byte_offset, is_blocking=True)

    def reserved(self) -> int | None:
        return int(self._pool.managed_bytes)

    def drop(self) -> None:
        self._pool.free_held()


class _HostMemory:
    """Memory of a driver that runs on the CPU: after a finish the host reads and writes it directly.

    A copy on the queue wakes the driver's worker (12 to 80 us); an idle finish is a tenth of a microsecond.
    """

    def __init__(self, cl: Any, queue: Any, finish: Callable[[], None]) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        access = cl.map_flags.READ | cl.map_flags.WRITE
        context = queue.context
        self._finish = finish

        class Block(cl.Buffer):  # type: ignore[misc]
            __slots__ = ("bytes",)

        def take(nbytes: int) -> Handle:
            block = Block(context, flags, nbytes)
            mapped, _ = cl.enqueue_map_buffer(queue, block, access, 0, (nbytes,), np.uint8, is_blocking=True)
            block.bytes = host_bytes(mapped.ctypes.data, nbytes)
            mapped.base.release(queue)
            return block

        self.take = take

    def write(self, handle: Handle, byte_offset: int, source: memoryview) -> None:
        self._finish()
        handle.bytes[byte_offset : byte_offset + source.nbytes] = source

    def read(self, target: memoryview, handle: Handle, byte_offset: int) -> None:
        self._finish()
        target[:] = handle.bytes[byte_offset : byte_offset + target.nbytes]

    def reserved(self) -> int | None:
        return None

    def drop(self) -> None:
        """The core holds the free blocks."""

    def works(self, cl: Any, queue: Any) -> bool:
        """Whether queue and host see each other's writes: drivers are free to keep a copy of their own."""
        block, data, back = self.take(64), np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
        self.write(block, 0, data.data)
        cl.enqueue_copy(queue, back, block, is_blocking=True)
        seen = bytes(back) == bytes(data)
        cl.enqueue_copy(queue, block, data[::-1].copy(), is_blocking=True)
        self.read(back.data, block, 0)
        return seen and bytes(back) == bytes(data[::-1])


def _memory(cl: Any, queue: Any, finish: Callable[[], None]) -> _DeviceMemory | _HostMemory:
    shared = _HostMemory(cl, queue, finish)
    return shared if shared.works(cl, queue) else _DeviceMemory(cl, queue, finish)


def _scalars(args: Sequence[KernelArg]) -> tuple[bytearray, list[tuple[int, int, int]], list[tuple[int, Any]]]:
    """The struct of a kernel's scalars as `render` lays it out: its bytes, where offsets go (byte, slot, extra), and
    where launch-time values go (byte, getter)."""
    data = bytearray()
    offsets_at: list[tuple[int, int, int]] = []
    values_at: list[tuple[int, Any]] = []
    for a in args:
        if isinstance(a, BufferArg):
            offsets_at.append((len(data), a.slot, a.offset))
        elif isinstance(a, ValueArg):
            values_at.append((len(data), a.get))
        data += a if isinstance(a, bytes) else bytes(FIELD)
        data += bytes(-len(data) % FIELD)
    return data, offsets_at, values_at


class _Launches:
    """Launches on their way to the queue, in order: a CPU driver gets small ones in bursts.

    Its worker sleeps when the queue runs dry, and waking it costs more than a small kernel. Whoever reads, writes or
    waits calls `flush` first, so values and order are those of launching at once. Waiting launches hold their buffers.
    """

    def __init__(self, burst: int, small: int) -> None:
        self.burst = burst
        self.small = small
        self._waiting: list[tuple[Any, ...]] = []
        self._lock = threading.RLock()

    def add(self, small: bool, launch: tuple[Any, list[Handle], list[int], Sequence[bytes]]) -> None:
        """Launch now or with the next burst: a function, and the handles, offsets and values to call it with."""
        with self._lock:
            self._waiting.append(launch)
            if not small or len(self._waiting) >= self.burst:
                self.flush()

    def flush(self) -> None:
        """Hand everything that waits to the queue. A launch that fails is raised; those after it stay."""
        with self._lock:
            waiting, done = self._waiting, 0
            try:
                for submit, handles, offsets, values in waiting:
                    done += 1
                    submit(handles, offsets, values)
            finally:
                del waiting[:done]


class OpenCL(Backend):
    """One OpenCL device with one in-order queue."""

    name = "opencl"
    family = "opencl"
    dialect = "opencl"
    preference = 20

    @classmethod
    def discover(cls) -> Discovery:
        try:
            import pyopencl as cl
        except Exception as error:  # noqa: BLE001 - a broken driver library fails the import in many ways
            return Discovery(absent=f"pyopencl cannot be imported ({error}); pip install 'torch_fl[cpu]' or [opencl]")
        try:
            platforms = cl.get_platforms()
        except cl.Error as error:
            return Discovery(absent=f"no OpenCL platform ({error}); install the card's driver or torch_fl[cpu]")
        found: list[Properties] = []
        cpu_platform = None
        for platform in platforms:
            try:
                devices = platform.get_devices()
            except cl.Error:
                continue
            for device in devices:
                # Every CPU driver shows the same CPU: take the first platform's view of it and no other.
                if device.type & cl.device_type.CPU:
                    cpu_platform = cpu_platform or platform
                    if platform != cpu_platform:
                        continue
                    name_the_cpu(device.int_ptr)
                nth = sum(p.kind == "cpu" for p in found)
                found.append(_properties(cl, device, nth))
        found.sort(key=lambda p: ("gpu", "accelerator", "cpu").index(p.kind))
        return Discovery(tuple(found), "" if found else "OpenCL platforms are present but list no device")

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        import pyopencl as cl

        self._cl = cl
        self.driver_errors = (cl.Error,)
        self.memory_errors = (cl.MemoryError,)
        self.context = cl.Context([properties.handle])
        self.queue = cl.CommandQueue(self.context, properties.handle)
        cpu = properties.kind == "cpu"
        self.launches = _Launches(burst=16 if cpu else 1, small=4 if cpu else 0)
        self._memory = _memory(cl, self.queue, self.synchronize) if cpu else _DeviceMemory(cl, self.queue)
        self.allocate = self._allocator()  # type: ignore[method-assign]
        self.copy_h2d = self._memory.write  # type: ignore[method-assign]
        self.copy_d2h = self._memory.read  # type: ignore[method-assign]
        self._block = 1 if properties.kind == "cpu" else min(64, properties.handle.max_work_group_size)

    def _allocator(self) -> Any:
        take, full, error = self._memory.take, self._cl.MemoryError, self._cl.LogicError
        too_large = self._cl.status_code.INVALID_BUFFER_SIZE

        def allocate(nbytes: int) -> Handle:
            try:
                return take(nbytes)
            except full as failed:
                raise MemoryError(str(failed)) from failed
            except error as failed:
                if failed.code != too_large:
                    raise
                raise MemoryError(str(failed)) from failed

        return allocate

    # Replaced per instance in __init__, which saves a call on every use.
    def allocate(self, nbytes: int) -> Handle:
        return self._memory.take(nbytes)

    def copy_h2d(self, handle: Handle, byte_offset: int, source: memoryview) -> None:
        self._memory.write(handle, byte_offset, source)

    def copy_d2h(self, target: memoryview, handle: Handle, byte_offset: int) -> None:
        self._memory.read(target, handle, byte_offset)

    def copy_d2d(self, target: Handle, target_offset: int, source: Handle, source_offset: int, nbytes: int) -> None:
        self.launches.flush()
        self._cl.enqueue_copy(
            self.queue, target, source, byte_count=nbytes, src_offset=source_offset, dst_offset=target_offset
        )

    def synchronize(self) -> None:
        self.launches.flush()
        self.queue.finish()

    def compile(self, source: str) -> Any:
        options = ["-cl-std=CL1.2"]
        if "double" not in source:
            options.append("-cl-single-precision-constant")
        return self._cl.Program(self.context, source).build(options=options)

    def bind(self, program: Any, name: str, grid: tuple[int, int, int], args: Sequence[KernelArg]) -> Launcher:
        kernel = self._cl.Kernel(program, name)
        set_arg, set_bytes = kernel.set_arg, kernel._set_arg_buf
        buffers = [a.slot for a in args if isinstance(a, BufferArg)]
        scalars, offsets_at, values_at = _scalars([*args, grid[0].to_bytes(8, "little")])
        struct = len(buffers)
        set_bytes(struct, scalars)
        block = self._block
        size = (-(-grid[0] // block) * block, grid[1], grid[2])
        local = (block, 1, 1)
        if grid[1] == grid[2] == 1:
            size, local = size[:1], local[:1]  # type: ignore[assignment]
        last: list[Any] = [[0] * len(offsets_at), [b""] * len(values_at)]
        launches, enqueue, queue = self.launches, self._cl.enqueue_nd_range_kernel, self.queue

        def submit(found: Sequence[Handle], wanted: list[int], packed: list[bytes]) -> None:
            for i, handle in enumerate(found):
                set_arg(i, handle)
            if wanted != last[0] or packed != last[1]:
                last[:] = wanted, packed
                for (at, _, _), offset in zip(offsets_at, wanted):
                    scalars[at : at + 8] = offset.to_bytes(8, "little")
                for (at, _), data in zip(values_at, packed):
                    scalars[at : at + len(data)] = data
                set_bytes(struct, scalars)
            enqueue(queue, kernel, size, local)

        none: list[bytes] = []
        small = grid[0] * grid[1] * grid[2] <= launches.small
        add = launches.add

        def run(handles: Sequence[Handle], offsets: Sequence[int], values: Sequence[Any]) -> None:
            found = [handles[slot] for slot in buffers]
            wanted = [offsets[slot] + extra for _, slot, extra in offsets_at]
            add(small, (submit, found, wanted, [get(values) for _, get in values_at] if values_at else none))

        return run

    def memory_info(self) -> tuple[int, int]:
        total = self.properties.total_memory
        return max(0, total - (self._memory.reserved() or 0)), total

    def reserved_bytes(self) -> int | None:
        return self._memory.reserved()

    def empty_cache(self) -> None:
        self.synchronize()
        self._memory.drop()

    def close(self) -> None:
        self.synchronize()
        self._memory.drop()
