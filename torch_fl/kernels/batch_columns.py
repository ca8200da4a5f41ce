"""Batch norm where the channels, or few places of each, are the closest in memory (native/batch_columns*.c).

Vectors run across channels then, on CPU-type devices. Long planes of one channel are rows, which reductions and the
pointwise pass serve (torch_fl/ops/batch_norm.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..refs import Ref
from .norm import compute_dtype
from .vectors import lane_defines, lane_source

if TYPE_CHECKING:
    from ..builder import Builder

TILE = 1024
"""Columns of a work-item, as in native/batch_columns.h."""
_GRAIN = 16384
_FEW = 64
"""Places of a channel from which on they are a row."""


@dataclass(frozen=True)
class Columns:
    """A tensor as [rows, channels * span] in row-major order, and into how many parts the rows are split."""

    rows: int
    channels: int
    span: int
    parts: int

    @property
    def width(self) -> int:
        """Columns in all."""
        return self.channels * self.span

    @property
    def part(self) -> int:
        """Rows of a part."""
        return -(-self.rows // self.parts)

    @property
    def grid(self) -> tuple[int, int]:
        """Work-items: tiles and parts."""
        return -(-self.width // TILE), self.parts


def as_columns(b: Builder, refs: Sequence[Ref]) -> Columns | None:
    """How tensors [N, C, ...] of one layout are walked in columns; None where they are not."""
    x = refs[0]
    acc = compute_dtype(x.dtype)
    if lane_defines(b, acc, T=x.dtype) is None or not x.numel:
        return None
    if any(r.strides != x.strides or r.dtype != x.dtype for r in refs):
        return None
    n, c = x.shape[:2]
    places = x.numel // (n * c)
    if x.is_contiguous and places < _FEW:
        rows, span = n, places
    elif x.as_strided((n, *x.shape[2:], c), (x.strides[0], *x.strides[2:], x.strides[1])).is_contiguous:
        rows, span = n * places, 1
    else:
        return None
    wanted = min(rows * min(c * span, TILE) // _GRAIN, -(-32 * TILE // (c * span)), 32)
    part = -(-rows // max(1, wanted))
    return Columns(rows, c, span, -(-rows // part))


def _defines(b: Builder, x: Ref, stats: Ref, weights: Ref, **flags: bool) -> dict[str, Any]:
    acc = compute_dtype(x.dtype)
    found = lane_defines(b, acc, T=x.dtype) or {}
    return found | b.types(M=stats.dtype, WT=weights.dtype, ACC=acc) | {k: int(v) for k, v in flags.items()}


def normalize_columns(
    b: Builder,
    at: Columns,
    x: Ref,
    y: Ref,
    stats: tuple[Ref, Ref],
    affine: tuple[Ref | None, Ref | None],
    running: tuple[Ref | None, Ref | None],
    numbers: tuple[Any, Any],
) -> None:
    """y = (x - mean) * rstd * weight + bias; `stats` get mean and rstd, `running` follow. `numbers`: momentum, eps."""
    acc = compute_dtype(x.dtype)
    weight, bias = affine
    weights = weight or bias or stats[0]
    follows = running[0] is not None and running[1] is not None
    defines = _defines(
        b, x, stats[0], weights, HAS_W=weight is not None, HAS_B=bias is not None, RUNNING=follows
    ) | b.types(RT=(running[0] or stats[0]).dtype)
    text = lane_source("batch_columns.h", "batch_columns.c")
    mean, squares = (b.temp((at.parts, at.width), acc) for _ in range(2))
    b.launch(text, "column_moments", at.grid, [x, mean, squares, at.rows, at.part, at.width], defines)
    items, chunk = b.split(at.channels, max(1, _GRAIN // (at.parts * at.span)))
    count = at.rows * at.span
    unbias = count / (count - 1) if count > 1 else float("nan")
    args: list[Any] = [mean, squares, *stats, *(r or s for r, s in zip(running, stats))]
    args += [at.channels, chunk, at.rows, at.part, at.parts, at.span, numbers[1], numbers[0], unbias]
    b.launch(text, "column_statistics", items, args, defines)
    args = [x, *stats, weight or weights, bias or weights, y, at.rows, at.part, at.width, at.span]
    b.launch(text, "column_normalize", at.grid, args, defines)


def column_gradients(
    b: Builder,
    at: Columns,
    g: Ref,
    x: Ref,
    stats: tuple[Ref, Ref],
    weight: Ref | None,
    outs: Sequence[Ref | None],
) -> None:
    """Gradients of x, weight and bias in training, where they are wanted."""
    acc = compute_dtype(x.dtype)
    dx, dw, db = outs
    plain, along = (b.temp((at.parts, at.width), acc) for _ in range(2))
    p, q = (b.temp((at.channels,), acc) for _ in range(2))
    wide = weight or dw or db or p
    defines = _defines(b, x, stats[0], wide, HAS_W=weight is not None, SUM_W=dw is not None, SUM_B=db is not None)
    text = lane_source("batch_columns.h", "batch_columns_backward.c")
    places: list[Any] = [at.rows, at.part, at.width, at.span]
    b.launch(text, "column_sums", at.grid, [g, x, stats[0], plain, along, *places], defines)
    items, chunk = b.split(at.channels, max(1, _GRAIN // (at.parts * at.span)))
    args: list[Any] = [plain, along, stats[1], p, q, dw or p, db or q, at.channels, chunk, at.parts, at.span]
    b.launch(text, "column_gradients", items, args, defines)
    if dx is not None:
        args = [g, x, *stats, p, q, weight or wide, dx, *places, 1 / (at.rows * at.span)]
        b.launch(text, "column_dx", at.grid, args, defines)
