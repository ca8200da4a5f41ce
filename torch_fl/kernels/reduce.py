"""Reductions over any dimensions of any layout, as one pair of kernels (native/reduce.c).

Dimensions are split into kept and reduced ones and each group is merged. Where a reduced dimension is the closest in
memory its elements are walked with many accumulators, else whole rows are added to a tile of outputs. Reductions with
too few outputs to keep the chip busy run in two levels: parts first, then the parts of each output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from .pointwise import merge
from .source import read_native
from .types import ctype

if TYPE_CHECKING:
    from ..plan import Builder, Ref, Value

TILE = 256
ROWS = 128
PART = 16384
"""Elements a part of a split reduction has at least, on a CPU; elsewhere `GPU_PART`."""
GPU_PART = 64


@dataclass(frozen=True)
class Reduction:
    """A reduction as C expressions; the names they may use are explained in native/reduce.c."""

    map: str = "v"
    join: str = "a + b"
    init: str = "0"
    end: str = "a"
    index: bool = False
    """The result is an index: it is accumulated in the index type."""


SUM = Reduction()
MEAN = Reduction(end="a / (ACC)count")
PROD = Reduction(join="a * b", init="1")
MAX = Reduction(join="(a > b || a != a) ? a : b", init="LOWEST")
MIN = Reduction(join="(a < b || a != a) ? a : b", init="HIGHEST")
ANY = Reduction(map="v != 0", join="a | b")
ALL = Reduction(map="v != 0", join="a & b", init="1")
NANSUM = Reduction(map="v != v ? 0 : v")
COUNT = Reduction(map="v != 0")
FIND = Reduction(
    map="(v == s || (v != v && s != s)) ? (ACC)r : HIGHEST", join="a < b ? a : b", init="HIGHEST", index=True
)
"""The first index of an element that equals `shift`; NaN equals NaN."""

_LIMITS = {
    "float": ("-INFINITY", "INFINITY"), "double": ("-INFINITY", "INFINITY"), "int": ("INT_MIN", "INT_MAX"),
    "uint": ("0", "UINT_MAX"), "long": ("LONG_MIN", "LONG_MAX"), "ulong": ("0", "ULONG_MAX"),
}  # fmt: skip


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype sums of `dtype` are accumulated in: float32 for halves, int64 for integers and bool."""
    if dtype in (torch.float16, torch.bfloat16):
        return torch.float32
    return dtype if dtype.is_floating_point else torch.int64


def reduced_dims(ndim: int, dim: int | Sequence[int] | None) -> tuple[int, ...]:
    """Sorted non-negative dimensions; None and an empty list mean all."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(ndim))
    dims = [dim] if isinstance(dim, int) else dim
    return tuple(sorted({d % ndim for d in dims})) if ndim else ()


def without(ref: Ref, dims: Sequence[int], ndim: int) -> Ref:
    """`ref` without the reduced dimensions, if it still has them (keepdim)."""
    if ref.ndim != ndim or not dims:
        return ref
    keep = [d for d in range(ndim) if d not in dims]
    return ref.as_strided([ref.shape[d] for d in keep], [ref.strides[d] for d in keep])


def emit_reduce(
    b: Builder,
    out: Ref,
    x: Ref,
    dims: Sequence[int],
    how: Reduction,
    acc: torch.dtype,
    shift: Ref | None = None,
    e: Value | float | int = 0,
) -> None:
    """out[kept] = how over `dims` of x.

    `out` and `shift` have x's shape without `dims`, or with them as size 1. `acc` is the dtype of partial results.
    """
    out = without(out, dims, x.ndim)
    keep = [d for d in range(x.ndim) if d not in dims]
    kept = x.as_strided([x.shape[d] for d in keep], [x.strides[d] for d in keep])
    red = x.as_strided([x.shape[d] for d in dims], [x.strides[d] for d in dims])
    shift = without(shift, dims, x.ndim) if shift is not None else None
    parts = _parts(b, kept.numel, red.numel)
    if parts == 1:
        _launch(b, out, kept, red, how, acc, shift, e, 1)
        return
    partial = b.temp((parts, *kept.shape), torch.int64 if how.index else acc)
    _launch(b, partial.select(0, 0), kept, red, replace(how, end="a"), acc, shift, e, parts)
    join = Reduction("v", how.join, how.init, how.end.replace("count", str(red.numel)), how.index)
    rows = partial.as_strided(partial.shape[:1], partial.strides[:1])
    _launch(b, out, partial.select(0, 0), rows, join, acc, shift, e, 1)


def _parts(b: Builder, outs: int, count: int) -> int:
    """Into how many parts each output's elements are split."""
    if b.is_cpu:
        wanted, grain = 2 * b.device.properties.compute_units, max(256, PART // max(outs, 1))
    else:
        wanted, grain = 32768, GPU_PART
    if outs >= wanted or count < 2 * grain:
        return 1
    return max(1, min(wanted // max(outs, 1), count // grain))


def _launch(
    b: Builder,
    out: Ref,
    kept: Ref,
    red: Ref,
    how: Reduction,
    acc: torch.dtype,
    shift: Ref | None,
    e: Value | float | int,
    parts: int,
) -> None:
    from ..plan import Layout

    s = shift if shift is not None else kept
    zero = (0,) * kept.ndim
    sizes, strides = merge(kept.shape, [kept.strides, out.strides, s.strides if shift is not None else zero])
    red_sizes, red_strides = merge(red.shape, [red.strides])
    columns = kept.numel > 1 and abs(strides[0][0]) < abs(red_strides[0][0])
    tile = TILE if b.is_cpu else 1
    inner = strides[0][0] if columns else red_strides[0][0]
    outer = "kept.stride[0][0]" if columns else "red.stride[0][0]"
    defines = _defines(b, kept.dtype, s.dtype, out.dtype, acc, how)
    defines |= {"STEP": "1" if inner == 1 else outer, "TILE": tile, "ROWS": ROWS}
    defines["SHIFT(v)"] = "S_load(v)" if shift is not None else "0"
    total, part = kept.numel, -(-red.numel // parts)
    units = -(-sizes[0] // tile) * (total // sizes[0] if total else 0) if columns else total
    per_unit = max(1, part * (tile if columns else 1))
    items, chunk = b.split(units, max(1, PART // per_unit))
    layouts = (
        Layout(tuple(sizes), tuple(map(tuple, strides))),
        Layout(tuple(red_sizes), tuple(map(tuple, red_strides))),
    )
    name = "reduce_columns" if columns else "reduce_rows"
    args = [kept, s, out, units, chunk, red.numel, part, total, e, *layouts]
    text = read_native("reduce.c")
    if "EXP(" in how.map:
        text = read_native("fastmath.h") + text
        defines["EXP"] = "exp" if acc == torch.float64 else "fast_exp"
    b.launch(text, name, (items, parts), args, defines)


def _defines(
    b: Builder, x: torch.dtype, s: torch.dtype, y: torch.dtype, acc: torch.dtype, how: Reduction
) -> dict[str, object]:
    defines: dict[str, object] = b.types(T=x, S=s, U=y, A=acc)
    extra = ctype(acc).compute
    kind = "IDX" if how.index else extra
    lowest, highest = _LIMITS[extra] if not how.index else ("0", "(IDX)(~0ul >> (65 - 8 * (int)sizeof(IDX)))")
    defines |= {"ACC": kind, "VAL": ctype(x).compute, "SVAL": ctype(s).compute, "EXTRA": extra}
    defines |= {"LOWEST": lowest, "HIGHEST": highest}
    return defines | {"MAP": how.map, "JOIN": how.join, "INIT": f"(({kind})({how.init}))", "END": how.end}
