"""Convolution of every channel by itself on CPU-type devices: one pass over the input, only the result is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..refs import Layout, Ref
from .conv_parts import defines_for
from .window import Window

if TYPE_CHECKING:
    from ..builder import Builder

_ROOM, _MOST = 8192, 64
"""ROOM and MOST of native/depthwise.c."""
_GRAIN = 8192
"""Outputs that are worth a work-item."""


def rows_at_once(x: Ref, y: Ref, window: Window) -> int:
    """Output rows whose input lines fit the private memory; 0 where native/depthwise.c cannot do this convolution."""
    kernel, stride, dilation = window.kernel, window.stride, window.dilation
    flat = x.shape[2] == y.shape[2] == kernel[0] == 1 and window.padding[0] == 0
    if not flat or window.size > _MOST:
        return 0
    line = (y.shape[4] + (kernel[2] - 1) * dilation[2] // stride[2]) * stride[2]
    lines = _ROOM // line - (kernel[1] - 1) * dilation[1]
    return min(y.shape[3], (lines - 1) // stride[1] + 1) if lines > 0 else 0


def emit_depthwise(b: Builder, y: Ref, x: Ref, w: Ref, bias: Ref | None, window: Window) -> None:
    """y = convolution of each channel of x with its own window, plus bias.

    x [N, C, 1, H, W], w [C, 1, 1, 1, kh, kw], y [N, C, 1, H', W'], bias [C]; `rows_at_once` must not be 0.
    """
    rows = rows_at_once(x, y, window)
    samples, channels = y.shape[:2]
    sizes = (y.shape[4], y.shape[3], channels, samples)
    strides = [(r.strides[4], r.strides[3], r.strides[1], r.strides[0]) for r in (x, y)]
    given = [(*v[:0:-1], 0, 0) for v in (window.stride, window.padding, window.dilation)]
    weight = (w.strides[5], w.strides[4], w.strides[0], 0)
    e = Layout((*window.kernel[:0:-1], x.shape[4], x.shape[3]), (weight, *given))
    units = samples * channels * -(-y.shape[3] // rows)
    items, chunk = b.split(units, max(1, _GRAIN // (rows * y.shape[4])))
    defines = defines_for(b, y.dtype, 1)
    plain = int(defines["T"] == defines["ACC"])
    given_bias = w if bias is None else b.contiguous(bias)
    args: list[Any] = [x, w, given_bias, y, Layout(sizes, tuple(strides)), e, int(bias is not None), rows, units, chunk]
    b.launch("depthwise.c", "conv_depthwise", items, args, defines | {"PLAIN": plain})
