"""Routines of cuSOLVER and rocSOLVER in the place of our factorizations: `Backend.routine`.

They work where our kernels work, in dense matrices stored by columns, with LAPACK's pivots and infos; what torch makes
of the result stays in torch_fl/ops/linalg*.py. A routine takes one matrix: batches of many small ones are left to our
kernels, which take a batch at once. Arguments are those of cusolverDn<t>routine; CuPy has the same calls on ROCm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torch_fl.builder import Builder
from torch_fl.refs import Ref

from ._cupy_libraries import on_stream

_LETTERS = {torch.float32: "s", torch.float64: "d"}
_ROWS_FOR_EACH = 16
"""A batch of m matrices goes to the library, one by one, from so many rows times m on."""
_LOWER, _UPPER, _LEFT, _AS_IT_IS, _TRANSPOSED = 0, 1, 0, 0, 1
"""cublasFillMode_t, cublasSideMode_t, cublasOperation_t."""

Call = Callable[..., None]
"""Runs a routine for one matrix: a `_Room`, then the address of each Ref."""


class _Room:
    """What the calls of one launch share: functions of the library by their name without the dtype, and memory."""

    def __init__(self, backend: Any, dtype: torch.dtype) -> None:
        self._backend, self._letter, self._itemsize = backend, _LETTERS[dtype], dtype.itemsize
        self._held: list[Any] = []
        self.info = self.take(4)

    def take(self, nbytes: int) -> int:
        """Memory until the launch is over; the pool gives it to later work of this stream only."""
        self._held.append(self._backend._pool.malloc(max(1, nbytes)))
        return int(self._held[-1].ptr)

    def solve(self, name: str, *arguments: Any) -> Any:
        """Call a function of cuSOLVER."""
        function = getattr(self._backend.libraries.get("cusolver"), self._letter + name)
        return function(self._backend.card.cusolver_handle, *arguments)

    def multiply(self, name: str, *arguments: Any) -> Any:
        """Call a function of cuBLAS."""
        function = getattr(self._backend.libraries.get("cublas"), self._letter + name)
        return function(self._backend.card.cublas_handle, *arguments)

    def work(self, name: str, *arguments: Any) -> tuple[int, int]:
        """Memory that a routine asks for: its address, and its size in elements."""
        size = int(self.solve(f"{name}_bufferSize", *arguments))
        return self.take(size * self._itemsize), size


def _record(b: Builder, refs: Sequence[Ref], call: Call) -> bool:
    """Record `call` for every matrix of a batch; all Refs have the batch as their first dimension."""
    backend: Any = b.device.backend
    steps = [r.strides[0] * r.dtype.itemsize for r in refs]
    batch, dtype = refs[0].shape[0], refs[0].dtype

    def run(*places: tuple[Any, int, Ref]) -> None:
        starts = [handle.ptr + offset * ref.dtype.itemsize for handle, offset, ref in places]
        with on_stream(backend, [p[0] for p in places]):
            room = _Room(backend, dtype)
            for i in range(batch):
                call(room, *(start + i * step for start, step in zip(starts, steps)))

    b.function(run, *refs)
    return True


# -- the routines: what stands in `Backend.routine`, recorded ----------------------------------------------------------
def _potrf(b: Builder, a: Ref, info: Ref) -> bool:
    """The lower triangle of `a` becomes its Cholesky factor."""
    batch, n, _ = a.shape

    def call(r: _Room, a: int, info: int) -> None:
        r.solve("potrf", _LOWER, n, a, n, *r.work("potrf", _LOWER, n, a, n), info)

    return _record(b, [a, info.view(batch)], call)


def _getrf(b: Builder, a: Ref, pivots: Ref, info: Ref) -> bool:
    """`a` becomes L and U."""
    batch, m, n = a.shape

    def call(r: _Room, a: int, pivots: int, info: int) -> None:
        r.solve("getrf", m, n, a, m, r.work("getrf", m, n, a, m)[0], pivots, info)

    return _record(b, [a, pivots.view(batch, min(m, n)), info.view(batch)], call)


def _getrs(b: Builder, lu: Ref, pivots: Ref, x: Ref, transposed: bool) -> bool:
    """`x` becomes the solution."""
    batch, n, cols = x.shape

    def call(r: _Room, lu: int, pivots: int, x: int) -> None:
        r.solve("getrs", int(transposed), n, cols, lu, n, pivots, x, n, r.info)

    return _record(b, [lu, pivots.view(batch, n), x], call)


def _geqrf(b: Builder, a: Ref, tau: Ref) -> bool:
    """`a` becomes R and the reflections."""
    batch, m, n = a.shape

    def call(r: _Room, a: int, tau: int) -> None:
        r.solve("geqrf", m, n, a, m, tau, *r.work("geqrf", m, n, a, m), r.info)

    return _record(b, [a, tau.view(batch, min(m, n))], call)


def _ormqr(b: Builder, a: Ref, tau: Ref, c: Ref, transposed: bool) -> bool:
    """`c` is multiplied by Q from the left."""
    batch, m, cols = c.shape
    k = tau.shape[-1]
    if not k:
        return False

    def call(r: _Room, a: int, tau: int, c: int) -> None:
        sizes = (_LEFT, int(transposed), m, cols, k, a, m, tau, c, m)
        r.solve("ormqr", *sizes, *r.work("ormqr", *sizes), r.info)

    return _record(b, [a, tau.view(batch, k), c], call)


def _trsm(b: Builder, a: Ref, x: Ref, lower: bool, unit: bool) -> bool:
    """`x` becomes the solution for a triangle stored by columns or by rows."""
    turned = a.strides[1] != 1
    step, other = (a.strides[1], a.strides[2]) if turned else (a.strides[2], a.strides[1])
    (_, n, cols), (_, x_inner, x_step) = x.shape, x.strides
    if other != 1 or step < n or x_inner != 1 or x_step < n:
        return False
    fill = _LOWER if lower != turned else _UPPER
    one = np.ones(1, np.float32 if a.dtype == torch.float32 else np.float64)

    def call(r: _Room, a: int, x: int) -> None:
        operation = _TRANSPOSED if turned else _AS_IT_IS
        sizes = (n, cols, one.ctypes.data, a, step, x, x_step)
        r.multiply("trsm", _LEFT, fill, operation, int(unit), *sizes)

    return _record(b, [a, x], call)


def _syevd(b: Builder, a: Ref, values: Ref, info: Ref, vectors: bool) -> bool:
    """`a`, symmetric, becomes its eigenvectors."""
    batch, n, _ = a.shape

    def call(r: _Room, a: int, values: int, info: int) -> None:
        sizes = (int(vectors), _LOWER, n, a, n, values)
        r.solve("syevd", *sizes, *r.work("syevd", *sizes), info)

    return _record(b, [a, values.view(batch, n), info.view(batch)], call)


def _gesvd(b: Builder, a: Ref, vt: Ref, values: Ref, info: Ref, vectors: bool) -> bool:
    """`a`, square, becomes U."""
    batch, n, _ = a.shape
    jobs = (ord("O"), ord("S")) if vectors else (ord("N"), ord("N"))
    hip = b.device.backend.name == "rocm"

    def call(r: _Room, a: int, vt: int, values: int, info: int) -> None:
        rest = r.take(n * 8) if hip else 0  # cuSOLVER needs none
        work = r.work("gesvd", n, n)
        r.solve("gesvd", *jobs, n, n, a, n, values, 0, n, vt, n, *work, rest, info)

    return _record(b, [a, vt, values.view(batch, n), info.view(batch)], call)


@dataclass(frozen=True)
class _Routine:
    record: Callable[..., bool]
    library: str = "cusolver"
    adapters: tuple[str, ...] = ("cuda", "rocm")


_ROUTINES = {
    "potrf": _Routine(_potrf),
    "getrf": _Routine(_getrf),
    "getrs": _Routine(_getrs),
    "geqrf": _Routine(_geqrf),
    "ormqr": _Routine(_ormqr),
    "trsm": _Routine(_trsm, "cublas"),
    "syevd": _Routine(_syevd, adapters=("cuda",)),  # CuPy's rocSOLVER has none
    "gesvd": _Routine(_gesvd),
}


def routine(b: Builder, name: str, *arguments: Any) -> bool:
    """`Backend.routine`: False for dtypes, sizes and batches that are left to our kernels, and without the library."""
    backend: Any = b.device.backend
    refs = [a for a in arguments if isinstance(a, Ref)]
    batch, rows = refs[0].shape[:2]
    floats = {r.dtype for r in refs if r.dtype != torch.int32}
    entry = _ROUTINES.get(name)
    if entry is None or backend.name not in entry.adapters or len(floats) != 1 or not floats <= _LETTERS.keys():
        return False
    if any(r.numel == 0 for r in refs) or batch * _ROWS_FOR_EACH > rows or backend.libraries.get(entry.library) is None:
        return False
    return entry.record(b, *arguments)
