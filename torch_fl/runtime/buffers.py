"""Buffers: device memory as the rest of the core holds it, what is counted of it, and its way back to a free shelf.

Buffers are freed by Python, from any thread and in the middle of anything, so giving back takes no lock: counters
and a list append. CPython switches threads at calls and jumps only, so `x.active -= n` is one step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..hot import compiled

if TYPE_CHECKING:
    from .device import Device

Shelf = list[Any]
"""Free handles of one size."""


class Counters:
    """Buffers and bytes of one device: in use now, at most at once, ever made, given back."""

    __slots__ = ("active", "freed", "made", "made_bytes", "peak")

    def __init__(self) -> None:
        self.active = self.peak = self.made = self.made_bytes = self.freed = 0


class Buffer:
    """Raw device memory. Views of one allocation share the Buffer; it is freed with the last of them."""

    __slots__ = ("__weakref__", "counters", "device", "handle", "nbytes", "shelf")

    def __init__(self, device: Device, handle: Any, nbytes: int, shelf: Shelf, counters: Counters) -> None:
        self.device = device
        self.handle = handle
        self.nbytes = nbytes
        self.shelf = shelf
        self.counters = counters
        counters.made += 1
        counters.made_bytes += nbytes
        counters.active += nbytes
        if counters.active > counters.peak:
            counters.peak = counters.active

    def __del__(self) -> None:
        try:
            counters = self.counters
            counters.active -= self.nbytes
            counters.freed += 1
        except AttributeError:  # an interrupt came before __init__
            return
        self.shelf.append(self.handle)

    def swap(self, other: Buffer) -> None:
        """Exchange the memory of two buffers of one device: every view of either has the other's then."""
        for name in ("handle", "nbytes", "shelf"):
            mine, its = getattr(self, name), getattr(other, name)
            setattr(self, name, its)
            setattr(other, name, mine)


class Allocator:
    """allocate(nbytes) -> Buffer: from the shelf of that size, else, and always while `watched`, by `slow`."""

    __slots__ = ("by_request", "counters", "device", "slow", "watched")

    def __init__(
        self, device: Device, counters: Counters, by_request: dict[int, Shelf], slow: Callable[[int], Buffer]
    ) -> None:
        self.device, self.counters, self.by_request, self.slow = device, counters, by_request, slow
        self.watched = False

    def __call__(self, nbytes: int) -> Buffer:
        if not self.watched:
            shelf = self.by_request.get(nbytes)
            if shelf:
                try:
                    return Buffer(self.device, shelf.pop(), nbytes, shelf, self.counters)
                except IndexError:  # another thread was faster
                    pass
        return self.slow(nbytes)


if compiled is not None:
    Counters, Buffer, Allocator = compiled.Counters, compiled.Buffer, compiled.Allocator  # type: ignore[misc]
