"""What the kernels of convolution share: types, the framed input, packed weights, and where each tap lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import unsupported_dtype
from ..refs import Layout, Ref
from .frame import Frame
from .types import HALVES, ctype
from .vectors import REGISTERS, register_source

if TYPE_CHECKING:
    from ..builder import Builder

SOURCE = register_source("conv.c")
GPU_LANES = 4


def acc_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype sums are kept in: float32 for halves. Raises Unsupported for what torch does not convolve."""
    if dtype in HALVES:
        return torch.float32
    if dtype not in (torch.float32, torch.float64, torch.int64):
        raise unsupported_dtype(dtype)
    return dtype


def defines_for(b: Builder, dtype: torch.dtype, channels: int) -> dict[str, Any]:
    """Types, lanes of a vector, and rows of a register tile for `channels` output channels per group."""
    acc = acc_dtype(dtype)
    nbytes, most = REGISTERS.get(torch.backends.cpu.get_cpu_capability(), (16, 6)) if b.is_cpu else (0, 8)
    lanes = nbytes // acc.itemsize if b.is_cpu else GPU_LANES
    rows = 1 if channels == 1 else 4 if channels <= 4 else most
    return {**b.types(T=dtype), "ACC": ctype(acc).compute, "VL": lanes, "MR": rows}


def framed_input(b: Builder, x: Ref, frame: Frame, defines: dict[str, Any]) -> Ref:
    """x as segments of positions, one per channel and phase, in the compute dtype."""
    channels = x.shape[1]
    framed = b.temp((channels * frame.n_phases * frame.segment + frame.tail,), acc_dtype(x.dtype))
    n, c, d, h, w = x.strides
    sizes = (*frame.lines[::-1], x.shape[0], *frame.phases[::-1], channels)
    q = Layout(sizes, ((w, h, d, n, 0, 0, 0, c),))
    e = Layout(x.shape[:1:-1], (frame.window.stride[::-1], frame.window.padding[::-1]))
    total = channels * frame.n_phases * x.shape[0] * frame.lines[0] * frame.lines[1]
    items, chunk = b.split(total, max(1, 4096 // frame.lines[2]))
    b.launch(SOURCE, "conv_frame", items, [x, framed, q, e, frame.segment, frame.tail, total, chunk], defines)
    return framed


Taps = tuple[tuple[int, ...], Layout]
"""Elements from one tap, channel and phase to the next; the stride, dilation and phases that they are counted by."""


def framed_taps(frame: Frame, channel: int) -> Taps:
    """Where taps lie in a frame; `channel`: elements from one channel to the next."""
    window = frame.window
    shifts = (*frame.steps[:3], channel, frame.segment)
    return shifts, Layout((1, 1, 1), (window.stride[::-1], window.dilation[::-1], frame.phases[::-1]))


def _tap_layout(w: Ref, taps: Taps) -> Layout:
    return Layout((*w.shape[:2:-1], w.shape[2], 1), (taps[0],))


def joined(sizes: Sequence[int], steps: Sequence[int]) -> tuple[list[int], list[int]]:
    """Four sizes and steps, innermost first, with neighbours joined where there is no gap between them."""
    found, moves = [sizes[0]], [steps[0]]
    for size, step in zip(sizes[1:], steps[1:]):
        if size == 1:
            continue
        if step == found[-1] * moves[-1]:
            found[-1] *= size
        else:
            found.append(size)
            moves.append(step)
    pad = 4 - len(found)
    return found + [1] * pad, moves + [0] * pad


def packed_weight(
    b: Builder, w: Ref, bias: Ref | None, taps: Taps, deep: int, defines: dict[str, Any]
) -> tuple[Ref, Ref]:
    """Weights in blocks of MR output channels, `deep` taps at a time, then the bias; and each tap's place in the input.

    Work-items take all taps of a pass on a CPU, fewer elsewhere.
    """
    groups, channels, inner = w.shape[:3]
    depth, blocks = inner * w.shape[3] * w.shape[4] * w.shape[5], -(-channels // defines["MR"])
    packed = b.temp((groups * blocks * (depth + 1) * defines["MR"],), acc_dtype(w.dtype))
    offset = b.temp((depth,), torch.int64)
    chunk = deep if b.is_cpu else 64
    given = w if bias is None else b.contiguous(bias)
    sizes, steps = joined(w.shape[:1:-1], w.strides[:1:-1])
    m = Layout((*sizes, channels, groups), ((*steps, w.strides[1], w.strides[0]),))
    args: list[Any] = [w, given, packed, offset, m, _tap_layout(w, taps), taps[1], int(bias is not None), deep, chunk]
    b.launch(SOURCE, "conv_pack", (groups * blocks, -(-depth // chunk)), args, defines)
    return packed, offset


def tap_offsets(b: Builder, gw: Ref, taps: Taps, defines: dict[str, Any]) -> Ref:
    """Each tap's offset in the input, in the order of the weight's elements."""
    offset = b.temp((gw.numel // (gw.shape[0] * gw.shape[1]),), torch.int64)
    b.launch(SOURCE, "conv_offset", offset.numel, [offset, _tap_layout(gw, taps), taps[1]], defines)
    return offset
