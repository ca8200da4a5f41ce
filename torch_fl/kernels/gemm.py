"""Matrix products of any strides and up to two batch dimensions: which kernel of native/gemm.c runs, and with what.

Transposes, broadcasts and views cost nothing here: every kernel takes the strides of all operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported, unsupported_dtype
from ..refs import Layout, Ref, Value
from ..runtime.adapter import Backend
from ..tuning import Way, emit_best
from .gemm_cpu import cpu_ways
from .pointwise import emit
from .tiles import tile_ways
from .types import ctype

if TYPE_CHECKING:
    from ..builder import Builder

Number = Any  # float, int or Value
Emit = Callable[["Builder", "Problem", Number, Number], None]
TILE = 4


def emit_gemm(
    b: Builder,
    out: Ref,
    a: Ref,
    x: Ref,
    *,
    bias: Ref | None = None,
    alpha: float | int | Value = 1,
    beta: float | int | Value = 0,
    c: Ref | None = None,
    sum_batch: bool = False,
) -> None:
    """out = alpha * (a @ x) + beta * c + bias.

    Shapes: out [..., m, n], a [..., m, k], x [..., k, n] with equal batch dimensions (up to two); c and bias
    broadcast to out. With `sum_batch`, a [s, m, k] and x [s, k, n] are multiplied and summed over s into out [m, n].
    c is not read where beta is 0. Half types accumulate in float32. out must share no memory with a and x.
    Raises Unsupported for bool and complex.
    """
    if bias is not None and c is not None:
        emit_gemm(b, out, a, x, alpha=alpha, beta=beta, c=c, sum_batch=sum_batch)
        emit(b, {"o": (out, "product + bias")}, {"product": out, "bias": bias}, {}, _acc(out.dtype))
        return
    if bias is not None:
        c, beta = bias, 1
    if out.numel == 0:
        return
    emit_best(b, "product", (out, a, x, c, alpha, beta, sum_batch), _ways(b, out, a, x, c, sum_batch))


def _ways(b: Builder, out: Ref, a: Ref, x: Ref, c: Ref | None, sum_batch: bool) -> Iterator[Way]:
    """The vendor's library where it can, then our kernels, first as rules say and then with the sides exchanged."""
    if not sum_batch and type(b.device.backend).product is not Backend.product:
        yield Way("library", _emit_library)
    turned = _turns(out)
    for turn in (turned, not turned):
        problem = Problem(b, *_turned(turn, out, a, x, c), sum_batch)
        for name, way in _route(b)(b, problem):
            yield _way(name, turn, way)


def _way(name: str, turn: bool, emit: Emit) -> Way:
    def run(
        b: Builder, out: Ref, a: Ref, x: Ref, c: Ref | None, alpha: Number, beta: Number, sum_batch: bool = False
    ) -> None:
        emit(b, Problem(b, *_turned(turn, out, a, x, c), sum_batch), alpha, 0 if c is None else beta)

    return Way(f"{name} turned" if turn else name, run)


def _emit_library(
    b: Builder, out: Ref, a: Ref, x: Ref, c: Ref | None, alpha: Number, beta: Number, sum_batch: bool
) -> None:
    if not b.device.backend.product(b, out, a, x, c, alpha, beta):
        raise Unsupported("a product that the library does not make")


def _turns(out: Ref) -> bool:
    """Few columns: the transposed product wastes less of a register tile. Dense columns: they are written as rows."""
    return out.shape[-1] < min(out.shape[-2], 2 * TILE) or (
        out.strides[-2] == 1 < out.strides[-1] and out.shape[-2] >= 2 * TILE
    )


def _turned(turn: bool, out: Ref, a: Ref, x: Ref, c: Ref | None) -> tuple[Ref, Ref, Ref, Ref | None]:
    """The same product by columns."""
    if not turn:
        return out, a, x, c
    c = c if c is None else c.expand(out.shape).transpose(-1, -2)
    return out.transpose(-1, -2), x.transpose(-1, -2), a.transpose(-1, -2), c


def _route(b: Builder) -> Callable[[Builder, Problem], list[tuple[str, Emit]]]:
    if b.is_cpu:
        return cpu_ways
    return tile_ways if b.groups else _tile_alone


def _tile_alone(b: Builder, p: Problem) -> list[tuple[str, Emit]]:
    return [("tile", _tile)]


def need_numbers(*refs: Ref) -> None:
    """Raise Unsupported for bool and complex, of which there are no products here."""
    for ref in refs:
        if ref.dtype == torch.bool or ref.dtype.is_complex:
            raise unsupported_dtype(ref.dtype)


class Problem:
    """One product: operands padded to [b0, b1, s, m, n], [b0, b1, s, m, k], [b0, b1, s, k, n]."""

    def __init__(self, b: Builder, out: Ref, a: Ref, x: Ref, c: Ref | None, sum_batch: bool) -> None:
        need_numbers(out, a, x)
        c = out if c is None else c.expand(out.shape)
        self.out, self.c = (_pad(r.unsqueeze(-3), 5) for r in (out, c))
        self.a: Ref = _pad(a if sum_batch else a.unsqueeze(-3), 5)
        self.x: Ref = _pad(x if sum_batch else x.unsqueeze(-3), 5)
        self.acc = _acc(torch.promote_types(a.dtype, x.dtype))
        self.m: int = out.shape[-2]
        self.n: int = out.shape[-1]
        self.k: int = a.shape[-1]
        self.s: int = self.a.shape[2]
        self.batch: int = self.out.shape[0] * self.out.shape[1]

    @property
    def work(self) -> int:
        """Multiply-adds of one batch."""
        return self.m * self.n * self.k * self.s

    @property
    def layout(self) -> Layout:
        """Sizes (n, m, k, b1, b0, s) and strides of out, a, x, c."""
        o, a, x, c = (r.strides for r in (self.out, self.a, self.x, self.c))
        sizes = (self.n, self.m, self.k, self.out.shape[1], self.out.shape[0], self.s)
        rows = [(r[4], r[3], 0, r[1], r[0], 0) for r in (o, c)]
        left = (0, a[3], a[4], a[1], a[0], a[2])
        right = (x[4], 0, x[3], x[1], x[0], x[2])
        return Layout(sizes, (rows[0], left, right, rows[1]))

    def defines(self, b: Builder) -> dict[str, object]:
        """Types of all operands and of the accumulator."""
        found = b.types(T_o=self.out.dtype, T_a=self.a.dtype, T_x=self.x.dtype, T_c=self.c.dtype)
        b.types(ACC=self.acc)
        return found | {"ACC": ctype(self.acc).compute}


def _pad(ref: Ref, ndim: int) -> Ref:
    while ref.ndim < ndim:
        ref = ref.unsqueeze(0)
    return ref


def _acc(dtype: torch.dtype) -> torch.dtype:
    """The dtype sums are kept in: float32 for halves, at least int32 for integers."""
    if dtype.is_floating_point:
        return dtype if dtype == torch.float64 else torch.float32
    return dtype if dtype.itemsize >= 4 else torch.int32


def _tile(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """Any strides on any chip: one work-item per small tile of the output."""
    grid = -(-p.n // TILE) * -(-p.m // TILE) * p.batch
    b.launch("gemm.c", "gemm_tile", grid, [p.out, p.a, p.x, p.c, alpha, beta, p.layout], p.defines(b))
