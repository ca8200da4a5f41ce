"""Counts the bytes that cross between host and device, while somebody listens.

The copies of an opened adapter are replaced on the instance by counting ones, and put back afterwards: nothing is
paid when nobody listens, and every copy is seen whichever part of the program asked for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Count = Callable[[int, int], None]


class _Watch:
    count: Count | None = None
    waiting = False


def watch(on: bool, count: Count) -> None:
    """Count the copies of all devices, also of those opened later, or stop."""
    from ..runtime import devices

    _Watch.count = count if on else None
    if on and not _Watch.waiting:
        _Watch.waiting = True
        devices._state.on_open.append(_follow)
    if devices.is_initialized():
        _follow()


def _follow() -> None:
    from ..runtime import devices

    for device in devices.devices():
        attributes = vars(device.backend)
        for name in ("copy_h2d", "copy_d2h"):
            if _Watch.count is None:
                attributes.pop(name, None)
            elif name not in attributes:
                attributes[name] = _counting(name, getattr(device.backend, name), _Watch.count)


def _counting(name: str, copy: Callable[..., None], count: Count) -> Callable[..., None]:
    if name == "copy_h2d":

        def counted_h2d(handle: Any, byte_offset: int, source: memoryview) -> None:
            copy(handle, byte_offset, source)
            count(source.nbytes, 0)

        return counted_h2d

    def counted_d2h(target: memoryview, handle: Any, byte_offset: int) -> None:
        copy(target, handle, byte_offset)
        count(0, target.nbytes)

    return counted_d2h
