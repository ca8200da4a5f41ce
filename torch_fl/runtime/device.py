"""`Device`: one opened chip with its memory, its streams, its programs and its index."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import KernelError, message
from ..kernels import source as sources
from .adapter import Backend
from .guard import Guard
from .memory import Memory
from .streams import Streams


class MemoryInfo(NamedTuple):
    """Memory of a chip in bytes: `total`, and what of it is `used` and `free` as its driver counts."""

    total: int
    used: int
    free: int


class Device:
    """One opened chip: `index` as in npu:index, its backend, and what has been compiled for it."""

    def __init__(self, index: int, backend: Backend) -> None:
        self.index = index
        self.backend = backend
        self.properties = backend.properties
        self.is_cpu = backend.properties.kind == "cpu"
        self.groups = backend.groups and not self.is_cpu
        """Whether kernels with work-groups and local memory are the faster ones here."""
        self.compiled = 0
        self._programs: dict[Any, Any] = {}
        self._guard: Guard | None = None
        self._streams: Streams | None = None
        self._lock = threading.RLock()
        self.memory = Memory(self)
        self.allocate = self.memory.allocate
        """allocate(nbytes) -> Buffer, contents undefined. Raises OutOfMemoryError after emptying the caches."""

    def __repr__(self) -> str:
        return f"npu:{self.index} ({self.backend.name}: {self.properties.name})"

    @property
    def name(self) -> str:
        """The chip's name as its driver gives it."""
        return self.properties.name

    @property
    def capability(self) -> tuple[int, int]:
        """Version of the chip's instruction set as its vendor counts it; (0, 0) where the driver does not tell."""
        return self.properties.capability

    def memory_info(self) -> MemoryInfo:
        """total, used and free bytes of the chip's memory, whoever uses it; what is taken here is never free."""
        free, total = self.backend.memory_info()
        free = max(0, min(free, total - self.memory.reserved()))
        return MemoryInfo(total, total - free, free)

    @property
    def streams(self) -> Streams:
        """The chip's streams, made at first use."""
        if self._streams is None:
            with self._lock:
                self._streams = self._streams or Streams(self)
        return self._streams

    def synchronize(self) -> None:
        """Wait until everything launched on the chip is done. Raises what its kernels found wrong."""
        self.backend.synchronize()
        self.check()

    @property
    def guard(self) -> Guard:
        """Where kernels note values that they may not take."""
        if self._guard is None:
            with self._lock:
                self._guard = self._guard or Guard(self)
        return self._guard

    def check(self) -> None:
        """Raise LateError for a wrong value that a kernel noted since the last check; waits only then."""
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
