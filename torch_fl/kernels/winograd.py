"""Convolution by windows of 3x3 with stride 1 on CPU-type devices: Winograd's F(2x2, 3x3), where it is worth it.

It multiplies 16 times where the sum takes 36 products, and costs transforms of inputs, weights and outputs: `pays`
says for which convolutions that is less. Sums stay about as near to the exact result as the plain ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..refs import Layout, Ref
from .conv_parts import acc_dtype, defines_for, framed_input
from .frame import Frame
from .vectors import register_source
from .window import Window

if TYPE_CHECKING:
    from ..builder import Builder

_SOURCE = register_source("turn.h", "conv_runs.h", "winograd.c")
_POINTS, _BLOCKS, _DEEP = 16, 16, 32
"""POINTS, BLOCKS and DEEP of native/winograd.c."""
_LEAST_CHANNELS = 32
"""Input and output channels of a group from which the transforms are paid."""
_LEAST_TILES = 160
"""Tiles from which the transform of the weights is paid."""


def able(y: Ref, window: Window) -> bool:
    """Whether `emit_winograd` can make this convolution."""
    plain = window.kernel == (1, 3, 3) and window.stride == window.dilation == (1, 1, 1)
    return plain and acc_dtype(y.dtype) == torch.float32


def pays(y: Ref, w: Ref) -> bool:
    """Whether it is worth its transforms, and tiles are not half empty."""
    positions = y.shape[0] * y.shape[2] * y.shape[3] * y.shape[4]
    return min(w.shape[1:3]) >= _LEAST_CHANNELS and _tiles(y) >= _LEAST_TILES and positions > 3 * _tiles(y)


def _tiles(y: Ref) -> int:
    return y.shape[0] * y.shape[2] * -(-y.shape[3] // 2) * -(-y.shape[4] // 2)


def emit_winograd(b: Builder, y: Ref, x: Ref, w: Ref, bias: Ref | None, window: Window) -> None:
    """y = convolution of x with w, plus bias; shapes as `conv.emit_forward`, nothing empty."""
    groups, channels, inner = w.shape[:3]
    defines = defines_for(b, y.dtype, channels)
    defines["PLAIN"] = int(defines["T"] == defines["ACC"])
    rows, across = defines["MR"], 2 * defines["VL"]
    blocks, out = -(-channels // rows), (y.shape[2], -(-y.shape[3] // 2), -(-y.shape[4] // 2))
    frame = Frame.of(Window((1, 4, 4), (1, 2, 2), window.padding), x.shape[2:], out, x.shape[0], defines["VL"])
    framed = framed_input(b, x, frame, defines)
    packed = b.temp((groups * blocks * rows * (inner * _POINTS + 2),), framed.dtype)
    sizes = (*w.shape[:3:-1], inner, channels, groups)
    of_w = Layout(sizes, ((w.strides[5], w.strides[4], w.strides[2], w.strides[1], w.strides[0]),))
    given = w if bias is None else b.contiguous(bias)
    packing: list[Any] = [w, given, packed, of_w, int(bias is not None)]
    b.launch(_SOURCE, "winograd_pack", (groups * blocks, -(-inner // _DEEP)), packing, defines)
    n, c, d, h, v = y.strides
    channel = frame.n_phases * frame.segment
    steps = ((*frame.steps, inner * channel, 0), (2 * v, 2 * h, d, n, channels * c, c))
    g = Layout((*out[::-1], y.shape[0], groups, channels), steps)
    tiles, some = _tiles(y), min(_BLOCKS, blocks)
    grid = (-(-tiles // across), -(-blocks // some), groups)
    args: list[Any] = [framed, packed, w, y, g, of_w, channel, frame.segment, frame.steps[1]]
    b.launch(_SOURCE, "winograd", grid, [*args, y.shape[4], y.shape[3], tiles, some, h, v], defines)
