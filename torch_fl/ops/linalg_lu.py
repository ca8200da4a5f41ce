"""LU factors with partial pivoting, and what is made of them: solutions, inverses, determinants.

As torch's CPU kernels do, `_linalg_det` and `_linalg_slogdet` factor the transpose of a row-major matrix: the formulas
of their gradients count on it.
"""

from __future__ import annotations

import torch

from ..builder import Builder
from ..errors import Error, Unsupported, message
from ..refs import Ref
from ..registry import kernel
from ..runtime.guard import code_of
from .linalg import (
    BLOCK,
    column_strides,
    columns,
    flat,
    identity,
    in_columns,
    launch,
    new_columns,
    on_the_left,
    raise_errors,
    subtract_product,
    triangle,
)
from .linalg_triangular import solve_triangle


def factor(b: Builder, a: Ref, pivots: Ref, info: Ref) -> None:
    """a (flat) becomes its factors; pivots int32 [batch, k], rows counted from 1; info as LAPACK's getrf."""
    if b.device.backend.routine(b, "getrf", a, pivots, info):
        return
    batch, m, n = a.shape
    k = min(m, n)
    if k == 0:
        b.fill(info, 0)
    for start in range(0, k, BLOCK):
        w = min(BLOCK, k - start)
        end = start + w
        launch(b, "linalg.c", "lu_panel", batch, [a, pivots, info, m, n, k, start, w], a.dtype)
        launch(b, "linalg.c", "lu_columns", (n - w, batch), [a, pivots, a, m, n, k, start, w], a.dtype)
        if end < m and end < n:
            below, right = a.narrow(1, end, m - end), a.narrow(2, end, n - end)
            subtract_product(b, right.narrow(1, end, m - end), below.narrow(2, start, w), right.narrow(1, start, w))


def _factored(b: Builder, source: Ref, out: Ref, pivots: Ref, info: Ref) -> tuple[Ref, Ref]:
    """Write the factors of `source` to results; gives the flat factors and the dense pivots to go on with."""
    lu, swaps, told = columns(b, out), b.row_major(pivots), b.row_major(info)
    b.copy(lu, source)
    factor(b, flat(lu), swaps, told)
    b.deliver(out, lu)
    b.deliver(pivots, swaps)
    b.deliver(info, told)
    return flat(lu), swaps


def _pivots(b: Builder, like: Ref) -> tuple[Ref, Ref]:
    """Temporaries for the pivots and infos of matrices like these."""
    *batch, m, n = like.shape
    return b.temp((*batch, min(m, n)), torch.int32), b.temp(batch, torch.int32)


def _exchange(b: Builder, pivots: Ref, x: Ref, undo: bool) -> None:
    batch, n, cols = x.shape
    args = [pivots, x, n, cols, pivots.shape[-1], int(undo)]
    launch(b, "linalg.c", "exchange_rows", (cols, batch), args, x.dtype)


def solve_factored(b: Builder, lu: Ref, pivots: Ref, x: Ref, transposed: bool) -> None:
    """x becomes the solution of a @ solution = x (transposed: a^T @ solution = x) from the factors of a; flat Refs."""
    if b.device.backend.routine(b, "getrs", lu, pivots, x, transposed):
        return
    if transposed:
        solve_triangle(b, lu.transpose(1, 2), x, lower=True)
        solve_triangle(b, lu.transpose(1, 2), x, lower=False, unit=True)
        _exchange(b, pivots, x, undo=True)
        return
    _exchange(b, pivots, x, undo=False)
    solve_triangle(b, lu, x, lower=True, unit=True)
    solve_triangle(b, lu, x, lower=False)


@kernel("aten::linalg_lu_factor_ex")
def linalg_lu_factor_ex(b: Builder, A: Ref, pivot: bool, check_errors: bool) -> None:
    """(factors in one matrix, pivots, info)."""
    _need_pivots(pivot)
    _factored(b, A, b.out(0), b.out(1), b.out(2))
    if check_errors:
        raise_errors(b, b.out(2), "torch.linalg.lu_factor_ex")


def _need_pivots(pivot: bool) -> None:
    if not pivot:
        raise Unsupported("LU without pivots")


@kernel("aten::linalg_lu")
def linalg_lu(b: Builder, A: Ref, pivot: bool) -> None:
    """(P, L, U) with A = P @ L @ U."""
    _need_pivots(pivot)
    lu = new_columns(b, A.shape, A.dtype)
    pivots, info = _pivots(b, A)
    b.copy(lu, A)
    factor(b, flat(lu), pivots, info)
    _permutation(b, b.out(0), pivots)
    _halves(b, lu, b.out(1), b.out(2))


def _halves(b: Builder, lu: Ref, lower: Ref, upper: Ref) -> None:
    m, n = lu.shape[-2:]
    k = min(m, n)
    triangle(b, lower, lu.narrow(-1, 0, k), lower=True, unit=True)
    triangle(b, upper, lu.narrow(-2, 0, k), lower=False)


def _permutation(b: Builder, out: Ref, pivots: Ref) -> None:
    p = b.row_major(out)
    *batch, m, _ = p.shape
    order = b.temp((*batch, m), torch.int32)
    b.fill(p, 0)
    matrices = 1
    for n in batch:
        matrices *= n
    if m:
        args = [pivots, order, p, b.guard(), m, pivots.shape[-1], code_of("lu_unpack")]
        launch(b, "linalg.c", "permutation", matrices, args, p.dtype)
    b.deliver(out, p)


@kernel("aten::lu_unpack")
def lu_unpack(b: Builder, LU_data: Ref, LU_pivots: Ref, unpack_data: bool, unpack_pivots: bool) -> None:
    """(P, L, U) of factors and pivots; what is not asked for stays empty.

    Raises Error for pivots of other factors: torch's CPU, which is not asked then, reads and writes outside of them.
    """
    *batch, m, n = LU_data.shape
    if unpack_pivots and LU_pivots.shape != (*batch, min(m, n)):
        raise Error(message(f"lu_unpack got pivots {LU_pivots.shape} for factors {LU_data.shape}",
                            because=f"these have pivots {(*batch, min(m, n))}"))  # fmt: skip
    if unpack_pivots:
        _permutation(b, b.out(0), b.contiguous(LU_pivots))
    if unpack_data:
        _halves(b, LU_data, b.out(1), b.out(2))


@kernel("aten::linalg_lu_solve")
def linalg_lu_solve(b: Builder, LU: Ref, pivots: Ref, B: Ref, left: bool, adjoint: bool) -> None:
    """A @ out = B, or out @ A = B where not `left`; A^T in place of A for `adjoint`; leading dimensions broadcast."""
    out = b.out()
    n, batch = LU.shape[-1], out.shape[:-2]
    lu = flat(in_columns(b, LU, (*batch, n, n)))
    swaps = b.contiguous(pivots.expand((*batch, n)))
    _solve(b, out, lu, swaps, B, left, adjoint)


def _solve(b: Builder, out: Ref, lu: Ref, pivots: Ref, right: Ref, left: bool, transposed: bool) -> None:
    on_the_left(b, out, right, left, lambda x: solve_factored(b, lu, pivots, x, transposed == left))


@kernel("aten::_linalg_solve_ex")
def linalg_solve_ex(b: Builder, A: Ref, B: Ref, left: bool, check_errors: bool) -> None:
    """(solution of A @ X = B or X @ A = B, factors, pivots, info); B may be vectors."""
    result, out = b.out(0), b.out(1)
    lu, pivots = _factored(b, A, out, b.out(2), b.out(3))
    if B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]):
        result, B = result.unsqueeze(-1), B.unsqueeze(-1)
    shape = (*result.shape[:-2], *A.shape[-2:])
    if shape != A.shape:  # the right sides of one matrix may be a batch
        lu = flat(in_columns(b, lu.as_strided(out.shape, column_strides(out.shape)), shape))
        pivots = b.contiguous(pivots.expand(shape[:-1]))
    _solve(b, result, lu, pivots, B, left, False)
    if check_errors:
        raise_errors(b, b.out(3), "torch.linalg.solve_ex")


@kernel("aten::linalg_inv_ex")
def linalg_inv_ex(b: Builder, A: Ref, check_errors: bool) -> None:
    """(inverse, info)."""
    inverse, info = b.out(0), b.row_major(b.out(1))
    lu, x = new_columns(b, A.shape, A.dtype), columns(b, inverse)
    pivots, _ = _pivots(b, A)
    b.copy(lu, A)
    factor(b, flat(lu), pivots, info)
    identity(b, x)
    solve_factored(b, flat(lu), pivots, flat(x), False)
    b.deliver(inverse, x)
    b.deliver(b.out(1), info)
    if check_errors:
        raise_errors(b, info, "linalg.inv_ex")


@kernel("aten::_linalg_det")
def linalg_det(b: Builder, A: Ref) -> None:
    """(determinant, factors, pivots)."""
    value = b.row_major(b.out(0))
    _determinant(b, A, (b.out(1), b.out(2)), value, value, False)
    b.deliver(b.out(0), value)


@kernel("aten::_linalg_slogdet")
def linalg_slogdet(b: Builder, A: Ref) -> None:
    """(sign of the determinant, logarithm of its absolute value, factors, pivots)."""
    sign, logarithm = b.row_major(b.out(0)), b.row_major(b.out(1))
    _determinant(b, A, (b.out(2), b.out(3)), sign, logarithm, True)
    b.deliver(b.out(0), sign)
    b.deliver(b.out(1), logarithm)


def _determinant(b: Builder, a: Ref, outs: tuple[Ref, Ref], value: Ref, logarithm: Ref, log_form: bool) -> None:
    source = a.transpose(-1, -2) if a.is_contiguous else a
    lu, pivots = _factored(b, source, *outs, _pivots(b, a)[1])
    args = [lu, pivots, value, logarithm, a.shape[-1], int(log_form)]
    launch(b, "linalg.c", "determinant", lu.shape[0], args, a.dtype)
