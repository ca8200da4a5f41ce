"""QR factors by Householder reflections, and products with their orthogonal part.

A reflection changes every column by itself: one work-item per column, except inside a panel.
"""

from __future__ import annotations

from ..builder import Builder
from ..errors import Unsupported
from ..refs import Ref
from ..registry import kernel
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
    triangle,
)


def factor(b: Builder, a: Ref, tau: Ref) -> None:
    """a (flat) becomes R above its diagonal and the reflections below it, tau their factors, as LAPACK's geqrf."""
    if b.device.backend.routine(b, "geqrf", a, tau):
        return
    batch, m, n = a.shape
    k = min(m, n)
    for start in range(0, k, BLOCK):
        w = min(BLOCK, k - start)
        launch(b, "linalg_qr.c", "qr_panel", batch, [a, tau, m, n, k, start, w], a.dtype)
        right = n - start - w
        if right:
            _reflect(b, a, tau, a.narrow(2, start + w, right), (start, w), last_first=False)


def _reflect(b: Builder, a: Ref, tau: Ref, c: Ref, which: tuple[int, int], last_first: bool) -> None:
    """Apply reflections (first, count) to c; a, c flat or columns of flat Refs, tau dense."""
    batch, m, cols = c.shape
    args = [a, tau, c, m, a.strides[0], tau.shape[-1], c.strides[0], *which, int(last_first)]
    launch(b, "linalg_qr.c", "reflect", (cols, batch), args, c.dtype)


def multiply(b: Builder, a: Ref, tau: Ref, c: Ref, transposed: bool = False) -> None:
    """c = Q @ c, or Q^T @ c; a, c flat with equally many rows."""
    if not b.device.backend.routine(b, "ormqr", a, tau, c, transposed):
        _reflect(b, a, tau, c, (0, tau.shape[-1]), last_first=not transposed)


def factored(b: Builder, source: Ref) -> tuple[Ref, Ref]:
    """Factors of `source` and their tau in temporaries."""
    *batch, m, n = source.shape
    a, tau = new_columns(b, source.shape, source.dtype), b.temp((*batch, min(m, n)), source.dtype)
    b.copy(a, source)
    factor(b, flat(a), tau)
    return a, tau


@kernel("aten::geqrf", infer=False)
def geqrf(b: Builder, self: Ref) -> None:
    """(R and reflections in one matrix, tau)."""
    *batch, m, n = self.shape
    a = b.new_out(0, self.shape, self.dtype, column_strides(self.shape))
    tau = b.new_out(1, (*batch, min(m, n)), self.dtype)
    b.copy(a, self)
    factor(b, flat(a), tau)


@kernel("aten::linalg_qr")
def linalg_qr(b: Builder, A: Ref, mode: str) -> None:
    """(Q, R): mode "reduced", "complete", or "r", where Q is empty."""
    a, tau = factored(b, A)
    r = b.out(1)
    triangle(b, r, a.narrow(-2, 0, r.shape[-2]), lower=False)
    if mode != "r":
        _orthogonal(b, b.out(0), a, tau)


def _orthogonal(b: Builder, out: Ref, a: Ref, tau: Ref) -> None:
    q = columns(b, out)
    identity(b, q)
    multiply(b, flat(a), tau, flat(q))
    b.deliver(out, q)


@kernel("aten::linalg_householder_product")
def linalg_householder_product(b: Builder, input: Ref, tau: Ref) -> None:
    """The first columns of the product of the reflections."""
    _orthogonal(b, b.out(), in_columns(b, input), b.contiguous(tau))


@kernel("aten::ormqr")
def ormqr(b: Builder, self: Ref, input2: Ref, input3: Ref, left: bool, transpose: bool) -> None:
    """Q @ input3, or input3 @ Q where not `left`; Q^T in place of Q for `transpose`."""
    out = b.out()
    side = input3.shape[-2 if left else -1]
    if self.shape[-2] != side or input2.shape[-1] != min(side, self.shape[-1]):
        raise Unsupported("ormqr of these shapes")
    a, tau = flat(in_columns(b, self)), b.contiguous(input2)
    on_the_left(b, out, input3, left, lambda c: multiply(b, a, tau, c, transpose == left))
