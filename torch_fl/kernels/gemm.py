"""Matrix products of any strides and up to two batch dimensions: which kernel of native/gemm.c runs, and with what.

Transposes, broadcasts and views cost nothing here: every kernel takes the strides of all operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..refs import Layout, Ref, Value
from .pointwise import emit
from .tiles import emit_tiles
from .types import ctype
from .vectors import registers, vector_source

if TYPE_CHECKING:
    from ..builder import Builder

Number = Any  # float, int or Value
TILE = 4
SMALL = 1 << 16
"""Products of fewer multiply-adds than this are not packed: one launch."""
SKINNY = 64
"""Products of fewer rows or columns are not packed either: too little work for each number that is moved."""
SHALLOW = 96
"""Depth from which dot products along k are worth the sum over the lanes at their end."""
GRAIN = 1 << 14
"""Multiply-adds that are worth a work-item."""
K_CHUNK = 1024


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
    if not sum_batch and b.device.backend.product(b, out, a, x, c, alpha, beta):
        return
    if out.shape[-1] < min(out.shape[-2], 2 * TILE):
        # Few columns: the transposed product wastes less of a register tile.
        out, a, x = out.transpose(-1, -2), x.transpose(-1, -2), a.transpose(-1, -2)
        c = c if c is None else c.expand(out.transpose(-1, -2).shape).transpose(-1, -2)
    problem = Problem(b, out, a, x, c, sum_batch)
    _route(b, problem)(b, problem, alpha, 0 if c is None else beta)


def _route(b: Builder, p: Problem) -> Callable[[Builder, Problem, Number, Number], None]:
    if not b.is_cpu:
        return emit_tiles if b.groups else _tile
    if p.m == p.s == 1 and (p.n == 1 or p.x.strides[4] == 1):
        return _vector_rows
    if p.m == p.s == 1 and p.x.strides[3] == 1 == p.a.strides[4]:
        return _vector_dots
    if p.s == 1 and p.m <= SKINNY and p.x.strides[3] == 1 == p.a.strides[4] and p.k >= SHALLOW:
        return _dots
    return _direct if p.work < SMALL or min(p.m, p.n) <= SKINNY else _packed


class Problem:
    """One product: operands padded to [b0, b1, s, m, n], [b0, b1, s, m, k], [b0, b1, s, k, n]."""

    def __init__(self, b: Builder, out: Ref, a: Ref, x: Ref, c: Ref | None, sum_batch: bool) -> None:
        if torch.bool in (out.dtype, a.dtype, x.dtype):
            raise Unsupported("dtype bool")
        c = out if c is None else c.expand(out.shape)
        self.out, self.c = (_pad(r.unsqueeze(-3), 5) for r in (out, c))
        self.a, self.x = (_pad(r if sum_batch else r.unsqueeze(-3), 5) for r in (a, x))
        self.acc = _acc(torch.promote_types(a.dtype, x.dtype))
        self.m, self.n = out.shape[-2:]
        self.k, self.s = a.shape[-1], self.a.shape[2]
        self.batch = self.out.shape[0] * self.out.shape[1]

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


def _launch(b: Builder, p: Problem, name: str, grid: int | tuple[int, ...], args: Sequence[Any]) -> None:
    """Launch a kernel of gemm_cpu.c. PLAIN, HALF_A, HALF_X: how it loads and stores vectors."""
    halves = {torch.bfloat16: 1, torch.float16: 2} if p.acc == torch.float32 else {}
    how = {p.acc: 0, **halves}
    plain = int(p.out.dtype == p.c.dtype == p.acc)
    ways = {"PLAIN": plain, "HALF_A": how.get(p.a.dtype, 3), "HALF_X": how.get(p.x.dtype, 3)}
    b.launch(vector_source("gemm_cpu.c"), name, grid, args, p.defines(b) | registers(p.acc) | ways)


def _vector_rows(b: Builder, p: Problem, alpha: Number, beta: Number, name: str = "gemv_rows") -> None:
    """One row: the matrix is streamed once."""
    sizes = registers(p.acc)
    strip = 8 * sizes["VL"]
    items = max(1, min(p.n // strip, 4 * b.device.properties.compute_units, p.work // GRAIN))
    chunk = -(-p.n // (items * strip)) * strip
    grid = -(-p.n // chunk) * p.batch
    _launch(b, p, name, grid, [p.out, p.a, p.x, p.c, alpha, beta, chunk, p.layout])


def _vector_dots(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """One row, where the columns of the matrix are dense."""
    _vector_rows(b, p, alpha, beta, "gemv_dots")


def _direct(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """One launch: each work-item packs a strip of columns for itself."""
    sizes = registers(p.acc)
    nb = 4 * sizes["VL"]
    if -(-p.n // nb) * p.batch * -(-p.m // SKINNY) < 2 * b.device.properties.compute_units:
        nb //= 2
    strips = -(-p.n // nb)
    mb = _rows_per_item(b, p.m, strips * p.batch, sizes["MR"])
    args = [p.out, p.a, p.x, p.c, alpha, beta, mb, nb, p.layout]
    _launch(b, p, "gemm_direct", strips * -(-p.m // mb) * p.batch, args)


def _dots(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """Both operands are dense along k, and there are few rows: dot products without packing."""
    nb = max(4, min(64, -(-p.n // (4 * b.device.properties.compute_units)) // 4 * 4, GRAIN // p.k // 4 * 4))
    args = [p.out, p.a, p.x, p.c, alpha, beta, p.m, nb, p.layout]
    _launch(b, p, "gemm_dots", -(-p.n // nb) * p.batch, args)


def _rows_per_item(b: Builder, rows: int, others: int, step: int) -> int:
    """A multiple of `step` up to 8 of them, smaller where there would be too few work-items."""
    most = 8
    while most > 1 and others * -(-rows // (most * step)) < 2 * b.device.properties.compute_units:
        most //= 2
    return most * step


def _packed(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """Both operands are packed into panels, then each work-item makes a block of the output.

    Source of the method: Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (2008).
    """
    sizes = registers(p.acc)
    mr, nr = sizes["MR"], 2 * sizes["VL"]
    a, a_steps = _pack(b, p, p.a.transpose(3, 4), mr, "gemm_pack_a")
    x, x_steps = _pack(b, p, p.x, nr, "gemm_pack_x")
    nb = 4 * nr
    mb = _rows_per_item(b, p.m, -(-p.n // nb) * p.batch, mr)
    grid = -(-p.n // nb) * -(-p.m // mb) * p.batch
    args = [p.out, a, x, p.c, alpha, beta, mb, nb, *a_steps, *x_steps, p.layout]
    _launch(b, p, "gemm_block", grid, args)


def _pack(b: Builder, p: Problem, source: Ref, width: int, name: str) -> tuple[Ref, tuple[int, int]]:
    """Panels of [b0, b1, s, k, lanes], and their strides over b1 and b0; a broadcast batch is packed once."""
    b0, b1 = (1 if step == 0 else n for n, step in zip(source.shape[:2], source.strides[:2]))
    s0, s1, s_s, s_k, s_lane = source.strides
    lanes, total = source.shape[4], p.k * p.s
    panels = -(-lanes // width)
    packed = b.temp((b0, b1, panels * width * total), p.acc)
    layout = Layout((lanes, p.k, b1, b0, p.s), ((s_lane, s_k, s1, s0, s_s),))
    grid = (panels, -(-total // K_CHUNK), b0 * b1)
    _launch(b, p, name, grid, [source, packed, K_CHUNK, layout])
    step0, step1 = packed.strides[:2]
    return packed, (step1 if b1 > 1 else 0, step0 if b0 > 1 else 0)
