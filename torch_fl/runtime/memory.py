"""Memory of one device: what is in use, the limits, and the free blocks that are kept for reuse."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..errors import OutOfMemoryError, message
from .buffers import Allocator, Buffer, Counters, Shelf

if TYPE_CHECKING:
    from .device import Device
    from .streams import Streams

MAX_SIZES = 1 << 14
"""Requested sizes whose shelf is remembered."""


def rounded(nbytes: int) -> int:
    """Size of the block that serves `nbytes`: at least 512, and at most a quarter more than asked for."""
    if nbytes <= 512:
        return 512
    step = 1 << ((nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


class FreeBlocks:
    """Free blocks of one stream: a shelf per block size, found by the size that was asked for."""

    def __init__(self) -> None:
        self.by_room: dict[int, Shelf] = {}
        self.by_request: dict[int, Shelf] = {}

    def shelf(self, nbytes: int) -> Shelf:
        """The shelf that serves `nbytes`; remembered. Under the memory's lock."""
        shelf = self.by_room.setdefault(rounded(nbytes), [])
        if len(self.by_request) >= MAX_SIZES:
            self.by_request.clear()
        self.by_request[nbytes] = shelf
        return shelf

    def nbytes(self) -> int:
        """Bytes in free blocks."""
        return sum(room * len(shelf) for room, shelf in list(self.by_room.items()))

    def take_all(self) -> Iterator[tuple[int, Any]]:
        """Every free block with its size, taken off its shelf."""
        for room, shelf in list(self.by_room.items()):
            while shelf:
                try:
                    yield room, shelf.pop()
                except IndexError:  # another thread was faster
                    break


class _Counter:
    """A number of `Memory.counters` as an attribute of Memory."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, memory: Memory, kind: Any = None) -> int:
        return int(getattr(memory.counters, self.name))

    def __set__(self, memory: Memory, value: int) -> None:
        setattr(memory.counters, self.name, value)


class Memory:
    """Allocation and counters of one device. `limit` in bytes in use, None for what the chip has."""

    active, peak = _Counter("active"), _Counter("peak")
    made, made_bytes, freed = _Counter("made"), _Counter("made_bytes"), _Counter("freed")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.backend = device.backend
        self.counters = Counters()
        self.retries = self.refused = self.driver_allocs = self.driver_frees = 0
        self.cache_limit: int | None = None
        """Most bytes that are kept in free blocks; None: a quarter of the chip's memory."""
        self.free = FreeBlocks()
        self.lines: WeakKeyDictionary[Buffer, str] | None = None
        """The user's line that made each buffer, while somebody wants to know (`torch_fl.memory.record_lines`)."""
        self._limit: int | None = None
        self._streams: Streams | None = None
        self._peak_reserved = 0
        self._taken = 0
        self._lock = threading.RLock()
        self.allocate = Allocator(device, self.counters, self.free.by_request, self._allocate)
        """allocate(nbytes) -> Buffer, contents undefined. Raises OutOfMemoryError when nothing can be freed."""

    # -- what is watched at each allocation: one test while nothing is -----------------------------------------------
    @property
    def limit(self) -> int | None:
        """Most bytes that may be in use at once."""
        return self._limit

    @limit.setter
    def limit(self, nbytes: int | None) -> None:
        self._limit = nbytes
        self.watch()

    def watch(self, *, streams: Streams | None = None, lines: bool | None = None) -> None:
        """Look at each allocation from now on: who made it, and on which stream; None changes nothing."""
        self._streams = streams or self._streams
        if lines is not None:
            self.lines = (self.lines or WeakKeyDictionary()) if lines else None
        self.allocate.watched = self._limit is not None or self._streams is not None or self.lines is not None

    # -- allocation ---------------------------------------------------------------------------------------------
    def _allocate(self, nbytes: int) -> Buffer:
        """A Buffer that no free block serves, or any while somebody watches."""
        if self.allocate.watched:
            return self._allocate_watched(nbytes)
        handle, shelf, _ = self._take(self.free, nbytes)
        return Buffer(self.device, handle, nbytes, shelf, self.counters)

    def _allocate_watched(self, nbytes: int) -> Buffer:
        """The same under a limit, on this thread's stream, with the line noted."""
        if self._limit is not None and self.active + nbytes > self._limit:
            self._collect(nbytes, self._limit)
        streams = self._streams
        stream = None if streams is None else streams.current()
        handle, shelf, fresh = self._take(self.free if stream is None else stream.free, nbytes)
        if streams is not None and stream is not None:
            streams.claim(stream, handle, fresh)
        buffer = Buffer(self.device, handle, nbytes, shelf, self.counters)
        if self.lines is not None:
            from ..telemetry.where import user_line

            self.lines[buffer] = user_line()
        return buffer

    def _take(self, free: FreeBlocks, nbytes: int) -> tuple[Any, Shelf, bool]:
        """A block from the shelf of its size, else a new one: handle, shelf, whether it is new."""
        with self._lock:
            shelf = free.shelf(nbytes)
            try:
                return shelf.pop(), shelf, False
            except IndexError:
                room = rounded(nbytes)
                self._make_room(room)
                handle = self._from_driver(room)
                self._taken += room
                return handle, shelf, True

    def _make_room(self, room: int) -> None:
        """Host memory is overcommitted: without a check the system would end the process instead of refusing."""
        total = self.device.properties.total_memory
        keep = total // 4 if self.cache_limit is None else self.cache_limit
        most = min(n for n in (total or None, self._limit, 1 << 62) if n is not None)
        if (total or self.cache_limit is not None) and self._taken - self.active > keep:
            self.empty_cache()
        if self._taken + room > most:
            self.empty_cache()
        if not total or self._taken + room <= total:
            return
        self._retry()
        self._recount()
        if self._taken + room > total:
            raise self.out_of_memory(room, "the chip has no more")

    def _collect(self, nbytes: int, limit: int) -> None:
        self.retries += 1
        gc.collect()
        self._recount()
        if self.active + nbytes > limit:
            raise self.out_of_memory(nbytes, f"the limit is {limit} bytes")

    def _retry(self) -> None:
        """Free what can be freed before another try."""
        self.retries += 1
        gc.collect()
        self.empty_cache()

    def _from_driver(self, nbytes: int) -> Any:
        self.driver_allocs += 1
        try:
            return self.backend.allocate(nbytes)
        except MemoryError:
            self._retry()
        try:
            return self.backend.allocate(nbytes)
        except MemoryError as error:
            self.driver_allocs -= 1
            raise self.out_of_memory(nbytes, str(error)) from None

    def out_of_memory(self, nbytes: int, because: str) -> OutOfMemoryError:
        """The error for a request of `nbytes` that cannot be served."""
        from ..memory import describe_holders

        self.refused += 1
        total, _, free = self.device.memory_info()
        reason = f"{because}; " if because else ""
        return OutOfMemoryError(
            message(
                f"{self.device!r} is out of memory: {nbytes} bytes were asked for",
                because=f"{reason}{self.active} bytes are in use, {self.reserved()} are taken from the driver, "
                f"{free} of {total} are free{describe_holders(self.device)}",
                hint="a smaller batch, del of tensors that are not needed, torch.utils.checkpoint, or a higher limit "
                "where one is set; torch_fl.memory.snapshot() lists all holders",
            )
        )

    # -- counters -----------------------------------------------------------------------------------------------
    def pools(self) -> list[FreeBlocks]:
        """The free blocks of every stream."""
        own = self.device.streams.all if self._streams is not None else []
        return list({id(f): f for f in (self.free, *(s.free for s in own))}.values())

    def cached(self) -> int:
        """Bytes in free blocks."""
        return sum(f.nbytes() for f in self.pools())

    def reserved(self) -> int:
        """Bytes taken from the driver, cached ones included."""
        own = self.backend.reserved_bytes()
        return self._taken if own is None else own

    def buffers(self) -> list[Buffer]:
        """The buffers that exist."""
        return [b for b in gc.get_objects() if type(b) is Buffer and b.device is self.device]

    def _recount(self) -> None:
        """Counters from the buffers that exist: a Ctrl-C that hits a finalizer makes it skip its part."""
        mine = self.buffers()
        self.active = sum(b.nbytes for b in mine)
        self.freed = self.made - len(mine)
        self._taken = self.cached() + sum(rounded(b.nbytes) for b in mine)

    def peak_reserved(self) -> int:
        """Most bytes taken from the driver at once: they only grow between two calls of `empty_cache`."""
        self._peak_reserved = max(self._peak_reserved, self.reserved())
        return self._peak_reserved

    def reset_peak(self) -> None:
        """Start `peak` and `peak_reserved` anew."""
        self.peak = self.active
        self._peak_reserved = 0

    def reset_counts(self) -> None:
        """Start the counts of allocations, retries and refusals anew; what is in use now stays counted."""
        self.made, self.freed, self.made_bytes = self.made - self.freed, 0, self.active
        self.driver_allocs, self.driver_frees = self.driver_allocs - self.driver_frees, 0
        self.retries = self.refused = 0

    def empty_cache(self) -> None:
        """Give memory that no buffer uses back to the driver."""
        self.peak_reserved()
        self.backend.synchronize()
        self._drop_free_blocks()
        self.backend.empty_cache()

    def _drop_free_blocks(self) -> None:
        """A function of its own: its last handle must be gone before the adapter empties its pool."""
        with self._lock:
            for pool in self.pools():
                for room, handle in pool.take_all():
                    if self._streams is not None:
                        self._streams.forget(handle)
                    self._taken -= room
                    self.driver_frees += 1
