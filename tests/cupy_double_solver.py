"""A stand-in for the calls of cuSOLVER and cuBLAS that backends/_cupy_solver.py makes, by torch's CPU (cupy_double).

It is as strict as LAPACK's documents allow: what a routine may leave undefined holds NaN, workspaces must have the
sizes that were told, and a routine knows only the card of its handle.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cupy_double import calls, getDevice
from cupy_double_arrays import later

LOWER, LEFT = 0, 0
NAN = float("nan")


class CUSOLVERError(RuntimeError):
    """An error of cuSOLVER."""


class CUBLASError(RuntimeError):
    """An error of cuBLAS."""


def _matrix(pointer: int, rows: int, columns: int, step: int, dtype: Any) -> Any:
    """Memory as a matrix stored by columns."""
    assert step >= max(1, rows)
    itemsize = np.dtype(dtype).itemsize
    reach = ((columns - 1) * step + rows) * itemsize
    return np.ndarray(
        (rows, columns), dtype, (ctypes.c_char * reach).from_address(pointer), 0, (itemsize, itemsize * step)
    )


def _vector(pointer: int, n: int, dtype: Any) -> Any:
    return np.ndarray((n,), dtype, (ctypes.c_char * (n * np.dtype(dtype).itemsize)).from_address(pointer))


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(array.copy())


def _begin(name: str, handle: int, *sizes: int) -> None:
    assert handle == getDevice() + 1
    calls.append((name, *sizes))


def _room(name: str, *sizes: int) -> int:
    """What `<name>_bufferSize` tells."""
    return 3 + sum(sizes)


def _told(name: str, count: int) -> Callable[..., int]:
    """`<name>_bufferSize` of a routine: `count` of its arguments are numbers that fix the size."""

    def size(handle: int, *arguments: int) -> int:
        assert handle == getDevice() + 1
        return _room(name, *arguments[:count])

    return size


def _routines(dtype: Any) -> dict[str, Callable[..., Any]]:
    """The functions for one dtype, by their name without its letter; arguments as CuPy's bindings have them."""

    def potrf(handle: int, uplo: int, n: int, A: int, lda: int, work: int, lwork: int, devInfo: int) -> None:
        _begin("potrf", handle, n)
        assert (uplo, lwork) == (LOWER, _room("potrf", uplo, n))

        def run() -> None:
            a = _matrix(A, n, n, lda, dtype)
            low = np.tril(a)
            factor, info = torch.linalg.cholesky_ex(torch.from_numpy(low + np.tril(low, -1).T))
            a[...] = np.where(np.tri(n, dtype=bool), factor.numpy(), NAN)
            _vector(devInfo, 1, np.int32)[0] = int(info)

        later(run)

    def getrf(handle: int, m: int, n: int, A: int, lda: int, work: int, devIpiv: int, devInfo: int) -> None:
        _begin("getrf", handle, m, n)

        def run() -> None:
            a = _matrix(A, m, n, lda, dtype)
            lu, pivots, info = torch.linalg.lu_factor_ex(_tensor(a))
            a[...] = lu.numpy()
            _vector(devIpiv, min(m, n), np.int32)[...] = pivots.numpy()
            _vector(devInfo, 1, np.int32)[0] = int(info)

        later(run)

    def getrs(
        handle: int, trans: int, n: int, nrhs: int, A: int, lda: int, devIpiv: int, B: int, ldb: int, devInfo: int
    ) -> None:
        _begin("getrs", handle, n, nrhs)

        def run() -> None:
            lu, x = _matrix(A, n, n, lda, dtype), _matrix(B, n, nrhs, ldb, dtype)
            pivots = torch.from_numpy(_vector(devIpiv, n, np.int32).copy())
            x[...] = torch.linalg.lu_solve(_tensor(lu), pivots, _tensor(x), adjoint=bool(trans)).numpy()
            _vector(devInfo, 1, np.int32)[0] = 0

        later(run)

    def geqrf(handle: int, m: int, n: int, A: int, lda: int, tau: int, work: int, lwork: int, devInfo: int) -> None:
        _begin("geqrf", handle, m, n)
        assert lwork == _room("geqrf", m, n)

        def run() -> None:
            a = _matrix(A, m, n, lda, dtype)
            factors, scales = torch.geqrf(_tensor(a))
            a[...] = factors.numpy()
            _vector(tau, min(m, n), dtype)[...] = scales.numpy()
            _vector(devInfo, 1, np.int32)[0] = 0

        later(run)

    def ormqr(
        handle: int, side: int, trans: int, m: int, n: int, k: int, A: int, lda: int, tau: int, C: int, ldc: int,
        work: int, lwork: int, devInfo: int,
    ) -> None:  # fmt: skip
        _begin("ormqr", handle, m, n, k)
        assert (side, lwork) == (LEFT, _room("ormqr", side, trans, m, n, k))

        def run() -> None:
            c = _matrix(C, m, n, ldc, dtype)
            a, scales = _tensor(_matrix(A, m, k, lda, dtype)), _tensor(_vector(tau, k, dtype))
            c[...] = torch.ormqr(a, scales, _tensor(c), transpose=bool(trans)).numpy()

        later(run)

    def syevd(
        handle: int, jobz: int, uplo: int, n: int, A: int, lda: int, W: int, work: int, lwork: int, info: int
    ) -> None:
        _begin("syevd", handle, n)
        assert (uplo, lwork) == (LOWER, _room("syevd", jobz, uplo, n))

        def run() -> None:
            a = _matrix(A, n, n, lda, dtype)
            values, vectors = torch.linalg.eigh(_tensor(a))
            _vector(W, n, dtype)[...] = values.numpy()
            a[...] = vectors.numpy() if jobz else NAN
            _vector(info, 1, np.int32)[0] = 0

        later(run)

    def gesvd(
        handle: int, jobu: int, jobvt: int, m: int, n: int, A: int, lda: int, S: int, U: int, ldu: int, VT: int,
        ldvt: int, Work: int, lwork: int, rwork: int, devInfo: int,
    ) -> None:  # fmt: skip
        _begin("gesvd", handle, m, n)
        assert m >= n
        assert lwork == _room("gesvd", m, n)
        assert (chr(jobu), chr(jobvt)) in (("O", "S"), ("N", "N"))

        def run() -> None:
            a = _matrix(A, m, n, lda, dtype)
            u, s, vt = torch.linalg.svd(_tensor(a), full_matrices=False)
            _vector(S, n, dtype)[...] = s.numpy()
            a[...] = u.numpy() if chr(jobu) == "O" else NAN
            if chr(jobvt) == "S":
                _matrix(VT, n, n, ldvt, dtype)[...] = vt.numpy()
            _vector(devInfo, 1, np.int32)[0] = 0

        later(run)

    routines: dict[str, Callable[..., Any]] = {f.__name__: f for f in (potrf, getrf, getrs, geqrf, ormqr, syevd, gesvd)}
    sizes = {"potrf": 2, "getrf": 2, "geqrf": 2, "ormqr": 5, "syevd": 3, "gesvd": 2}
    return routines | {f"{name}_bufferSize": _told(name, count) for name, count in sizes.items()}


def _trsm(dtype: Any) -> Callable[..., None]:
    def trsm(
        handle: int, side: int, uplo: int, trans: int, diag: int, m: int, n: int, alpha: int, Aarray: int, lda: int,
        Barray: int, ldb: int,
    ) -> None:  # fmt: skip
        _begin("trsm", handle, m, n)
        assert side == LEFT
        assert _vector(alpha, 1, dtype)[0] == 1

        def run() -> None:
            a, x = _tensor(_matrix(Aarray, m, m, lda, dtype)), _matrix(Barray, m, n, ldb, dtype)
            upper = uplo != LOWER
            a = (a.triu() if upper else a.tril()).mT if trans else (a.triu() if upper else a.tril())
            upper = upper != bool(trans)
            x[...] = torch.linalg.solve_triangular(a, _tensor(x), upper=upper, unitriangular=bool(diag)).numpy()

        later(run)

    return trsm


cusolver = {"CUSOLVERError": CUSOLVERError} | {
    letter + name: function
    for letter, dtype in (("s", np.float32), ("d", np.float64))
    for name, function in _routines(dtype).items()
}
cublas = {"CUBLASError": CUBLASError, "strsm": _trsm(np.float32), "dtrsm": _trsm(np.float64)}
