"""Discovery of backends and chips, and `Device`: one opened chip with its memory, programs and index.

In-tree adapters are found by scanning `torch_fl.backends`, others by the entry-point group `torch_fl.backends`.
The core never names a chip: order comes from `Backend.preference`, then from the adapter's own order.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pkgutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from ..errors import DeviceError, KernelError, did_you_mean, message
from ..kernels import source as sources
from . import settings
from .adapter import Backend, Discovery, Properties
from .guard import Guard
from .memory import Buffer as Buffer
from .memory import Memory


class Device:
    """One opened chip: `index` as in npu:index, its backend, and what has been compiled for it."""

    def __init__(self, index: int, backend: Backend) -> None:
        self.index = index
        self.backend = backend
        self.properties = backend.properties
        self.is_cpu = backend.properties.kind == "cpu"
        self.compiled = 0
        self._programs: dict[Any, Any] = {}
        self._guard: Guard | None = None
        self._lock = threading.RLock()
        self.memory = Memory(self)
        self.allocate = self.memory.allocate
        """allocate(nbytes) -> Buffer, contents undefined. Raises OutOfMemoryError after emptying the caches."""

    def __repr__(self) -> str:
        return f"npu:{self.index} ({self.backend.name}: {self.properties.name})"

    @property
    def guard(self) -> Guard:
        """Where kernels note indices that are out of bounds."""
        if self._guard is None:
            with self._lock:
                self._guard = self._guard or Guard(self)
        return self._guard

    def check(self) -> None:
        """Raise IndexError for an index that a kernel found out of bounds since the last check; waits only then."""
        if self._guard is not None and self._guard.armed:
            self._guard.check()

    @property
    def memory_limit(self) -> int | None:
        """Most bytes that may be in use at once; None: what the chip has."""
        return self.memory.limit

    @memory_limit.setter
    def memory_limit(self, nbytes: int | None) -> None:
        self.memory.limit = nbytes

    @property
    def peak_bytes(self) -> int:
        """Most bytes that were in live buffers at once, since the start or `reset_peak`."""
        return self.memory.peak

    def allocated_bytes(self) -> int:
        """Bytes in live buffers."""
        return self.memory.active

    def reserved_bytes(self) -> int:
        """Bytes taken from the driver, cached ones included."""
        return self.memory.reserved()

    def reset_peak(self) -> None:
        """Start `peak_bytes` anew."""
        self.memory.reset_peak()

    def empty_cache(self) -> None:
        """Give cached memory back to the driver."""
        self.memory.empty_cache()

    def program(self, text: str, defines: Mapping[str, object]) -> Any:
        """The compiled program of a kernel source under `defines`; compiled once per device."""
        key = (text, tuple(defines.items()))
        found = self._programs.get(key)
        if found is not None:
            return found
        with self._lock:
            found = self._programs.get(key)
            if found is None:
                found = self._programs[key] = self._compile(text, defines)
        return found

    def _compile(self, text: str, defines: Mapping[str, object]) -> Any:
        dialect = self.backend.dialect
        if dialect is None:
            raise KernelError(f"{self.backend.name} compiles no kernels")
        rendered = sources.render(text, dialect, defines)
        try:
            program = self.backend.compile(rendered)
        except Exception as error:  # every driver has its own compile error; the log is what matters
            names = ", ".join(sources.parse(text))
            raise KernelError(
                message(f"{self!r} could not compile {names}", because=str(error).strip()[-4000:])
            ) from error
        self.compiled += 1
        return program


@dataclass(frozen=True)
class Found:
    """One line of `torch-fl devices`: an adapter's chip with its index, or why it has none."""

    backend: str
    properties: Properties | None
    index: int | None
    note: str


def backend_classes() -> dict[str, type[Backend]]:
    """All adapters that are installed, by name."""
    return {c.name: c for c in _in_tree() | _installed()}


def _classes_of(module: Any) -> Iterator[type[Backend]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Backend) and value.__module__ == module.__name__:
            yield value


def _in_tree() -> set[type[Backend]]:
    package = importlib.import_module("torch_fl.backends")
    names = [m.name for m in pkgutil.iter_modules(package.__path__)]
    return {c for n in names for c in _classes_of(importlib.import_module(f"torch_fl.backends.{n}"))}


_REGISTERED: dict[str, type[Backend]] = {}
_BROKEN: dict[str, str] = {}


def register_backend(backend: type[Backend]) -> type[Backend]:
    """Make an adapter known in this process (usable as a class decorator); before the first device is opened."""
    _REGISTERED[backend.name] = backend
    return backend


def _installed() -> set[type[Backend]]:
    found = set(_REGISTERED.values())
    for point in entry_points(group="torch_fl.backends"):
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001 - somebody else's package must not take ours down
            _BROKEN[point.name] = f"entry point {point.value} failed to load: {error!r}"
            continue
        found.update([loaded] if isinstance(loaded, type) else _classes_of(loaded))
    return found


class _Devices:
    """The chips of this process, opened at first use. A child forked after that has none."""

    def __init__(self) -> None:
        self.opened: list[Device] = []
        self.found: list[Found] = []
        self.names: list[str] | None = None
        self.ready = False
        self.lock = threading.RLock()
        self.on_open: list[Callable[[], None]] = []
        self.on_fork: list[Callable[[], None]] = []


_state = _Devices()


def _discover(backend: type[Backend]) -> Discovery:
    try:
        return backend.discover()
    except Exception as error:  # noqa: BLE001 - discover() must not raise; if it does, that is the reason
        return Discovery(absent=f"discover() failed: {error!r}")


def _choose(names: list[str] | None) -> list[type[Backend]]:
    known = backend_classes()
    if names is None:
        return sorted(known.values(), key=lambda b: (-b.preference, b.name))
    for name in names:
        if name not in known:
            raise DeviceError(message(f"there is no backend {name!r}", hint=did_you_mean(name, known)))
    return [known[n] for n in names]


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
    opened: list[Device] = []
    found: list[Found] = []
    seen: dict[str, int] = {}
    for backend in _choose(wanted):
        discovery = _discover(backend)
        if not discovery.found:
            found.append(Found(backend.name, None, None, discovery.absent))
        for properties in discovery.found:
            twin = seen.get(properties.fingerprint)
            # A chip that two adapters see is opened once, unless the user asked for both by name.
            if twin is not None and properties.fingerprint and wanted is None:
                found.append(Found(backend.name, properties, None, f"same chip as npu:{twin}"))
                continue
            try:
                device = Device(len(opened), backend(properties))
            except Exception as error:  # noqa: BLE001 - a chip that does not open is reported, not fatal
                found.append(Found(backend.name, properties, None, f"could not be opened: {error}"))
                continue
            seen.setdefault(properties.fingerprint, device.index)
            opened.append(device)
            found.append(Found(backend.name, properties, device.index, ""))
    found += [Found(name, None, None, reason) for name, reason in _BROKEN.items()]
    _state.found = found
    if not opened:
        reasons = "; ".join(f"{f.backend}: {f.note}" for f in found)
        raise DeviceError(
            message("no device was found", because=reasons or "no backend is installed", hint="torch-fl devices")
        )
    _state.opened = opened


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
        raise DeviceError(f"npu:{index} does not exist: this machine has {len(opened)} device(s), npu:0 is the first")
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
