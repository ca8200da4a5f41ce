"""Memory of one device: buffers, what is in use, the limit, and a cache of free blocks for drivers that have none.

Buffers are freed by Python, from any thread and in the middle of anything, so giving back takes no lock: a counter
and a list append. CPython switches threads at calls and jumps only, so `x.active -= n` is one step.
"""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

from ..errors import OutOfMemoryError, message

if TYPE_CHECKING:
    from .devices import Device

Shelf = list[Any]
"""Free handles of one size."""

MAX_SIZES = 1 << 14
"""Requested sizes whose shelf is remembered."""


class Buffer:
    """Raw device memory. Views of one allocation share the Buffer; it is freed with the last of them."""

    __slots__ = ("__weakref__", "device", "handle", "nbytes", "shelf")

    def __init__(self, device: Device, handle: Any, nbytes: int, shelf: Shelf | None = None) -> None:
        self.device = device
        self.handle = handle
        self.nbytes = nbytes
        self.shelf = shelf
        memory = device.memory
        memory.active += nbytes
        if memory.active > memory.peak:
            memory.peak = memory.active

    def __del__(self) -> None:
        try:
            self.device.memory.active -= self.nbytes
        except AttributeError:  # an interrupt came before __init__
            return
        if self.shelf is not None:
            self.shelf.append(self.handle)


def rounded(nbytes: int) -> int:
    """Size of the block that serves `nbytes`: at least 512, and at most a quarter more than asked for."""
    if nbytes <= 512:
        return 512
    step = 1 << ((nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


class Memory:
    """Allocation and counters of one device. `limit` in bytes in use, None for what the chip has."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.backend = device.backend
        self.active = 0
        self.peak = 0
        self._peak_reserved = 0
        self.limit: int | None = None
        self.caches = device.backend.reserved_bytes() is None
        """Whether free blocks are kept here: the adapter has no pool of its own."""
        self._taken = 0
        self._shelves: dict[int, Shelf] = {}
        self._shelf_of: dict[int, Shelf] = {}
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> Buffer:
        """A Buffer of at least `nbytes`, contents undefined. Raises OutOfMemoryError when nothing can be freed."""
        if self.limit is not None and self.active + nbytes > self.limit:
            self._collect(nbytes, self.limit)
        shelf = self._shelf_of.get(nbytes)
        if shelf:
            try:
                return Buffer(self.device, shelf.pop(), nbytes, shelf)
            except IndexError:  # another thread was faster
                pass
        if not self.caches:
            return Buffer(self.device, self._from_driver(nbytes or 1), nbytes)
        return self._cached(nbytes)

    def _cached(self, nbytes: int) -> Buffer:
        """A block from the shelf of its size, else a new one; the shelf is remembered for `nbytes`."""
        room = rounded(nbytes)
        with self._lock:
            shelf = self._shelves.setdefault(room, [])
            if len(self._shelf_of) >= MAX_SIZES:
                self._shelf_of.clear()
            self._shelf_of[nbytes] = shelf
            try:
                handle = shelf.pop()
            except IndexError:
                self._make_room(room)
                handle = self._from_driver(room)
                self._taken += room
        return Buffer(self.device, handle, nbytes, shelf)

    def _make_room(self, room: int) -> None:
        """Host memory is overcommitted: without a check the system would end the process instead of refusing."""
        total = self.device.properties.total_memory
        if not total:
            return
        if self._taken - self.active > total // 4 or self._taken + room > total:
            self.empty_cache()
        if self._taken + room > total:
            gc.collect()
            self.empty_cache()
            self._recount()
        if self._taken + room > total:
            raise self.out_of_memory(room, "the chip has no more")

    def _collect(self, nbytes: int, limit: int) -> None:
        gc.collect()
        self._recount()
        if self.active + nbytes > limit:
            raise self.out_of_memory(nbytes, f"the limit is {limit} bytes")

    def _from_driver(self, nbytes: int) -> Any:
        try:
            return self.backend.allocate(nbytes)
        except MemoryError:
            gc.collect()
            self.empty_cache()
        try:
            return self.backend.allocate(nbytes)
        except MemoryError as error:
            raise self.out_of_memory(nbytes, str(error)) from None

    def out_of_memory(self, nbytes: int, because: str) -> OutOfMemoryError:
        """The error for a request of `nbytes` that cannot be served."""
        free, total = self.backend.memory_info()
        reason = f"{because}; " if because else ""
        return OutOfMemoryError(
            message(
                f"{self.device!r} is out of memory: {nbytes} bytes were asked for",
                because=f"{reason}{self.active} bytes are in use, {self.reserved()} are taken from the driver, "
                f"{free} of {total} are free",
                hint="a smaller batch, or del tensors that are not needed and torch.npu.empty_cache()",
            )
        )

    def reserved(self) -> int:
        """Bytes taken from the driver, cached ones included."""
        own = self.backend.reserved_bytes()
        return self._taken if own is None else own

    def _recount(self) -> None:
        """Counters from the buffers that exist: a Ctrl-C that hits a finalizer makes it skip its part."""
        mine = [b for b in gc.get_objects() if type(b) is Buffer and b.device is self.device]
        self.active = sum(b.nbytes for b in mine)
        if self.caches:
            kept = sum(room * len(shelf) for room, shelf in self._shelves.items())
            self._taken = kept + sum(rounded(b.nbytes) for b in mine)

    def peak_reserved(self) -> int:
        """Most bytes taken from the driver at once: they only grow between two calls of `empty_cache`."""
        self._peak_reserved = max(self._peak_reserved, self.reserved())
        return self._peak_reserved

    def reset_peak(self) -> None:
        """Start `peak` and `peak_reserved` anew."""
        self.peak = self.active
        self._peak_reserved = 0

    def empty_cache(self) -> None:
        """Give memory that no buffer uses back to the driver."""
        self.peak_reserved()
        self.backend.synchronize()
        with self._lock:
            for room, shelf in list(self._shelves.items()):
                while shelf:
                    try:
                        shelf.pop()
                    except IndexError:
                        break
                    self._taken -= room
        self.backend.empty_cache()
