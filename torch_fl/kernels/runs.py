"""Copies of whole runs of bytes (native/copy.c, native/join.c): one program for all dtypes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from ..refs import MAX_RANK, Addresses, Layout, Ref
from .source import read_native
from .vectors import lane_defines, lane_source

if TYPE_CHECKING:
    from ..builder import Builder

MOST = 128
"""Tensors of one launch that go by address."""
SHORTEST = 64
"""Bytes of a run below which a loop over elements is as fast."""
GRAIN = 1 << 14
"""Bytes of a work-item at least."""


def addressed(refs: Sequence[Ref]) -> Addresses:
    """The addresses of at most `MOST` tensors, filled up with the first's: every launch has room for as many."""
    return Addresses((*refs, *[refs[0]] * (MOST - len(refs))))


def counted(ends: Sequence[int]) -> bytes:
    """Where each of at most `MOST` tensors ends in what they make together, filled up with the last end."""
    return struct.pack(f"<{MOST}q", *ends, *[ends[-1]] * (MOST - len(ends)))


def emit_runs(b: Builder, target: Ref, source: Ref) -> bool:
    """target = source of the same shape and element size where both lie in long runs; else False. Only for CPUs."""
    from .pointwise import merge

    size = target.dtype.itemsize
    sizes, (to, of) = merge(target.shape, [target.strides, source.strides])
    run = sizes[0] * size
    if not b.is_cpu or to[0] != 1 or of[0] != 1 or run < SHORTEST or len(sizes) > MAX_RANK or 0 in sizes:
        return False
    layout = Layout.of(sizes[1:] or [1], [[s * size for s in st[1:]] or [0] for st in (to, of)])
    total = run * (target.numel // sizes[0])
    items, chunk = b.split(total, GRAIN)
    args: list[Any] = [_bytes(target), _bytes(source), total, chunk, run, layout]
    b.launch(read_native("move.h") + read_native("copy.c"), "runs", items, args)
    return True


def emit_halves(b: Builder, target: Ref, source: Ref) -> bool:
    """target = source of the same shape, one a float32 and the other a half, where both are one run and a kernel is
    better than the compiler's loop; else False. Only for CPUs."""
    from .pointwise import merge

    kinds = (source.dtype, target.dtype)
    if not b.is_cpu or kinds not in _CASTS or not target.numel:
        return False
    sizes, strides = merge(target.shape, [target.strides, source.strides])
    if len(sizes) != 1 or strides != [[1], [1]]:
        return False
    items, chunk = b.split(target.numel)
    args: list[Any] = [source, target, target.numel, -(-chunk // 64) * 64]
    if kinds == (torch.float32, torch.float16):
        b.launch("halves.c", "to_halves", items, args)
    else:
        defines = lane_defines(b, torch.float32, T=source.dtype, R=target.dtype)
        b.launch(lane_source("casts.c"), "cast_lanes", items, args, defines)
    return True


_CASTS = {(torch.float32, torch.float16), (torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)}


def _bytes(ref: Ref) -> Ref:
    """The bytes of a tensor, from its first element to its last."""
    size = ref.dtype.itemsize
    return replace(ref, shape=(ref.extent * size,), strides=(1,), dtype=torch.uint8, offset=ref.offset * size)


def emit_join(b: Builder, out: Ref, parts: Sequence[Ref], dim: int) -> bool:
    """out = the row-major `parts` one after the other along `dim`, in one launch where kernels may use addresses; else
    False."""
    fits = all(p.is_contiguous and p.dtype == out.dtype for p in parts)
    if not (b.is_cpu and b.device.backend.addresses and fits and out.is_contiguous and out.numel) or len(parts) < 2:
        return False
    if any(b.shares_buffer(p, out) for p in parts) or len(parts) > MOST:
        return False
    size = out.dtype.itemsize
    outer = 1
    for n in out.shape[:dim]:
        outer *= n
    ends = list(accumulate(p.numel // outer * size for p in parts))
    assert ends[-1] * outer == out.numel * size, "parts that do not make the result"
    items, chunk = b.split(ends[-1] * outer, GRAIN)
    args: list[Any] = [_bytes(out), addressed(parts), counted(ends), len(parts), ends[-1] * outer, chunk]
    b.launch(read_native("move.h") + read_native("join.c"), "join", items, args, {"MOST": MOST})
    return True
