"""A stand-in for CuPy's arrays and the functions over them that backends/_cupy_arrays.py calls, by NumPy (cupy_double).

As on a card a function returns at once: its result is memory that the stream fills when its turn comes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from cupy_double import Stream, calls


class _Place:
    """An address, and what keeps the memory there."""

    def __init__(self, ptr: int, keeps: Any) -> None:
        self.ptr, self.keeps = ptr, keeps


class ndarray:
    """An array over memory of the card."""

    def __init__(self, shape: Any, dtype: Any, memptr: Any, strides: Any) -> None:
        self.memory = memptr
        self.shape, self.strides, self.dtype = tuple(shape), tuple(strides), np.dtype(dtype)

    def view(self) -> Any:
        """The same as an array of NumPy."""
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides)]
        low = sum(s for s in steps if s < 0)
        reach = sum(abs(s) for s in steps) + self.dtype.itemsize
        memory = (ctypes.c_char * reach).from_address(self.memory.ptr + low)
        return np.ndarray(self.shape, self.dtype, memory, -low, self.strides)

    def __getitem__(self, key: Any) -> ndarray:
        part = self.view()[key]
        return ndarray(part.shape, self.dtype, _Place(part.ctypes.data, self.memory), part.strides)

    def __setitem__(self, key: Any, value: ndarray) -> None:
        assert self.view()[key].shape == value.shape

        def fill() -> None:
            self.view()[key] = value.view()

        later(fill)

    def __rsub__(self, other: int) -> ndarray:
        return made(self.shape, self.dtype, lambda: other - self.view())


def later(work: Callable[[], None]) -> None:
    """Put something on this thread's stream."""
    Stream._stack()[-1].queue().append(work)


def made(shape: Any, dtype: Any, compute: Callable[[], Any]) -> ndarray:
    """A new array, filled when its turn comes."""
    memory = np.full(shape, 0xFF, np.uint8) if np.dtype(dtype).itemsize == 1 else np.full(shape, 77, dtype)
    found = ndarray(memory.shape, dtype, _Place(memory.ctypes.data, memory), memory.strides)

    def fill() -> None:
        found.view()[...] = compute()

    later(fill)
    return found


def matmul(left: ndarray, right: ndarray, out: ndarray) -> ndarray:
    calls.append(("matmul", left.shape, right.shape, out.shape))
    wide = np.float32 if left.dtype == np.float16 else left.dtype

    def run() -> None:
        out.view()[...] = np.matmul(left.view().astype(wide), right.view().astype(wide))

    later(run)
    return out


def argsort(a: ndarray, axis: int = -1, kind: str | None = None) -> ndarray:
    """Stable, NaN last; as CuPy's."""
    assert kind is None
    calls.append(("argsort", a.shape, a.strides))
    return made(a.shape, np.int64, lambda: np.argsort(a.view(), axis, "stable"))


def take_along_axis(a: ndarray, indices: ndarray, axis: int) -> ndarray:
    return made(indices.shape, a.dtype, lambda: np.take_along_axis(a.view(), indices.view(), axis))


def _scan(name: str) -> Callable[..., ndarray]:
    def scan(a: ndarray, axis: int | None = None, dtype: Any = None, out: Any = None) -> ndarray:
        assert axis is None
        assert len(a.shape) == 1
        calls.append((name, a.shape))
        wide = np.float64 if a.dtype.kind == "f" else a.dtype
        return made(a.shape, a.dtype, lambda: getattr(np, name)(a.view(), dtype=wide))

    return scan


cumsum, cumprod = _scan("cumsum"), _scan("cumprod")


def _transform(name: str) -> Callable[..., ndarray]:
    def transform(a: ndarray, s: Any = None, axes: Any = None, norm: Any = None) -> ndarray:
        calls.append((name, a.shape, s, axes, norm))
        run = getattr(np.fft, name)
        kind = np.result_type(a.dtype, np.complex64)
        kind = np.empty(0, kind).real.dtype if name == "irfftn" else kind
        shape = run(np.zeros(a.shape, a.dtype), s, axes, norm).shape
        return made(shape, kind, lambda: run(a.view(), s, axes, norm))

    return transform


fft = SimpleNamespace(**{name: _transform(name) for name in ("fftn", "ifftn", "rfftn", "irfftn")})
