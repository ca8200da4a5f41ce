"""Cholesky factors, and solutions and inverses from them."""

from __future__ import annotations

import torch

from ..builder import Builder
from ..refs import Ref
from ..registry import kernel
from .linalg import (
    BLOCK,
    columns,
    flat,
    identity,
    in_columns,
    launch,
    new_columns,
    raise_errors,
    subtract_product,
    triangle,
)
from .linalg_triangular import solve_triangle

ROWS = 64
"""Rows below the block on the diagonal that one work-item handles on a CPU."""


def factor(b: Builder, a: Ref, info: Ref) -> None:
    """The lower triangle of a (flat) becomes its factor, the upper one is undefined; info as LAPACK's potrf."""
    if b.device.backend.routine(b, "potrf", a, info):
        return
    batch, n, _ = a.shape
    rows = ROWS if b.is_cpu else 1
    if n == 0:
        b.fill(info, 0)
    for start in range(0, n, BLOCK):
        w = min(BLOCK, n - start)
        end = start + w
        launch(b, "linalg.c", "cholesky_panel", batch, [a, info, n, start, w], a.dtype)
        left = n - end
        if left:
            grid = (-(-left // rows), batch)
            launch(b, "linalg.c", "cholesky_below", grid, [a, info, n, start, w, rows], a.dtype)
            below = a.narrow(1, end, left).narrow(2, start, w)
            subtract_product(b, a.narrow(1, end, left).narrow(2, end, left), below, below.transpose(1, 2), lower=True)


def _factored(b: Builder, out: Ref, source: Ref, info: Ref, upper: bool) -> None:
    """out = the factor of `source`, of which only one triangle is read."""
    a = new_columns(b, source.shape, source.dtype)
    b.copy(a, source.transpose(-1, -2) if upper else source)
    factor(b, flat(a), info)
    triangle(b, out, a.transpose(-1, -2) if upper else a, not upper)


@kernel("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(b: Builder, self: Ref, upper: bool, check_errors: bool) -> None:
    """(L with self = L @ L^T, or its transpose for `upper`; info)."""
    info = b.row_major(b.out(1))
    _factored(b, b.out(0), self, info, upper)
    b.deliver(b.out(1), info)
    if check_errors:
        raise_errors(b, info, "linalg.cholesky_ex")


@kernel("aten::cholesky")
def cholesky(b: Builder, self: Ref, upper: bool) -> None:
    """L with self = L @ L^T; raises LinAlgError where there is none."""
    info = b.temp(self.shape[:-2], torch.int32)
    _factored(b, b.out(), self, info, upper)
    raise_errors(b, info, "cholesky")


@kernel("aten::_cholesky_solve_helper")
def cholesky_solve(b: Builder, self: Ref, A: Ref, upper: bool) -> None:
    """The solution of (L @ L^T) @ out = self for a factor A."""
    out = b.out()
    x = columns(b, out)
    b.copy(x, self)
    _solve(b, A, x, upper)
    b.deliver(out, x)


@kernel("aten::cholesky_inverse")
def cholesky_inverse(b: Builder, self: Ref, upper: bool) -> None:
    """The inverse of L @ L^T for a factor `self`."""
    out = b.out()
    x = columns(b, out)
    identity(b, x)
    _solve(b, self, x, upper)
    b.deliver(out, x)


def _solve(b: Builder, factor: Ref, x: Ref, upper: bool) -> None:
    low = in_columns(b, factor.transpose(-1, -2) if upper else factor)
    solve_triangle(b, flat(low), flat(x), lower=True)
    solve_triangle(b, flat(low).transpose(1, 2), flat(x), lower=False)
