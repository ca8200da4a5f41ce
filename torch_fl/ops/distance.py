"""Distances between rows: cdist and pdist in any p-norm, and their gradients (native/distance.c).

Every distance is summed from differences. torch.cdist itself comes here for p = 2 only with few rows, or where
`compute_mode` forbids the expanded square: it is faster through a matrix product, and inexact for rows that are close.
"""

from __future__ import annotations

from typing import Any

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.types import ctype
from ..refs import Ref
from ..registry import kernel

_SOURCE = "distance.c"
_TILE = 32
"""Neighbouring results of a work-item on a CPU."""

INFINITY = float("inf")
# p -> (STEP, END); a NaN stays.
_NORMS = {
    0.0: ("(s) + ((d) != (d) ? (d) : (T_acc)((d) != 0))", "(s)"),
    1.0: ("(s) + (d)", "(s)"),
    2.0: ("(s) + (d) * (d)", "sqrt(s)"),
    INFINITY: ("((d) > (s) || (d) != (d) ? (d) : (s))", "(s)"),
}
_ANY_NORM = ("(s) + pow(d, p)", "pow(s, 1 / p)")
_SIGN = "(A)(((d) > 0) - ((d) < 0))"


def _derivative(p: float) -> str:
    """The gradient of one coordinate; 0 where the distance has none."""
    if p == 0:
        return "(A)0"
    if p == 1:
        return f"(g) * {_SIGN}"
    if p == INFINITY:
        return f"(fabs(d) == (r) ? (g) * {_SIGN} : (A)0)"
    if p == 2:
        return "((r) == 0 ? (A)0 : (g) * (d) / (r))"
    flat = "(r) == 0 || ((d) == 0 && p < 1)"
    return f"({flat} ? (A)0 : {_SIGN} * pow(fabs(d), p - 1) * (g) / pow(r, p - 1))"


def norm_macros(p: float) -> tuple[str, str]:
    """Two C expressions of a p-norm: `s` joined with the size `d` of one number, and the norm from all of them."""
    step, end = _NORMS.get(p, _ANY_NORM)
    return f"({step})", f"({end})"


def _defines(b: Builder, ref: Ref, p: float) -> dict[str, object]:
    if not ref.dtype.is_floating_point:
        raise Unsupported(f"distances of {ctype(ref.dtype).compute}")
    step, end = norm_macros(p)
    macros = {"STEP(s, d)": step, "END(s)": end, "DERIV(d, g, r)": _derivative(p), "TILE": _tile(b)}
    return {**b.types(T=ref.dtype), **macros}


def _tile(b: Builder) -> int:
    return _TILE if b.is_cpu else 1


def _number(p: float) -> float:
    """p for kernels: they use it in the general norm only."""
    return 0.0 if p in _NORMS else p


def _batched(b: Builder, ref: Ref, batch: tuple[int, ...], rows: int, columns: int) -> Ref:
    """Row-major [batch, rows, columns]."""
    return b.contiguous(ref.expand((*batch, rows, columns)))


@kernel("aten::_cdist_forward", static=("p",))
def cdist(b: Builder, x1: Ref, x2: Ref, p: float) -> None:
    """[..., P, R]: distances of the rows of x1 [..., P, M] and x2 [..., R, M]."""
    out = b.out()
    batch, (rows, columns), width = out.shape[:-2], out.shape[-2:], x1.shape[-1]
    y, tiles = b.row_major(out), -(-columns // _tile(b))
    lines = _batched(b, x1, batch, rows, width)
    points = _batched(b, x2.transpose(-1, -2), batch, width, columns)
    count = out.numel // max(columns, 1)
    args: list[Any] = [lines, points, y, rows, columns, width, tiles, _number(p)]
    b.launch(_SOURCE, "cdist", count * tiles, args, _defines(b, out, p))
    b.deliver(out, y)


@kernel("aten::_cdist_backward", static=("p",))
def cdist_backward(b: Builder, grad: Ref, x1: Ref, x2: Ref, p: float, cdist: Ref) -> None:
    """Gradient of x1."""
    out = b.out()
    if 0 in (*out.shape, *cdist.shape):  # torch's result then has the shape of x1
        b.fill(out, 0)
        return
    batch, (rows, width), columns = out.shape[:-2], out.shape[-2:], x2.shape[-2]
    dx, tiles = b.row_major(out), -(-width // _tile(b))
    grads, dists = (_batched(b, r, batch, rows, columns) for r in (grad, cdist))
    x, z = _batched(b, x1, batch, rows, width), _batched(b, x2, batch, columns, width)
    count = out.numel // max(width, 1)
    args: list[Any] = [grads, x, z, dists, dx, rows, columns, width, tiles, _number(p)]
    b.launch(_SOURCE, "cdist_backward", count * tiles, args, _defines(b, out, p))
    b.deliver(out, dx)


@kernel("aten::_pdist_forward", static=("p",))
def pdist(b: Builder, self: Ref, p: float) -> None:
    """[N * (N - 1) / 2]: distances of all pairs of rows (i < j) of [N, M], by i and then by j."""
    out, (n, width) = b.out(), self.shape
    if out.numel:
        args: list[Any] = [b.contiguous(self), out, n, width, _number(p)]
        b.launch(_SOURCE, "pdist", n, args, _defines(b, self, p))


@kernel("aten::_pdist_backward", static=("p",))
def pdist_backward(b: Builder, grad: Ref, self: Ref, p: float, pdist: Ref) -> None:
    """Gradient of the rows."""
    out, (n, width) = b.out(), self.shape
    dx, tiles = b.row_major(out), -(-width // _tile(b))
    args: list[Any] = [b.contiguous(grad), b.contiguous(self), b.contiguous(pdist), dx, n, width, tiles, _number(p)]
    b.launch(_SOURCE, "pdist_backward", n * tiles, args, _defines(b, self, p))
    b.deliver(out, dx)
