"""Norms of rows in explicit vectors, on CPU-type devices (native/norm_*lanes.c), and sums of what work-items left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..refs import Ref
from .norm import compute_dtype
from .reduce import SUM, emit_reduce
from .vectors import lane_defines, lane_source

if TYPE_CHECKING:
    from ..builder import Builder

SHORT = 256
"""Elements of a row up to which several rows are in the nearest cache together."""


def norm_lane_defines(b: Builder, x: Ref, weights: Ref, n: int) -> dict[str, object] | None:
    """The defines of native/norm_lanes.h for rows of n elements; None where independent elements serve them."""
    acc = compute_dtype(x.dtype)
    found = lane_defines(b, acc, T=x.dtype, WT=weights.dtype)
    if found is None or n < int(str(found["VL"])):
        return None
    return found | b.types(ACC=acc)


def norm_lanes(b: Builder, name: str, items: int, args: Sequence[Any], defines: dict[str, Any]) -> None:
    """Launch the kernel `name` of the file of that name."""
    b.launch(lane_source("turn.h", "norm_lanes.h", f"{name}.c"), name, items, args, defines)


def join_parts(b: Builder, parts: Sequence[Ref | None], outs: Sequence[Ref | None]) -> None:
    """out[n] = the sum of part[k, n] over k, for one or two pairs in one launch where vectors serve them."""
    pairs = [(p, o) for p, o in zip(parts, outs) if p is not None and o is not None and p.slot != o.slot]
    if not pairs:
        return
    part, out = pairs[0]
    acc = part.dtype
    found = lane_defines(b, acc, ACC=acc, R=out.dtype)
    if found is None or any(o.dtype != out.dtype or not o.is_contiguous for _, o in pairs):
        for p, o in pairs:
            emit_reduce(b, o.as_strided((p.shape[1],), (1,)), p, (0,), SUM, acc)
        return
    defines = found | {"JOIN_X": 1, "JOIN_Z": int(len(pairs) > 1)}
    count, n = part.shape
    items, chunk = b.split(n, max(64, 16384 // count))
    args: list[Any] = [part, pairs[-1][0], out, pairs[-1][1], n, chunk, count]
    b.launch(lane_source("join_lanes.c"), "join_lanes", items, args, defines)
