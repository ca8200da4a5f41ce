"""The opened devices of this process, this thread's current one, and what a fork does to them."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable

from .. import names
from ..errors import DeviceError, message
from . import settings
from .buffers import Buffer as Buffer
from .device import Device as Device
from .discovery import Found as Found
from .discovery import backend_classes as backend_classes
from .discovery import open_all
from .discovery import register_backend as register_backend
from .pool_options import PoolOptions


class _Devices:
    """The chips of this process, opened at first use. A child forked after that has none."""

    def __init__(self) -> None:
        self.opened: list[Device] = []
        self.found: list[Found] = []
        self.names: list[str] | None = None
        self.ready = False
        self.pool = PoolOptions()
        self.lock = threading.RLock()
        self.on_open: list[Callable[[], None]] = []
        self.on_fork: list[Callable[[], None]] = []


_state = _Devices()


def initialize(names: list[str] | None = None) -> None:
    """Discover and open the chips of the backends in `names` (default: TORCH_FL_BACKENDS, else all); once per process.

    Raises DeviceError for an unknown name, for a different choice after devices were opened, or when there is no chip.
    """
    with _state.lock:
        if _state.ready:
            if names is not None and names != _state.names:
                raise DeviceError(
                    message(
                        f"the devices were already opened with {_state.names or 'all backends'}",
                        hint="call torch_fl.init(backends=...) before the first use, or set TORCH_FL_BACKENDS",
                    )
                )
            return
        wanted = names if names is not None else settings.backends()
        _open(wanted)
        _state.names, _state.ready = wanted, True
    for callback in _state.on_open:
        callback()


def _open(wanted: list[str] | None) -> None:
    opened, _state.found = open_all(wanted)
    if not opened:
        reasons = "; ".join(f"{f.backend}: {f.note}" for f in _state.found)
        raise DeviceError(
            message("no device was found", because=reasons or "no backend is installed", hint="torch-fl devices")
        )
    for device in opened:
        _state.pool.apply(device)
    _state.opened = opened
    _tell_torch(len(opened))


def _tell_torch(count: int) -> None:
    """Put in place what torch's functions need only while there are devices."""
    from ..compat import pinned, placement

    pinned.wrap()
    if count > 1:
        placement.wrap()


def set_pool(options: PoolOptions) -> None:
    """Options of the memory pools of all devices, also of those opened later."""
    _state.pool = options
    for device in _state.opened:
        options.apply(device)


def opened() -> list[Device]:
    """The devices that are open now; opens none."""
    return _state.opened


def devices() -> list[Device]:
    """The opened devices, in index order; opens them at first use."""
    if not _state.opened:
        check_fork()
        initialize()
    return _state.opened


def device_at(index: int | None) -> Device:
    """The device of npu:index (None: the current one). Raises DeviceError for an index that does not exist."""
    opened = devices()
    if index is None:
        index = _current.index
    if not 0 <= index < len(opened):
        raise DeviceError(
            f"{names.name()}:{index} does not exist: this machine has {len(opened)} device(s), {names.name()}:0 is the "
            "first"
        )
    return opened[index]


def discoveries() -> list[Found]:
    """What every adapter found or why it found nothing."""
    try:
        devices()
    except DeviceError:
        if not _state.found:
            raise
    return _state.found


class _Current(threading.local):
    index = 0


_current = _Current()


def current_index() -> int:
    """Index of this thread's current device."""
    return _current.index


def set_current_index(index: int) -> None:
    """Make npu:index this thread's current device."""
    _current.index = device_at(index).index


def is_initialized() -> bool:
    """Whether devices have been opened in this process."""
    return _state.ready


def in_forked_child() -> bool:
    """Whether this process was forked from one that had opened its devices: drivers do not survive a fork."""
    return _forked


_forked = False


def _after_fork() -> None:
    global _forked
    _forked = _forked or _state.ready
    _state.lock = threading.RLock()
    if _state.ready:
        _state.opened = []
        for callback in _state.on_fork:
            callback()


def on_fork(callback: Callable[[], None]) -> None:
    """Call `callback` in children that are forked after the devices were opened."""
    _state.on_fork.append(callback)


def check_fork() -> None:
    """Raise DeviceError in a child that was forked after the devices were opened."""
    if _forked:
        raise DeviceError(
            message(
                "npu devices cannot be used in a forked process",
                because="the threads of their drivers did not survive the fork",
                hint='CPU tensors in the worker (a Dataset returns them), or the start method "spawn"',
            )
        )


@atexit.register
def _close() -> None:
    for device in _state.opened:
        with contextlib.suppress(Exception):  # the interpreter is going down; there is nobody to tell
            device.backend.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
