"""Order along a dimension: sort, topk, kthvalue, median, mode.

Elements are packed with their indices and merge-sorted: runs by one work-item each, then pairs of runs by as many
work-items as there are pieces (merge path). A chip with few lines and many work-items is busy all the same.
Source of the method: O. Green et al., "Merge Path" (2012).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..builder import Builder
from ..errors import Unsupported
from ..kernels import source as sources
from ..refs import Layout, Ref
from ..registry import kernel

SMALL_K = 128
"""topk by insertion up to this k."""

_SIGNS = {torch.uint32: "0x80000000u", torch.uint64: "0x8000000000000000UL"}


@dataclass(frozen=True)
class Lines:
    """Lines of `n` elements along one dimension of `ref`; `layout` walks the lines, `step` along one."""

    ref: Ref
    n: int
    step: int
    count: int
    layout: Layout

    @classmethod
    def along(cls, ref: Ref, dim: int) -> Lines:
        """The lines of `ref` along `dim` (a 0-dim tensor is one line of one element)."""
        if ref.ndim == 0:
            ref = ref.unsqueeze(0)
        dim %= ref.ndim
        n = ref.shape[dim]
        return cls(ref, n, ref.strides[dim], ref.numel // max(n, 1), _line_layout(ref.select(dim, 0)))


def _line_layout(ref: Ref) -> Layout:
    keep = [d for d in reversed(range(ref.ndim)) if ref.shape[d] != 1]
    if not keep:
        return Layout((1,), ((0,),))
    return Layout(tuple(ref.shape[d] for d in keep), (tuple(ref.strides[d] for d in keep),))


def _launch(b: Builder, name: str, grid: int, arguments: list[Any], dtype: torch.dtype) -> None:
    """A kernel of order.c, which knows the dtype, or of sort.c, which only sees packed elements."""
    packed = sources.read_native("packed.h")
    if name in ("sort_runs", "merge_runs"):
        b.launch(packed + sources.read_native("sort.c"), name, grid, arguments, {"WIDE": int(_is_wide(dtype))})
    else:
        b.launch(packed + sources.read_native("order.c"), name, grid, arguments, _defines(b, dtype))


def _defines(b: Builder, dtype: torch.dtype) -> dict[str, object]:
    kind = 2 if dtype == torch.float64 else 1 if dtype.is_floating_point else 0
    return {
        **b.types(T=dtype),
        "WIDE": int(_is_wide(dtype)),
        "KEY_KIND": kind,
        "SIGN": _SIGNS.get(dtype, "0"),
    }


def _is_wide(dtype: torch.dtype) -> bool:
    return dtype in (torch.int64, torch.uint64, torch.float64)


def _room(b: Builder, dtype: torch.dtype, lines: int, n: int) -> Ref:
    return b.temp((lines, n, 2) if _is_wide(dtype) else (lines, n), torch.int64)


def _sorted(b: Builder, lines: Lines, descending: bool = False) -> Ref:
    """All elements of each line in order, packed."""
    x, n = lines.ref, lines.n
    if n >= 2**31:
        raise Unsupported("a line of more than 2**31 elements")
    packed, room = _room(b, x.dtype, lines.count, n), _room(b, x.dtype, lines.count, n)
    total = lines.count * n
    items, chunk = b.split(total)
    _launch(b, "elements", items, [x, packed, total, chunk, n, lines.step, lines.layout, -int(descending)], x.dtype)
    width = _run_width(b, lines.count, n)
    parts = -(-n // width)
    _launch(b, "sort_runs", lines.count * parts, [packed, room, n, width, parts], x.dtype)
    return _merged(b, (packed, room), lines.count, n, width, x.dtype)


def _run_width(b: Builder, lines: int, n: int) -> int:
    """A power of two: whole lines where there are enough of them for all cores."""
    if not b.is_cpu:
        return 32
    per_line = max(1, 2 * b.device.properties.compute_units // lines)
    width = max(1024, -(-n // per_line))
    return 1 << (width - 1).bit_length()


def _merged(b: Builder, rooms: tuple[Ref, Ref], lines: int, n: int, width: int, dtype: torch.dtype) -> Ref:
    """Runs of `width` merged until one is left per line; `rooms`: where they are, and as much room."""
    packed, room = rooms
    while width < n:
        chunk = 2 * width
        if b.is_cpu:
            wanted = max(1024, n // (2 * b.device.properties.compute_units))
            while chunk > wanted and chunk % 2 == 0:
                chunk //= 2
        else:
            while chunk > 64 and chunk % 2 == 0:
                chunk //= 2
        parts = -(-n // chunk)
        _launch(b, "merge_runs", lines * parts, [packed, room, n, width, chunk, parts], dtype)
        packed, room = room, packed
        width *= 2
    return packed


def _unpack(b: Builder, packed: Ref, lines: Lines, line: int, outs: tuple[Lines, Lines], first: int = 0) -> None:
    """Write elements of sorted lines of length `line`, from `first` on, to values and indices."""
    values, indices = outs
    total = values.ref.numel
    items, chunk = b.split(total)
    layouts = [lines.layout, values.layout, indices.layout]
    steps = [lines.step, values.step, indices.step]
    arguments: list[Any] = [
        packed,
        lines.ref,
        values.ref,
        indices.ref,
        total,
        chunk,
        values.n,
        first,
        line,
        *layouts,
        *steps,
    ]
    _launch(b, "unpack", items, arguments, lines.ref.dtype)


@kernel("aten::sort.stable")
def sort_stable(b: Builder, self: Ref, dim: int, descending: bool) -> None:
    """Values in order along `dim`, and where they were; equal elements keep their order; NaN counts as the largest."""
    values, indices = b.out(0), b.out(1)
    if self.numel == 0:
        return
    lines = Lines.along(self, dim)
    packed = _sorted(b, lines, descending)
    _unpack(b, packed, lines, lines.n, (Lines.along(values, dim), Lines.along(indices, dim)))


@kernel("aten::sort")
def sort(b: Builder, self: Ref, dim: int, descending: bool) -> None:
    """The same; stable here as well."""
    sort_stable(b, self, dim, descending)


@kernel("aten::topk")
def topk(b: Builder, self: Ref, k: int, dim: int, largest: bool) -> None:
    """The k largest (or smallest) elements along `dim` in order, and where they were; of equal ones the first."""
    values, indices = b.out(0), b.out(1)
    if values.numel == 0:
        return
    lines = Lines.along(self, dim)
    outs = Lines.along(values, dim), Lines.along(indices, dim)
    if k > SMALL_K or 4 * k > lines.n:
        _unpack(b, _sorted(b, lines, largest), lines, lines.n, outs)
        return
    parts = _topk_parts(b, lines, k)
    part = -(-lines.n // parts)
    best, room = (_room(b, self.dtype, lines.count, parts * k) for _ in range(2))
    arguments: list[Any] = [self, best, lines.n, k, part, parts, lines.step, lines.layout, -int(largest)]
    _launch(b, "smallest", lines.count * parts, arguments, self.dtype)
    packed = _merged(b, (best, room), lines.count, parts * k, k, self.dtype)
    _unpack(b, packed, lines, parts * k, outs)


def _topk_parts(b: Builder, lines: Lines, k: int) -> int:
    """Into how many parts a line is cut: enough for all cores, parts much longer than k."""
    wanted = 2 * b.device.properties.compute_units if b.is_cpu else 4096
    parts = max(1, min(wanted // lines.count, lines.n // max(16 * k, 512)))
    part = -(-lines.n // parts)
    return -(-lines.n // part)


@kernel("aten::kthvalue")
def kthvalue(b: Builder, self: Ref, k: int, dim: int, keepdim: bool) -> None:
    """The k-th smallest element along `dim` (k counts from 1), and where it was."""
    values, indices = b.out(0), b.out(1)
    if values.numel == 0:
        return
    lines = Lines.along(self, dim)
    packed = _sorted(b, lines)
    outs = _reduced(self, values, dim, keepdim), _reduced(self, indices, dim, keepdim)
    _unpack(b, packed, lines, lines.n, outs, k - 1)


def _reduced(self: Ref, out: Ref, dim: int, keepdim: bool) -> Lines:
    """A result that has one element per line of `self`."""
    if self.ndim == 0 or keepdim:
        return Lines.along(out, dim)
    return Lines.along(out.unsqueeze(dim % self.ndim), dim)


@kernel("aten::median.dim")
def median_dim(b: Builder, self: Ref, dim: int, keepdim: bool) -> None:
    """The middle element along `dim` (the lower of two), and where it was; NaN if there is one."""
    _middle(b, self, (b.out(0), b.out(1)), dim, keepdim, False)


@kernel("aten::nanmedian.dim")
def nanmedian_dim(b: Builder, self: Ref, dim: int, keepdim: bool) -> None:
    """The middle of the elements that are not NaN."""
    _middle(b, self, (b.out(0), b.out(1)), dim, keepdim, True)


@kernel("aten::median")
def median(b: Builder, self: Ref) -> None:
    """The middle of all elements."""
    _median_of_all(b, self, False)


@kernel("aten::nanmedian")
def nanmedian(b: Builder, self: Ref) -> None:
    """The middle of all elements that are not NaN."""
    _median_of_all(b, self, True)


def _median_of_all(b: Builder, self: Ref, skip: bool) -> None:
    if self.numel == 0:
        raise Unsupported("the median of nothing")
    flat = b.reshape(self, self.numel)
    _middle(b, flat, (b.out(), b.temp((), torch.int64)), 0, False, skip)


def _middle(b: Builder, self: Ref, outs: tuple[Ref, Ref], dim: int, keepdim: bool, skip: bool) -> None:
    if outs[0].numel == 0:
        return
    lines = Lines.along(self, dim)
    packed = _sorted(b, lines)
    values, indices = (_reduced(self, out, dim, keepdim) for out in outs)
    layouts = [lines.layout, values.layout, indices.layout]
    arguments: list[Any] = [packed, lines.ref, values.ref, indices.ref, lines.n, int(skip), *layouts, lines.step]
    _launch(b, "middle", lines.count, arguments, self.dtype)


@kernel("aten::mode")
def mode(b: Builder, self: Ref, dim: int, keepdim: bool) -> None:
    """The most frequent element along `dim` (the smallest of several), and where it was seen last."""
    values, indices = b.out(0), b.out(1)
    if values.numel == 0:
        return
    lines = Lines.along(self, dim)
    packed = _sorted(b, lines)
    found = [_reduced(self, out, dim, keepdim) for out in (values, indices)]
    layouts = [lines.layout, *(f.layout for f in found)]
    arguments: list[Any] = [packed, lines.ref, *(f.ref for f in found), lines.n, *layouts, lines.step]
    _launch(b, "mode", lines.count, arguments, self.dtype)
