"""Copies that transpose: in tiles, where a plain walk would touch a new cache line with every element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..refs import MAX_RANK, Layout, Ref
from .row_groups import GROUP
from .source import read_native
from .types import ctype
from .vectors import register_source, registers

if TYPE_CHECKING:
    from ..builder import Builder

TILE = 32
"""Rows and columns of a tile, as in native/transpose.c."""


def emit_transpose(builder: Builder, target: Ref, source: Ref, compute: torch.dtype) -> bool:
    """target = source where the target is dense along one dimension and the source along another; else False.

    `compute`: as for `emit`. Only for CPUs and chips with local memory.
    """
    from .pointwise import merge

    sizes, (to, from_) = merge(target.shape, [target.strides, source.strides])
    dense = next((d for d in range(1, len(sizes)) if from_[d] == 1), 0)
    if (
        not (builder.is_cpu or builder.groups)
        or not dense
        or to[0] != 1
        or min(sizes[0], sizes[dense]) < TILE // 2
        or len(sizes) > MAX_RANK
    ):
        return False
    order = [0, dense, *(d for d in range(1, len(sizes)) if d != dense)]
    layout = Layout(tuple(sizes[d] for d in order), (tuple(to[d] for d in order), tuple(from_[d] for d in order)))
    tiles = -(-sizes[0] // TILE) * -(-sizes[dense] // TILE)
    for d in order[2:]:
        tiles *= sizes[d]
    defines = builder.types(X=source.dtype, Y=target.dtype) | {"ACC": ctype(compute).compute}
    if builder.groups:
        defines |= {"GROUP": GROUP}
        builder.launch("transpose_groups.c", "transpose", tiles, [source, target, tiles, layout], defines)
        return True
    text = read_native("transpose.c")
    if source.dtype == target.dtype:
        text = register_source("turn.h", "transpose.c")
        defines |= {"ACC": ctype(source.dtype).store, "VL": min(16, registers(source.dtype)["VL"])}
    items, chunk = builder.split(tiles, 8)
    builder.launch(text, "transpose", items, [source, target, tiles, chunk, layout], defines)
    return True
