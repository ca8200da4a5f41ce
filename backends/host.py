"""The machine's own CPU: kernels rendered as plain C, built by the system's C compiler, called in this thread.

Needs neither OpenCL nor a driver. Compiled kernels are kept on disk under `settings.cache_dir()`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torch_fl.hot import compiled
from torch_fl.runtime import settings
from torch_fl.runtime.adapter import (
    AddressArg,
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

from . import _huge_pages as huge_pages

_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-std=gnu11", "-w")


def _compiler() -> str | None:
    named = settings.host_compiler()
    candidates = [named] if named else ["cc", "gcc", "clang"]
    return next((path for c in candidates if (path := shutil.which(c))), None)


def _memory(pages: str) -> int:
    """Bytes of host memory by the name sysconf has for its pages; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf(pages)
    except (ValueError, OSError, AttributeError):
        return 0


def _cell(arg: KernelArg) -> Any:
    """Room for one scalar or struct; what is fixed is there already."""
    if isinstance(arg, bytes):
        return ctypes.create_string_buffer(arg)
    assert not isinstance(arg, BufferArg)
    return ctypes.create_string_buffer(arg.nbytes)


def _described(arg: KernelArg) -> Any:
    """The argument as the compiled launcher takes it."""
    if isinstance(arg, BufferArg):
        return arg.slot, arg.offset, arg.itemsize
    return (arg.get, arg.steady) if isinstance(arg, ValueArg) else arg


class _Memory:
    """Bytes from torch's CPU allocator, and their address."""

    __slots__ = ("address", "bytes", "storage")

    def __init__(self, nbytes: int) -> None:
        try:
            self.storage = torch.UntypedStorage(nbytes, device="cpu")
        except RuntimeError as error:
            raise MemoryError(str(error).splitlines()[0]) from error
        self.address = self.storage.data_ptr()
        huge_pages.wish(self.address, nbytes)
        self.bytes = host_bytes(self.address, nbytes)


class Host(Backend):
    """The host CPU through a C compiler."""

    name = "host"
    family = "host"
    dialect = "c"
    groups = True
    addresses = True
    preference = 25  # of the CPU, this view is the faster one

    @classmethod
    def discover(cls) -> Discovery:
        if _compiler() is None:
            return Discovery(absent="no C compiler found (cc, gcc, clang); install one or name it in TORCH_FL_CC")
        total = _memory("SC_PHYS_PAGES")
        found = Properties(
            name=f"host {platform.processor() or platform.machine()}",
            vendor=platform.system(),
            driver=Path(_compiler() or "").name,
            kind="cpu",
            total_memory=total,
            compute_units=os.cpu_count() or 1,
            fp64=True,
            int64_atomics=True,
            host_memory=True,
            fingerprint="cpu:0",
        )
        return Discovery((found,))

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self._cc = _compiler() or "cc"
        self._lock: Any = threading.Lock() if compiled is None else compiled.Lock()

    def allocate(self, nbytes: int) -> Handle:
        return _Memory(nbytes)

    def copy_h2d(self, handle: Handle, byte_offset: int, source: memoryview) -> None:
        handle.bytes[byte_offset : byte_offset + source.nbytes] = source

    def copy_d2h(self, target: memoryview, handle: Handle, byte_offset: int) -> None:
        target[:] = handle.bytes[byte_offset : byte_offset + target.nbytes]

    def copy_d2d(self, target: Handle, target_offset: int, source: Handle, source_offset: int, nbytes: int) -> None:
        ctypes.memmove(target.address + target_offset, source.address + source_offset, nbytes)

    def memory_info(self) -> tuple[int, int]:
        return _memory("SC_AVPHYS_PAGES"), self.properties.total_memory

    def compile(self, source: str) -> Any:
        flags = (*_FLAGS, "-fopenmp") if self.properties.compute_units > 1 else _FLAGS
        key = hashlib.sha256("\0".join([source, self._cc, *flags, platform.node()]).encode()).hexdigest()[:32]
        library = settings.cache_dir() / f"host-{key}.so"
        if not library.exists():
            self._build(source, library, flags)
        return ctypes.CDLL(str(library))

    def _build(self, source: str, library: Path, flags: Sequence[str]) -> None:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            text, built = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
            text.write_text(source)
            command = [self._cc, *flags, "-shared", "-fPIC", str(text), "-o", str(built), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{self._cc} failed:\n{done.stderr[-4000:]}")
            built.replace(library)  # atomic: two processes may build the same kernel

    def bind(
        self, program: Any, name: str, grid: tuple[int, int, int], args: Sequence[KernelArg], local: int = 0
    ) -> Launcher:
        function = getattr(program, name)
        function.restype = None
        if (
            compiled is not None
            and len(args) <= compiled.MAX_SLOTS
            and not any(isinstance(a, AddressArg) or getattr(a, "slot", 0) >= compiled.MAX_SLOTS for a in args)
        ):
            address = ctypes.cast(function, ctypes.c_void_p).value
            return compiled.Call(address, grid, [_described(a) for a in args], self._lock, program)  # type: ignore[no-any-return]
        pointers = (ctypes.c_void_p * max(1, sum(isinstance(a, BufferArg) for a in args)))()
        cells = (ctypes.c_void_p * len(args))()
        keep: list[Any] = [pointers]
        buffers: list[tuple[int, int, int, int]] = []
        values_at: list[tuple[Any, Any]] = []
        addresses_at: list[tuple[Any, Any]] = []
        for i, a in enumerate(args):
            if isinstance(a, BufferArg):
                cells[i] = ctypes.addressof(pointers) + len(buffers) * ctypes.sizeof(ctypes.c_void_p)
                buffers.append((len(buffers), a.slot, a.offset, a.itemsize))
                continue
            cell = _cell(a)
            keep.append(cell)
            cells[i] = ctypes.addressof(cell)
            if isinstance(a, ValueArg):
                values_at.append((cell, a.get))
            elif isinstance(a, AddressArg):
                addresses_at.append((cell, a.get))
        lock, (n0, n1, n2) = self._lock, (ctypes.c_long(n) for n in grid)

        def run(handles: Sequence[Handle], offsets: Sequence[int], values: Sequence[Any], keep: Any = keep) -> None:
            with lock:
                for i, slot, extra, itemsize in buffers:
                    pointers[i] = handles[slot].address + (offsets[slot] + extra) * itemsize
                for cell, get in values_at:
                    data = get(values)
                    ctypes.memmove(cell, data, len(data))
                for cell, get in addresses_at:
                    data = get(handles, offsets)
                    ctypes.memmove(cell, data, len(data))
                function(cells, n0, n1, n2)

        return run
