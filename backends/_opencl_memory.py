"""Device memory of OpenCL: the driver's own, and memory that a driver on the CPU shares with the host."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from torch_fl.runtime.adapter import Handle, host_bytes

from . import _huge_pages as huge_pages
from ._opencl_queue import Queue


class DeviceMemory:
    """Memory of a card: pyopencl's pool, and copies on the queue."""

    def __init__(self, cl: Any, queue: Queue) -> None:
        from pyopencl.tools import ImmediateAllocator, MemoryPool

        self._pool = MemoryPool(ImmediateAllocator(queue.driver))
        self.take = self._pool.allocate

    def write(self, queue: Queue, handle: Handle, byte_offset: int, source: memoryview) -> None:
        queue.copy(handle, source, dst_offset=byte_offset, is_blocking=True)

    def read(self, queue: Queue, target: memoryview, handle: Handle, byte_offset: int) -> None:
        queue.copy(target, handle, src_offset=byte_offset, is_blocking=True)

    def reserved(self) -> int | None:
        return int(self._pool.managed_bytes)

    def free(self, device: Any) -> int:
        """Free bytes of the card: as AMD's driver counts, elsewhere all that this process has not taken."""
        try:
            return int(device.global_free_memory_amd[0]) << 10
        except Exception:  # noqa: BLE001 - each driver raises its own type for a query it does not know
            return max(0, int(device.global_mem_size) - int(self._pool.managed_bytes))

    def drop(self) -> None:
        self._pool.free_held()


class HostMemory:
    """Memory of a driver that runs on the CPU: after a finish the host reads and writes it directly.

    A copy on the queue wakes the driver's worker (12 to 80 us); an idle finish is a tenth of a microsecond.
    """

    def __init__(self, cl: Any, queue: Queue) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        access = cl.map_flags.READ | cl.map_flags.WRITE
        context = queue.driver.context
        mapping = cl.CommandQueue(context)  # of its own: a new block waits for nothing that was launched

        class Block(cl.Buffer):  # type: ignore[misc]
            __slots__ = ("address", "bytes", "pointer")

        def take(nbytes: int) -> Handle:
            block = Block(context, flags, nbytes)
            mapped, _ = cl.enqueue_map_buffer(mapping, block, access, 0, (nbytes,), np.uint8, is_blocking=True)
            block.pointer = block.int_ptr
            block.address = mapped.ctypes.data
            block.bytes = host_bytes(block.address, nbytes)
            huge_pages.wish(block.address, nbytes)
            mapped.base.release(mapping)
            mapping.finish()  # kernels of other queues may not write before
            return block

        self.take = take
        self.addresses = queue.driver.device.platform.name == "Portable Computing Language"
        """Whether the host's address of a block is also that of the kernels: PoCL on the CPU has no other memory."""

    def write(self, queue: Queue, handle: Handle, byte_offset: int, source: memoryview) -> None:
        queue.finish()
        handle.bytes[byte_offset : byte_offset + source.nbytes] = source

    def read(self, queue: Queue, target: memoryview, handle: Handle, byte_offset: int) -> None:
        queue.finish()
        target[:] = handle.bytes[byte_offset : byte_offset + target.nbytes]

    def reserved(self) -> int | None:
        return None

    def free(self, device: Any) -> int:
        """Free bytes of the host's memory, of which the driver offers a part."""
        pages = os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", ()) else 0
        return min(int(device.global_mem_size), pages * os.sysconf("SC_PAGE_SIZE") if pages else 1 << 62)

    def drop(self) -> None:
        """The core holds the free blocks."""

    def works(self, cl: Any, queue: Queue) -> bool:
        """Whether queue and host see each other's writes: drivers are free to keep a copy of their own."""
        block, data, back = self.take(64), np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
        self.write(queue, block, 0, data.data)
        cl.enqueue_copy(queue.driver, back, block, is_blocking=True)
        seen = bytes(back) == bytes(data)
        cl.enqueue_copy(queue.driver, block, data[::-1].copy(), is_blocking=True)
        self.read(queue, back.data, block, 0)
        return seen and bytes(back) == bytes(data[::-1])


def memory_of(cl: Any, queue: Queue, cpu: bool) -> DeviceMemory | HostMemory:
    """The memory of a device: shared with the host where the driver runs on the CPU and keeps no copy of its own."""
    if cpu:
        shared = HostMemory(cl, queue)
        if shared.works(cl, queue):
            return shared
    return DeviceMemory(cl, queue)


def allocator(cl: Any, take: Callable[[int], Handle]) -> Any:
    """`take` with the driver's errors about memory as MemoryError."""
    full, error, too_large = cl.MemoryError, cl.LogicError, cl.status_code.INVALID_BUFFER_SIZE

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
