"""Matrix products on CPU-type devices: the ways to make one (`WAYS`, kernels of native/gemm_cpu.c), and which is taken.

`pick` is the only place that chooses, by dtype and shape; `cpu_ways` lists what may be timed against its choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Any

import torch

from ..refs import Layout, Ref
from .pointwise import emit
from .reduce import SUM, emit_reduce
from .vectors import registers, vector_source

if TYPE_CHECKING:
    from ..builder import Builder
    from .gemm import Problem

Number = Any  # float, int or Value
Emit = Callable[["Builder", "Problem", Number, Number], None]
Test = Callable[["Builder", "Problem"], bool]

FEW_ROWS = 8
"""Rows up to which dot products along k need not be packed: too few to pay for turning the columns."""
MOST_DOTS = 64
"""Rows up to which dot products may still be the fastest."""
SHALLOW = 96
"""Depth from which dot products along k are worth the sum over the lanes at their end."""
DIRECT_ROWS = 128
"""Rows up to which each work-item packs for itself."""
GRAIN = 1 << 14
"""Multiply-adds that are worth a work-item."""
DEEP = 1 << 13
"""Depth that is worth a part of its own, where there are too few work-items otherwise."""
CHUNK = 256
"""Depth of the panels that one work-item packs."""
CELLS = 1 << 14
"""Numbers that one work-item converts."""
TILES = 16
"""Register tiles of a block, one below the other, at most; as MB in native/gemm_cpu.c."""
PANELS = 4
"""Panels of columns of a block; as NB in native/gemm_cpu.c."""


@dataclass(frozen=True)
class Way:
    """One way to make a product: `able` says for which problems, `suits` for which of them it is taken."""

    name: str
    emit: Emit
    able: Test
    suits: Test


def emit_cpu(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """out = alpha * a x + beta * c, as rules say. c is not read where beta is 0."""
    cpu_ways(b, p)[0][1](b, p, alpha, beta)


def cpu_ways(b: Builder, p: Problem) -> list[tuple[str, Emit]]:
    """Names and functions of the ways that may be the fastest, the one of the rules first."""
    if p.k * p.s == 0:
        return [("nothing", _emit_nothing)]
    best = pick(b, p)
    others = [w for w in able_ways(b, p) if w is not best and (w.name != "dots" or p.m <= MOST_DOTS)]
    return [(w.name, w.emit) for w in (best, *others)]


def _emit_nothing(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    emit(b, {"o": (p.out, "beta == 0 ? 0 : beta * c")}, {"c": p.c}, {"beta": beta}, p.acc)


def pick(b: Builder, p: Problem) -> Way:
    """The way of the rules for this chip, dtype and shape."""
    return next(way for way in WAYS if way.able(b, p) and way.suits(b, p))


def able_ways(b: Builder, p: Problem) -> list[Way]:
    """Every way that gives this product."""
    return [way for way in WAYS if way.able(b, p)]


def _launch(b: Builder, p: Problem, name: str, grid: int, args: Sequence[Any]) -> None:
    """Launch a kernel of gemm_cpu.c. HALF_A ...: how it loads and stores vectors."""
    halves = {torch.bfloat16: 1, torch.float16: 2} if p.acc == torch.float32 else {}
    how = {p.acc: 0, **halves}
    ways = {f"HALF_{n}": how.get(r.dtype, 3) for n, r in zip("AXCO", (p.a, p.x, p.c, p.out))}
    b.launch(vector_source("turn.h", "gemm_cpu.c"), name, grid, args, p.defines(b) | registers(p.acc) | ways)


# -- one row ------------------------------------------------------------------------------------------------------
def _emit_row(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """The matrix is streamed once, row by row."""
    _stream(b, p, alpha, beta, "gemv_rows")


def _emit_row_dots(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """The matrix is streamed once, column by column."""
    _stream(b, p, alpha, beta, "gemv_dots")


def _stream(b: Builder, p: Problem, alpha: Number, beta: Number, name: str) -> None:
    strip = 8 * registers(p.acc)["VL"]
    items = max(1, min(p.n // strip, 4 * b.device.properties.compute_units, p.work // GRAIN))
    chunk = -(-p.n // (items * strip)) * strip
    _launch(b, p, name, -(-p.n // chunk) * p.batch, [p.out, p.a, p.x, p.c, alpha, beta, chunk, p.layout])


def _emit_dots(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """Tiles of 4x4 dot products, nothing is packed."""
    nb = max(4, min(64, -(-p.n // (4 * b.device.properties.compute_units)) // 4 * 4, GRAIN // p.k // 4 * 4))
    args = [p.out, p.a, p.x, p.c, alpha, beta, p.m, nb, p.layout]
    _launch(b, p, "gemm_dots", -(-p.n // nb) * p.batch, args)


# -- many rows ----------------------------------------------------------------------------------------------------
def _rows_per_item(b: Builder, rows: int, others: int, step: int, most: int, overhead: int) -> int:
    """The multiple of `step` up to `most` with which the last item ends first; `overhead`: an item's cost in rows."""
    units = b.device.properties.compute_units

    def cost(mb: int) -> int:
        return -(-others * -(-rows // mb) // units) * (min(mb, rows) + overhead)

    return min(range(most // step * step, 0, -step), key=cost)


def _emit_direct(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """One launch: each work-item packs a panel of columns for itself."""
    sizes = registers(p.acc)
    strips = -(-p.n // (2 * sizes["VL"])) * p.batch
    mb = _rows_per_item(b, p.m, strips, sizes["MR"], TILES * sizes["MR"], 16)
    _launch(b, p, "gemm_direct", strips * -(-p.m // mb), [p.out, p.a, p.x, p.c, alpha, beta, mb, p.layout])


def _emit_packed(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """Columns, and rows where they must be, are packed into panels; then each work-item makes a block of the output.

    Source of the method: Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (2008).
    """
    sizes = registers(p.acc)
    nb = PANELS * 2 * sizes["VL"]
    columns = _Packing(p.x, 2 * sizes["VL"], CHUNK)
    x, x_steps = columns.target(b, p.acc)
    rows, step, within = _rows(p, sizes)
    if rows is None:
        a, a_steps, first = p.a, (p.a.strides[1], p.a.strides[0]), (0, 1, 1)
    else:
        (a, a_steps), first = rows.target(b, p.acc), (rows.items, rows.width, rows.chunk)
    packed = [p.a, p.x, x if rows is None else a, x, *first, CHUNK, (rows or columns).layout, columns.layout]
    _launch(b, p, "gemm_pack", first[0] + columns.items, packed)
    across = -(-p.n // nb) * p.batch
    mb = _rows_per_item(b, p.m, across, step, TILES * sizes["MR"] // 2, 4)
    args = [p.out, a, x, p.c, alpha, beta, mb, nb, *within, *a_steps, *x_steps, p.layout]
    _launch(b, p, "gemm_block", across * -(-p.m // mb), args)


def _rows(p: Problem, sizes: dict[str, int]) -> tuple[_Packing | None, int, tuple[int, int, int, int]]:
    """How a is packed (None: not at all), what the rows of a block must be a multiple of, and where the rows are:
    rows of a panel, and the steps from panel to panel, from row to row, and along k.

    Where k is dense the rows stay rows, and are only converted; else they become lanes of panels.
    """
    if p.s == p.a.strides[4] == 1:
        plain = p.a.dtype == p.acc
        lda = p.a.strides[3] if plain else p.k
        return None if plain else _Packing(p.a, p.k, -(-CELLS // p.k)), sizes["MR"], (1, lda, lda, 1)
    width = lcm(sizes["MR"], sizes["VL"])
    return _Packing(p.a.transpose(3, 4), width, CHUNK), width, (width, width * p.k * p.s, 1, width)


@dataclass(frozen=True)
class _Packing:
    """Panels [b0, b1, panels, s * k, width] of an operand [b0, b1, s, k, lanes]; a broadcast batch is packed once."""

    source: Ref
    width: int
    chunk: int

    @property
    def batch(self) -> tuple[int, int]:
        b0, b1 = (1 if step == 0 else n for n, step in zip(self.source.shape[:2], self.source.strides[:2]))
        return b0, b1

    @property
    def panels(self) -> int:
        return -(-self.source.shape[4] // self.width)

    @property
    def depth(self) -> int:
        return self.source.shape[2] * self.source.shape[3]

    @property
    def items(self) -> int:
        return self.batch[0] * self.batch[1] * self.panels * -(-self.depth // self.chunk)

    @property
    def layout(self) -> Layout:
        (b0, b1), (s, k, lanes) = self.batch, self.source.shape[2:]
        s0, s1, s_s, s_k, s_lane = self.source.strides
        return Layout((lanes, k, b1, b0, s), ((s_lane, s_k, s1, s0, s_s),))

    def target(self, b: Builder, dtype: torch.dtype) -> tuple[Ref, tuple[int, int]]:
        """Where it is packed, and the steps over b1 and b0."""
        (b0, b1), each = self.batch, self.panels * self.width * self.depth
        return b.temp((b0, b1, each), dtype), (each if b1 > 1 else 0, b1 * each if b0 > 1 else 0)


# -- few rows and columns, deep -----------------------------------------------------------------------------------
def _emit_parts(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """Parts of the depth are products of their own, and are summed."""
    parts = _parts(b, p)
    depth = p.k // parts
    rest = p.k - parts * depth
    made = b.temp((parts + (rest > 0), p.m, p.n), p.acc)
    _part(b, p, made, 0, parts, depth)
    if rest:
        _part(b, p, made, parts, 1, rest)
    out, c = (r.as_strided((p.m, p.n), r.strides[3:]) for r in (p.out, p.c))
    if alpha == 1 and beta == 0:
        emit_reduce(b, out, made, [0], SUM, p.acc)
        return
    total = b.temp((p.m, p.n), p.acc)
    emit_reduce(b, total, made, [0], SUM, p.acc)
    numbers = {"alpha": alpha, "beta": beta}
    emit(b, {"o": (out, "alpha * total + (beta == 0 ? 0 : beta * c)")}, {"total": total, "c": c}, numbers, p.acc)


def _part(b: Builder, p: Problem, made: Ref, first: int, parts: int, depth: int) -> None:
    """made[first:first + parts] = products of parts of `depth` each."""
    q, at = copy(p), first * (p.k // _parts(b, p))
    (a_m, a_k), (x_k, x_n) = p.a.strides[3:], p.x.strides[3:]
    q.a = p.a.as_strided((1, parts, 1, p.m, depth), (0, depth * a_k, 0, a_m, a_k), at * a_k)
    q.x = p.x.as_strided((1, parts, 1, depth, p.n), (0, depth * x_k, 0, x_k, x_n), at * x_k)
    q.out = q.c = made.as_strided((1, parts, 1, p.m, p.n), (0, p.m * p.n, 0, p.n, 1), first * p.m * p.n)
    q.k, q.batch = depth, parts
    emit_cpu(b, q, 1, 0)


def _parts(b: Builder, p: Problem) -> int:
    return min(2 * b.device.properties.compute_units, p.k // DEEP)


# -- the choice ---------------------------------------------------------------------------------------------------
def _dense_along_k(b: Builder, p: Problem) -> bool:
    return p.s == 1 and p.x.strides[3] == 1 == p.a.strides[4]


def _tiles(p: Problem) -> int:
    sizes = registers(p.acc)
    return -(-p.m // sizes["MR"]) * -(-p.n // (2 * sizes["VL"])) * p.batch


WAYS = (
    Way(
        "parts",
        _emit_parts,
        lambda b, p: p.s == p.batch == 1 and _parts(b, p) > 1,
        lambda b, p: _tiles(p) < 2 * b.device.properties.compute_units,
    ),
    Way("row dots", _emit_row_dots, lambda b, p: p.m == 1 and _dense_along_k(b, p), lambda b, p: True),
    Way("row", _emit_row, lambda b, p: p.m == p.s == 1 and (p.n == 1 or p.x.strides[4] == 1), lambda b, p: True),
    Way("dots", _emit_dots, _dense_along_k, lambda b, p: p.m <= FEW_ROWS and p.k >= SHALLOW),
    Way("direct", _emit_direct, lambda b, p: True, lambda b, p: min(p.m, p.n) <= DIRECT_ROWS),
    Way("packed", _emit_packed, lambda b, p: True, lambda b, p: True),
)
"""Every way, the more special before the more general."""
