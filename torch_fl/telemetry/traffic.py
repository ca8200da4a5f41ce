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
    following = False
    replaced: list[tuple[Any, str, Any]] = []
    """(adapter, method, what the instance itself had under that name)."""


_NOTHING = object()


def watch(on: bool, count: Count) -> None:
    """Count the copies of all devices, also of those opened later, or stop."""
    from ..runtime import devices

    _Watch.count = count if on else None
    if on and not _Watch.following:
        _Watch.following = True
        devices._state.on_open.append(_follow)
    if not on:
        _put_back()
    elif devices.is_initialized():
        _follow()


def _follow() -> None:
    from ..runtime import devices

    if _Watch.count is None:
        return
    watched = {id(backend) for backend, _, _ in _Watch.replaced}
    for backend in (d.backend for d in devices.devices()):
        if id(backend) not in watched:
            _replace(backend, "copy_h2d", _counting_h2d(backend.copy_h2d, _Watch.count))
            _replace(backend, "copy_d2h", _counting_d2h(backend.copy_d2h, _Watch.count))


def _replace(backend: Any, name: str, counted: Callable[..., None]) -> None:
    _Watch.replaced.append((backend, name, vars(backend).get(name, _NOTHING)))
    setattr(backend, name, counted)


def _put_back() -> None:
    while _Watch.replaced:
        backend, name, own = _Watch.replaced.pop()
        if own is _NOTHING:
            delattr(backend, name)
        else:
            setattr(backend, name, own)


def _counting_h2d(copy: Callable[..., None], count: Count) -> Callable[..., None]:
    def counted(handle: Any, byte_offset: int, source: memoryview) -> None:
        copy(handle, byte_offset, source)
        count(source.nbytes, 0)

    return counted


def _counting_d2h(copy: Callable[..., None], count: Count) -> Callable[..., None]:
    def counted(target: memoryview, handle: Any, byte_offset: int) -> None:
        copy(target, handle, byte_offset)
        count(0, target.nbytes)

    return counted
