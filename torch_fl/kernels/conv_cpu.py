"""Convolution on CPU-type devices: blocks of a matrix product whose right side is gathered while it is multiplied.

An input without padding is read where it lies, any other is framed by zeros first (native/conv.c); no im2col is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..refs import Layout, Ref
from .conv_parts import Taps, acc_dtype, defines_for, framed_input, framed_taps, joined, packed_weight, tap_offsets
from .frame import Frame
from .reduce import SUM, emit_reduce
from .vectors import register_source
from .window import Window

if TYPE_CHECKING:
    from ..builder import Builder

_SOURCE = register_source("conv_runs.h", "conv_cpu.c")
_TILES, _PANEL, _SUMS, _MOST_TAPS = 8, 512, 32, 512
"""TILES, PANEL (in rows), SUMS and MOST of native/conv_cpu.c."""
_DEEP, _ONCE = 192, 256
"""Taps of a panel that stays in the first cache, and the most that are taken in one pass."""
_LEAST_TAPS = 128
"""Taps for which turning the gradient once more is worth a work-item."""
_LEAST_SPAN = 1024
"""Positions that are worth a work-item."""
FEW_CHANNELS = 4
"""Up to so many output channels a gradient of the weight leaves most lanes of conv_taps empty."""


@dataclass(frozen=True)
class _Source:
    """An input as the kernels read it: elements from one output position to the next, and from channel to channel."""

    ref: Ref
    steps: tuple[int, int, int, int]
    channel: int
    taps: Taps
    limit: int
    """Whole vectors may be read at positions below this."""


def _source(b: Builder, x: Ref, window: Window, out: Sequence[int], defines: dict[str, Any]) -> _Source:
    """x where it lies if nothing is padded, else framed; `out`: sizes (D, H, W) of the output."""
    if x.dtype == acc_dtype(x.dtype) and _fits(window, x.shape[2:], out):
        return _in_place(x, window, defines["VL"])
    frame = Frame.of(window, x.shape[2:], out, x.shape[0], defines["VL"])
    channel = frame.n_phases * frame.segment
    framed = framed_input(b, x, frame, defines)
    return _Source(framed, frame.steps, channel, framed_taps(frame, channel), 2**62)


def _fits(window: Window, size: Sequence[int], out: Sequence[int]) -> bool:
    """Whether every tap of every output lies in the input."""
    ends = [(o - 1) * s + (k - 1) * d for o, s, k, d in zip(out, window.stride, window.kernel, window.dilation)]
    return window.padding == (0, 0, 0) and all(end < n for end, n in zip(ends, size))


def _in_place(x: Ref, window: Window, lanes: int) -> _Source:
    n, c, d, h, w = x.strides
    kernel, stride, dilation = window.kernel, window.stride, window.dilation
    shifts = (w, h, d, c, 0)
    counted = Layout((1, 1, 1), ((1, 1, 1), dilation[::-1], (1, 1, 1)))
    reach = sum((k - 1) * dil * s for k, dil, s in zip(kernel, dilation, (d, h, w))) + (x.shape[1] - 1) * c
    steps = (w * stride[2], h * stride[1], d * stride[0], n)
    return _Source(x, steps, c, (shifts, counted), x.extent - reach)


def _layout(ref: Ref, groups: int, channels: int) -> Layout:
    """Layout (w, h, d, n, groups, channels) of an output or its gradient."""
    n, c, d, h, w = ref.strides
    sizes, steps = joined((*ref.shape[:1:-1], ref.shape[0]), (w, h, d, n))
    return Layout((*sizes, groups, channels), ((*steps, channels * c, c),))


def _source_layout(source: _Source, like: Ref, groups: int, inner: int) -> Layout:
    sizes, steps = joined((*like.shape[:1:-1], like.shape[0]), source.steps)
    return Layout((*sizes, groups), ((*steps, inner * source.channel),))


def _launch(b: Builder, name: str, grid: tuple[int, ...], args: list[Any], defines: dict[str, Any]) -> None:
    plain = defines["T"] == defines["ACC"]
    b.launch(_SOURCE, name, grid, args, {"NV": 2} | defines | {"PLAIN": int(plain)})


def emit_blocks(b: Builder, y: Ref, x: Ref, w: Ref, bias: Ref | None, window: Window) -> None:
    """y = convolution of x with w, plus bias; shapes as `conv.emit_forward`, nothing empty."""
    groups, channels, inner = w.shape[:3]
    defines = defines_for(b, y.dtype, channels)
    source = _source(b, x, window, y.shape[2:], defines)
    depth, positions = window.size * inner, y.numel // (groups * channels)
    deep = depth if depth <= _ONCE else -(-depth // -(-depth // _DEEP))
    packed, offset = packed_weight(b, w, bias, source.taps, deep, defines)
    tiles, blocks = -(-positions // (2 * defines["VL"])), -(-channels // defines["MR"])
    grid, per, some = _split(b, tiles, blocks, groups, min(_TILES, _PANEL // deep) if depth == deep else 2)
    q, g = _source_layout(source, y, groups, inner), _layout(y, groups, channels)
    args: list[Any] = [source.ref, packed, offset, y, q, g, depth, deep, positions, source.limit, per, some]
    _launch(b, "conv_block", grid, args, defines)


def _split(b: Builder, tiles: int, blocks: int, groups: int, most: int) -> tuple[tuple[int, int, int], int, int]:
    """The grid of conv_block, and tiles (up to `most`) and blocks per work-item."""
    wanted = 4 * b.device.properties.compute_units
    some, per = min(_SUMS // 2, blocks), most
    while per > 1 and -(-tiles // per) * -(-blocks // some) * groups < wanted:
        per -= 1
    while some > 2 and -(-tiles // per) * -(-blocks // some) * groups < wanted:
        some = -(-some // 2)
    return (-(-tiles // per), -(-blocks // some), groups), per, some


def emit_correlation(b: Builder, gw: Ref, gy: Ref, x: Ref, window: Window) -> None:
    """gw = gradient of the weight; shapes as `conv.emit_weight_grad`, nothing empty."""
    if window == Window((1, 1, 1)) and gw.shape[1] > gw.shape[2] > FEW_CHANNELS:
        # A product of two matrices: the smaller one is turned.
        gw, gy, x = gw.permute(0, 2, 1, 3, 4, 5), x, gy
    groups, channels, inner = gw.shape[:3]
    defines = defines_for(b, x.dtype, max(channels, FEW_CHANNELS + 1))
    defines["NV"] = 1 if channels <= defines["VL"] else 2
    source = _source(b, x, window, gy.shape[2:], defines)
    offset = tap_offsets(b, gw, source.taps, defines)
    depth, positions = window.size * inner, gy.numel // (groups * channels)
    panels = -(-channels // (defines["NV"] * defines["VL"]))
    some, parts = _split_taps(b, depth, positions, panels * groups, defines["MR"])
    span = -(-positions // parts)
    result = gw if parts == 1 and gw.is_contiguous and gw.dtype == source.ref.dtype else None
    made = result or b.temp((parts, *gw.shape), source.ref.dtype)
    q, g = _source_layout(source, gy, groups, inner), _layout(gy, groups, channels)
    args: list[Any] = [gy, source.ref, offset, made, q, g, depth, positions, span, some]
    _launch(b, "conv_taps", (panels, -(-depth // some), groups * parts), args, defines)
    if result is None:
        emit_reduce(b, gw, made, [0], SUM, made.dtype)


def _split_taps(b: Builder, depth: int, positions: int, others: int, rows: int) -> tuple[int, int]:
    """Taps per work-item of conv_taps, and into how many parts the positions are split."""
    wanted = 2 * b.device.properties.compute_units
    items = max(-(-depth // (_MOST_TAPS - rows)), min(-(-wanted // others), depth // _LEAST_TAPS))
    some = -(-depth // (max(1, items) * rows)) * rows
    made = -(-depth // some) * others
    return some, max(1, min(wanted // made, positions // _LEAST_SPAN))
