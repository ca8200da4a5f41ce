"""Triangular systems, block by block: a column of the right side per work-item, then a matrix product for the rest."""

from __future__ import annotations

from ..builder import Builder
from ..refs import Ref
from ..registry import kernel
from .linalg import BLOCK, flat, in_columns, launch, on_the_left, subtract_product


def solve_triangle(b: Builder, a: Ref, x: Ref, lower: bool, unit: bool = False) -> None:
    """x becomes the solution of a @ solution = x; flat Refs, x column-major. The other triangle of `a` is not read."""
    if b.device.backend.routine(b, "trsm", a, x, lower, unit):
        return
    batch, n, cols = x.shape
    if n > BLOCK and a.strides[1] != 1:
        a = in_columns(b, a)
    starts = range(0, n, BLOCK) if lower else reversed(range(0, n, BLOCK))
    for start in starts:
        w = min(BLOCK, n - start)
        args = [a, x, n, cols, a.strides[1], a.strides[2], a.strides[0], start, w, int(lower), int(unit)]
        launch(b, "linalg.c", "solve_columns", (cols, batch), args, x.dtype)
        first, rest = (start + w, n - start - w) if lower else (0, start)
        if rest:
            solved = x.narrow(1, start, w)
            subtract_product(b, x.narrow(1, first, rest), a.narrow(1, first, rest).narrow(2, start, w), solved)


def flat_triangle(b: Builder, a: Ref, shape: tuple[int, ...]) -> Ref:
    """`a` broadcast to `shape` as [batch, n, n]: a view where its matrices are dense in either order."""
    a = a.expand(shape)
    if a.is_contiguous:
        return flat(a.transpose(-1, -2)).transpose(-1, -2)
    return flat(in_columns(b, a))


@kernel("aten::linalg_solve_triangular")
def linalg_solve_triangular(b: Builder, self: Ref, B: Ref, upper: bool, left: bool, unitriangular: bool) -> None:
    """self @ out = B, or out @ self = B where not `left`; leading dimensions broadcast."""
    out = b.out()
    n = self.shape[-1]
    a = flat_triangle(b, self, (*out.shape[:-2], n, n))
    _solve(b, out, a, B, upper, left, unitriangular)


def _solve(b: Builder, out: Ref, a: Ref, right: Ref, upper: bool, left: bool, unit: bool) -> None:
    a = a if left else a.transpose(-1, -2)
    on_the_left(b, out, right, left, lambda x: solve_triangle(b, a, x, upper != left, unit))


@kernel("aten::triangular_solve")
def triangular_solve(b: Builder, self: Ref, A: Ref, upper: bool, transpose: bool, unitriangular: bool) -> None:
    """(the solution of A @ solution = self or A^T @ solution = self, a copy of A); leading dimensions broadcast."""
    solution, copy = b.out(0), b.out(1)
    b.copy(copy, A)
    a = flat_triangle(b, A, copy.shape)
    a = a.transpose(-1, -2) if transpose else a
    _solve(b, solution, a, self, upper != transpose, True, unitriangular)
