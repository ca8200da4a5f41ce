"""Reductions over any dimensions of any layout, as one pair of kernels (native/reduce_*.c).

Dimensions are split into kept and reduced ones and each group is merged. Where a reduced dimension is the closest in
memory its elements are walked with many accumulators, else whole rows are added to a tile of outputs. Reductions with
too few outputs to keep the chip busy run in two levels: parts first, then the parts of each output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ..refs import Layout, Ref, Value
from .pointwise import merge
from .row_groups import SHORT, groups_for, reduction_parts, row_source, shape_of
from .source import read_native
from .types import HALVES, ctype
from .vectors import lane_defines, lane_source

if TYPE_CHECKING:
    from ..builder import Builder

TILE = 256
ROWS = 128
PART = 16384
"""Elements a part of a split reduction has at least, on a CPU; elsewhere `GPU_PART`."""
GPU_PART = 64
SHORT_ROW = 32
"""Elements in a row from which explicit vectors pay."""


@dataclass(frozen=True)
class Reduction:
    """A reduction as C expressions; the names they may use are explained in native/reduce.h."""

    map: str = "v"
    join: str = "a + b"
    init: str = "0"
    end: str = "a"
    index: bool = False
    """The result is an index: it is accumulated in the index type."""


SUM = Reduction()
MEAN = Reduction(end="a / (ACC)count")
PROD = Reduction(join="a * b", init="1")
MAX = Reduction(join="(b > a || b != b) ? b : a", init="LOWEST")
MIN = Reduction(join="(b < a || b != b) ? b : a", init="HIGHEST")
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
    if dtype in HALVES:
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
    return only(ref, [d for d in range(ndim) if d not in dims])


def only(ref: Ref, dims: Sequence[int]) -> Ref:
    """The dimensions `dims` of `ref`, at index 0 of all others."""
    return ref.as_strided([ref.shape[d] for d in dims], [ref.strides[d] for d in dims])


@dataclass(frozen=True)
class _Walk:
    """What is read and how: the kept and the reduced dimensions of x, of a second tensor, and a number per output."""

    kept: Ref
    red: Ref
    kept_other: Ref | None = None
    red_other: Ref | None = None
    shift: Ref | None = None

    def layouts(self, out: Ref) -> tuple[Layout, Layout]:
        """Layouts of the kept (x, out, shift, other) and the reduced dimensions (x, other)."""
        zero, red_zero = (0,) * self.kept.ndim, (0,) * self.red.ndim
        shift = self.shift.strides if self.shift is not None else zero
        other = self.kept_other.strides if self.kept_other is not None else zero
        red_other = self.red_other.strides if self.red_other is not None else red_zero
        kept = merge(self.kept.shape, [self.kept.strides, out.strides, shift, other])
        red = merge(self.red.shape, [self.red.strides, red_other])
        return Layout.of(*kept), Layout.of(*red)


def emit_reduce(
    b: Builder,
    out: Ref,
    x: Ref,
    dims: Sequence[int],
    how: Reduction,
    acc: torch.dtype,
    shift: Ref | None = None,
    e: Value | float | int = 0,
    other: Ref | None = None,
) -> None:
    """out[kept] = how over `dims` of x.

    `out` and `shift` have x's shape without `dims`, or with them as size 1; `other` has x's shape. `acc` is the dtype
    of partial results.
    """
    out = without(out, dims, x.ndim)
    keep = [d for d in range(x.ndim) if d not in dims]
    z = (only(other, keep), only(other, dims)) if other is not None else (None, None)
    walk = _Walk(only(x, keep), only(x, dims), z[0], z[1], without(shift, dims, x.ndim) if shift is not None else None)
    parts = _parts(b, _units(b, walk, out)[1], walk, out)
    if parts == 1:
        _launch(b, out, walk, how, acc, e, 1)
        return
    partial = b.temp((parts, *walk.kept.shape), torch.int64 if how.index else acc)
    _launch(b, partial.select(0, 0), walk, replace(how, end="a"), acc, e, parts)
    # Indices of parts are compared as they are stored: few parts would be counted in an int, which they may exceed.
    join = replace(how, map="v", end=how.end.replace("count", str(walk.red.numel)), index=False)
    again = _Walk(partial.select(0, 0), only(partial, [0]), None, None, walk.shift)
    _launch(b, out, again, join, acc, e, 1)


def _units(b: Builder, walk: _Walk, out: Ref) -> tuple[bool, int, int]:
    """Whether columns are walked, the number of outputs or tiles, and the outputs of each."""
    kept, red = walk.layouts(out)
    total = walk.kept.numel
    if total <= 1 or abs(kept.strides[0][0]) >= abs(red.strides[0][0]):
        return False, total, 1
    tile = TILE if b.is_cpu else 1
    return True, -(-kept.sizes[0] // tile) * (total // kept.sizes[0]), min(tile, kept.sizes[0])


def _in_groups(b: Builder, walk: _Walk, out: Ref) -> bool:
    """Whether a group of work-items shares the elements of an output."""
    return b.groups and walk.red.numel > SHORT and not _units(b, walk, out)[0]


def _parts(b: Builder, units: int, walk: _Walk, out: Ref) -> int:
    """Into how many parts each output's elements are split, so that there is work for the whole chip."""
    count, outs = walk.red.numel, walk.kept.numel
    if _in_groups(b, walk, out):
        return reduction_parts(b, outs, count)
    if b.is_cpu:
        wanted, grain = 16 * b.device.properties.compute_units, max(ROWS, PART * units // max(outs, 1))
    else:
        wanted, grain = 32768, GPU_PART
    if units >= wanted or count < 2 * grain or not units:
        return 1
    return max(1, min(-(-wanted // units), count // grain))


def _launch(
    b: Builder, out: Ref, walk: _Walk, how: Reduction, acc: torch.dtype, e: Value | float | int, parts: int
) -> None:
    kept, red = walk.layouts(out)
    columns, units, tile = _units(b, walk, out)
    steps, name = (kept.strides, "kept") if columns else (red.strides, "red")
    x, inner_z, at_z = walk.kept, steps[3 if columns else 1][0], 3 if columns else 1
    shift, other = walk.shift or x, walk.kept_other or x
    defines = _defines(b, (x.dtype, other.dtype, shift.dtype, out.dtype), acc, how)
    defines |= {
        "STEP": "1" if steps[0][0] == 1 else f"{name}.stride[0][0]",
        "STEP_Z": inner_z if inner_z in (0, 1) else f"{name}.stride[{at_z}][0]",
        "SHIFT(v)": "S_load(v)" if walk.shift else "0",
        "OTHER(v)": "Z_load(v)" if walk.kept_other else "0",
        "TILE": TILE if b.is_cpu else 1,
        "ROWS": ROWS,
    }
    part = -(-walk.red.numel // parts)
    items, chunk = b.split(units, max(1, PART // max(1, part * tile)))
    args: list[Any] = [x, other, shift, out, units, chunk, walk.red.numel, part, walk.kept.numel, e, kept, red]
    lanes = None if columns or _in_groups(b, walk, out) else _lanes(b, out, walk, how, acc, red)
    if lanes is not None:
        text = lane_source("turn.h", "reduce.h", "reduce_lanes.c")
        mine = {k: v for k, v in defines.items() if not k.startswith("U")}  # in vector.h U is a type
        b.launch(text, "reduce_lanes", (items, parts), args, mine | lanes)
        return
    kernel = "reduce_columns" if columns else "reduce_groups" if _in_groups(b, walk, out) else "reduce_rows"
    text = read_native("reduce.h") + read_native(f"{kernel}.c")
    if "EXP(" in how.map:
        text = read_native("fastmath.h") + text
        defines["EXP"] = "exp" if acc == torch.float64 else "fast_exp"
    if kernel == "reduce_groups":
        shape = shape_of(part)
        text, items, defines = row_source() + text, groups_for(units, shape["LPR"]), defines | shape
    b.launch(text, kernel, (items, parts), args, defines)


_JOINS = {
    "a + b": "a + b",
    "a * b": "a * b",
    MAX.join: "CHOOSE(b > a, b, CHOOSE(b != b, b, a))",
    MIN.join: "CHOOSE(b < a, b, CHOOSE(b != b, b, a))",
}
"""Ways to join that native/reduce_lanes.c has, as vectors write them."""
_ARITHMETIC = re.compile(r"[vzs()+* -]+")


def _lanes(
    b: Builder, out: Ref, walk: _Walk, how: Reduction, acc: torch.dtype, red: Layout
) -> dict[str, object] | None:
    """Defines for explicit vectors; None where elements are no neighbours or the expressions more than arithmetic."""
    other = walk.kept_other or walk.kept
    text = how.map.replace("(ACC)", "")
    if how.index or how.join not in _JOINS or not _ARITHMETIC.fullmatch(text) or red.sizes[0] < SHORT_ROW:
        return None
    if red.strides[0][0] != 1 or (walk.kept_other and red.strides[1][0] != 1):
        return None
    found = lane_defines(b, acc, T=walk.kept.dtype, Z=other.dtype)
    if found is None:
        return None
    at = "Z_at(from_z + {0})" if walk.kept_other else "ALL(0)"
    return found | b.types(R=out.dtype) | {
        "MAP": text, "JOIN_LANES": _JOINS[how.join], "OTHER_AT(i)": at.format("(i)")
    }  # fmt: skip


def _defines(b: Builder, dtypes: Sequence[torch.dtype], acc: torch.dtype, how: Reduction) -> dict[str, object]:
    x, z, s, y = dtypes
    defines: dict[str, object] = b.types(T=x, Z=z, S=s, U=y, A=acc)
    extra = ctype(acc).compute
    kind = "IDX" if how.index else extra
    lowest, highest = _LIMITS[extra] if not how.index else ("0", "(IDX)(~0ul >> (65 - 8 * (int)sizeof(IDX)))")
    defines |= {"VAL": ctype(x).compute, "ZVAL": ctype(z).compute, "SVAL": ctype(s).compute}
    defines |= {"ACC": kind, "EXTRA": extra, "LOWEST": lowest, "HIGHEST": highest}
    return defines | {"MAP": how.map, "JOIN": how.join, "INIT": f"(({kind})({how.init}))", "END": how.end}
