"""The vendor's libraries behind CuPy: each is loaded once, when a route first asks, and why one is missing is kept.

A route without its library gives way to the portable kernel; `torch-fl devices` shows the reason. What a library leaves
between calls (a handle's room for work, a plan's) belongs to one thread and one stream at a time: `record` orders them.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from torch_fl.builder import Builder
from torch_fl.errors import Unsupported
from torch_fl.refs import Ref, Value
from torch_fl.runtime.adapter import Handle

from ._cudnn_plans import CuDNN

if TYPE_CHECKING:
    from ._cupy import CuPy


@dataclass(frozen=True)
class _Library:
    """CuPy's module, what it is for, what of a card opens it, the name of its exception, the adapter
    that has it, and how it is installed."""

    binding: str
    use: str
    handle: str = ""
    error: str = ""
    only: str = ""
    install: str = ""


_CUDNN = "; pip install nvidia-cudnn-frontend nvidia-cudnn-cu12 (or -cu13)"
LIBRARIES = {
    "cublas": _Library("cupy_backends.cuda.libs.cublas", "products", "cublas_handle", "CUBLASError"),
    "cusolver": _Library("cupy_backends.cuda.libs.cusolver", "linear algebra", "cusolver_handle", "CUSOLVERError"),
    "cufft": _Library("cupy.cuda.cufft", "Fourier transforms", error="CuFFTError"),
    "thrust": _Library("cupy.cuda.thrust", "sorting"),
    "cudnn": _Library("cudnn", "convolutions and attention", only="cuda", install=_CUDNN),
}
"""The names are CUDA's; on ROCm the same bindings call hipBLAS, rocSOLVER, hipFFT and rocThrust. `cudnn` is no part of
CuPy but a package of its own."""

DTYPES = {
    torch.float32: "f4", torch.float64: "f8", torch.float16: "f2", torch.complex64: "c8", torch.complex128: "c16",
    torch.int64: "i8", torch.int32: "i4", torch.int16: "i2", torch.int8: "i1", torch.uint8: "u1", torch.uint16: "u2",
    torch.uint32: "u4", torch.uint64: "u8", torch.bool: "?",
}  # fmt: skip
"""What CuPy's arrays hold: there is no bfloat16."""


def load(binding: str) -> Any:
    """A module of CuPy, by its package first: that is what finds libraries that were installed by pip."""
    parent, _, name = binding.rpartition(".")
    if not parent:
        return importlib.import_module(binding)
    package = importlib.import_module(parent)
    return getattr(package, name, None) or importlib.import_module(binding)


class Libraries:
    """The libraries of one opened card."""

    def __init__(self, backend: CuPy) -> None:
        self._backend = backend
        self._loaded: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.used = True
        """False: all work is left to our own kernels, to test or to measure them."""
        self.missing: dict[str, str] = {}
        """Why a library that was asked for is not used."""

    def get(self, name: str) -> Any:
        """CuPy's module of a library, for "cudnn" a `CuDNN`; None where it cannot be used."""
        if not self.used:
            return None
        with self._lock:
            if name not in self._loaded:
                try:
                    self._loaded[name] = self._open(name)
                except Exception as error:  # noqa: BLE001 - a library fails to load in many ways; all mean: not this route
                    self._loaded[name] = None
                    self.missing[name] = str(error).strip() or repr(error)
        return self._loaded[name]

    def _open(self, name: str) -> Any:
        library, backend = LIBRARIES[name], self._backend
        module = load(library.binding)
        if not getattr(module, "available", True):
            raise ImportError(f"this build of CuPy has no {name}")
        if library.handle:
            with backend.card:
                getattr(backend.card, library.handle)
        if library.error:
            backend.driver_errors += (getattr(module, library.error),)
        return CuDNN(backend, module) if name == "cudnn" else module

    def need(self, name: str) -> Any:
        """The same; raises Unsupported where it cannot be used."""
        found = self.get(name)
        if found is None:
            raise Unsupported(f"{name}: {self.missing.get(name, 'switched off')}")
        return found

    def notes(self) -> list[str]:
        """A line for each library that cannot be used, and for cuDNN; tries those that nobody has asked for yet."""
        found = [self.get(name) for name, library in LIBRARIES.items() if library.only in ("", self._backend.name)]
        used = [library.note() for library in found if isinstance(library, CuDNN)]
        absent = [
            f"{n} is not used for {LIBRARIES[n].use}: {why}{LIBRARIES[n].install}" for n, why in self.missing.items()
        ]
        return absent + used


class Turns(threading.local):
    """The queue of this thread's last call of a library, and when it is done there."""

    queue: Any = None
    event: Any = None


@contextmanager
def on_stream(backend: CuPy, handles: list[Handle], in_turn: bool = True) -> Iterator[Any]:
    """Calls go to this thread's stream, which this gives, with the card current; `in_turn`: behind this thread's last
    call elsewhere."""
    streams = backend.streams
    stream = None if streams is None else streams.current()
    queue = backend.main if stream is None else stream.queue
    with backend.card, queue:
        if stream is None or not in_turn:
            yield queue
        else:
            _wait_for_turn(backend, queue)
            yield queue
            backend.turns.queue, backend.turns.event = queue, backend.record_event(queue)
    if streams is not None and stream is not None:
        streams.used(stream, handles)


def _wait_for_turn(backend: CuPy, queue: Any) -> None:
    turns = backend.turns
    if turns.queue is None:  # so far there was one stream, and nobody took notes
        turns.queue, turns.event = backend.main, backend.record_event(backend.main)
    if turns.queue is not queue:
        queue.wait_event(turns.event)


def record(b: Builder, call: Callable[..., None], *arguments: Ref | Value) -> None:
    """Call `call` at each replay, on this thread's stream: with an array of CuPy for each Ref, and the numbers."""
    backend: Any = b.device.backend

    def run(*places: Any) -> None:
        handles = [p[0] for p in places if isinstance(p, tuple)]
        with on_stream(backend, handles):
            call(*(array(backend._cupy, p) if isinstance(p, tuple) else p for p in places))

    b.function(run, *arguments)


def array(cupy: Any, argument: tuple[Handle, int, Ref]) -> Any:
    """A tensor of the card as an array of CuPy over the same memory."""
    handle, offset, ref = argument
    size = ref.dtype.itemsize
    return cupy.ndarray(ref.shape, DTYPES[ref.dtype], handle + offset * size, [s * size for s in ref.strides])
