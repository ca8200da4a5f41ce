"""Convolution and its gradients on any chip, for one to three spatial dimensions, any stride, dilation and groups.

Everything is one product over a framed input (native/conv.c): no im2col, no temporary much larger than the input. The
gradient of the input is a convolution with flipped weights; with a stride, one per phase of the input's positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..refs import Layout, Ref
from ..tuning import Way, emit_best
from . import conv_tiles
from .conv_cpu import FEW_CHANNELS, emit_blocks, emit_correlation
from .conv_parts import SOURCE, acc_dtype, defines_for, framed_input, framed_taps, packed_weight, tap_offsets
from .depthwise import emit_depthwise, rows_at_once
from .frame import Frame, Phase
from .gemm import emit_gemm
from .layer import layer
from .reduce import SUM, emit_reduce
from .window import Window, layout
from .winograd import able, emit_winograd, pays

if TYPE_CHECKING:
    from ..builder import Builder

_ALL = range(3)
SPAN = 2048
"""Positions of a weight gradient summed at once: what fits the first cache."""
WEIGHT_ROWS = 16
"""Output channels that share what is in the first cache."""
TILES = 16
"""Most tiles of positions per work-item on a CPU: their inputs stay in the second cache."""


def _forward(b: Builder, y: Ref, x: Ref, w: Ref, bias: Ref | None, window: Window) -> None:
    """y = convolution of x with w, plus bias.

    x [N, G * I, D, H, W], w [G, O, I, kd, kh, kw], y [N, G * O, D', H', W'], bias [G * O]; any strides, one dtype.
    Padding may be negative (it crops).
    """
    if y.numel == 0:
        return
    if x.numel == 0 or w.numel == 0:
        _constant(b, y, bias)
        return
    emit_best(b, "convolution", (y, x, w, bias, window), _ways(b, y, x, w, window))


emit_forward = layer("convolution")(_forward)


def _ways(b: Builder, y: Ref, x: Ref, w: Ref, window: Window) -> list[Way]:
    """Ways for something that is not empty, the one of the rules first."""
    if b.groups:
        return conv_tiles.forward_ways(b, y, x, w, window)
    groups, channels, inner = w.shape[:3]
    framed = Way("framed", _emit_framed)
    if not b.is_cpu:
        return [framed]
    product = [Way("product", _emit_product)] if groups == 1 and window == Window((1, 1, 1)) else []
    if channels > FEW_CHANNELS:
        blocks = [Way("blocks", emit_blocks), *product, framed]
        tiled = [Way("winograd", emit_winograd)] if able(y, window) else []
        return tiled + blocks if tiled and pays(y, w) else blocks + tiled
    if channels == inner == 1 and rows_at_once(x, y, window):
        return [Way("depthwise", emit_depthwise), framed]
    return [framed, *product]


def _emit_product(b: Builder, y: Ref, x: Ref, w: Ref, bias: Ref | None, window: Window) -> None:
    """One tap and one group: a product for each sample."""
    samples, channels, inner = y.shape[0], *w.shape[1:3]
    weight = w.as_strided((1, channels, inner), (0, *w.strides[1:3])).expand((samples, channels, inner))
    column = None if bias is None else bias.view(1, channels, 1)
    emit_gemm(b, y.view(samples, channels, -1), weight, b.reshape(x, samples, inner, -1), bias=column)


def _emit_framed(b: Builder, y: Ref, x: Ref, w: Ref, bias: Ref | None, window: Window) -> None:
    """One product over the input with its padding, any chip."""
    groups, channels, inner = w.shape[:3]
    defines = defines_for(b, y.dtype, channels)
    frame = Frame.of(window, x.shape[2:], y.shape[2:], x.shape[0], defines["VL"])
    single = replace(frame, samples=1)
    in_place = _is_framed(x, single, defines)
    if in_place:
        frame, source, strides = single, x, (x.strides[1], x.strides[0])
    else:
        source, strides = framed_input(b, x, frame, defines), (frame.n_phases * frame.segment, 0)
    rows = defines["MR"]
    blocks = -(-channels // rows)
    taps = framed_taps(frame, strides[0])
    packed, offset = packed_weight(b, w, bias, taps, window.size * inner, defines)
    outer = x.shape[0] if in_place else 1
    grid, tiles, some = _split_tiles(b, frame.positions, blocks, groups * outer, 2 * defines["VL"])
    g = _tile_layout(y, frame, groups, channels, outer, (inner * strides[0], strides[1]))
    args: list[Any] = [source, packed, offset, y, g, window.size * inner, frame.positions, tiles, some]
    b.launch(SOURCE, "conv_tile", grid, args, defines)


def _is_framed(x: Ref, frame: Frame, defines: dict[str, Any]) -> bool:
    """Whether x can be read where it lies, one sample at a time; no tile may reach past its end."""
    rows = x.as_strided(x.shape[2:], x.strides[2:])
    enough = frame.positions >= 2 * defines["VL"]
    return frame.is_plain and rows.is_contiguous and x.dtype == acc_dtype(x.dtype) and enough


def _constant(b: Builder, y: Ref, bias: Ref | None) -> None:
    if bias is None:
        b.fill(y, 0)
    else:
        b.copy(y, bias.view(1, -1, 1, 1, 1).expand(y.shape))


def _split_tiles(
    b: Builder, positions: int, blocks: int, others: int, width: int
) -> tuple[tuple[int, int, int], int, int]:
    """The grid of conv_tile, and tiles and blocks per work-item."""
    tiles = -(-positions // width)
    if not b.is_cpu:
        return (tiles, blocks, others), 1, 1
    wanted = -(-4 * b.device.properties.compute_units // others)
    per = max(1, min(TILES, -(-tiles // wanted)))
    items = -(-tiles // per)
    some = max(1, min(blocks, blocks * items // wanted))
    return (items, -(-blocks // some), others), per, some


def _tile_layout(y: Ref, frame: Frame, groups: int, channels: int, outer: int, strides: tuple[int, int]) -> Layout:
    n, c, d, h, w = y.strides
    sizes = (*frame.out[::-1], frame.samples, channels, groups, outer)
    # strides of the frame: lengths of lines, planes and samples (what a position is divided by), group, outer sample
    return Layout(sizes, ((*frame.lines[::-1], 0, 0, *strides), (w, h, d, n, c, channels * c, n)))


@layer("convolution input gradient")
def emit_input_grad(b: Builder, gx: Ref, gy: Ref, w: Ref, bias: Ref | None, window: Window) -> None:
    """gx = the transpose of the convolution applied to gy, plus bias: also the transposed convolution.

    gx [N, G * I, D, H, W], gy [N, G * O, D', H', W'], w [G, O, I, kd, kh, kw], bias [G * I]. Every phase of gx (its
    positions of equal remainder by the stride) is a convolution of gy with the taps that reach that phase.
    """
    turned = w.permute(0, 2, 1, 3, 4, 5)
    s0, s1, s2 = window.stride
    for phase in [(d, h, w_) for d in range(s0) for h in range(s1) for w_ in range(s2)]:
        parts = [Phase.of(window, d, phase[d], gx.shape[2 + d]) for d in _ALL]
        target, weight = gx, turned
        for d, part in enumerate(parts):
            target, weight = part.positions(target, 2 + d), part.taps(weight, 3 + d)
        if target.numel == 0:
            continue
        if weight.numel == 0:
            _constant(b, target, bias)
            continue
        kernel, padding, dilation = (tuple(v) for v in zip(*((p.count, p.padding, p.dilation) for p in parts)))
        _forward(b, target, gy, weight, bias, Window(kernel, (1, 1, 1), padding, dilation))


@layer("convolution weight gradient")
def emit_weight_grad(b: Builder, gw: Ref, gy: Ref, x: Ref, window: Window) -> None:
    """gw = gradient of the weight. gw [G, O, I, kd, kh, kw], gy [N, G * O, D', H', W'], x [N, G * I, D, H, W]."""
    if gw.numel == 0:
        return
    if gy.numel == 0 or x.numel == 0:
        b.fill(gw, 0)
        return
    emit_best(b, "convolution weight gradient", (gw, gy, x, window), _weight_ways(b, gw, gy, x, window))


def _weight_ways(b: Builder, gw: Ref, gy: Ref, x: Ref, window: Window) -> list[Way]:
    """Ways for something that is not empty, the one of the rules first."""
    if b.groups:
        return conv_tiles.weight_ways(b, gw, gy, x, window)
    plain = window == Window((1, 1, 1)) and gw.shape[0] == 1
    product = [Way("product", _pointwise_weight_grad)] if plain else []
    correlation = [Way("correlation", emit_correlation)] if b.is_cpu else []
    first = correlation if gw.shape[1] > FEW_CHANNELS else product
    return list(dict.fromkeys((*first, *product, Way("framed", _framed_weight_grad), *correlation)))


def _framed_weight_grad(b: Builder, gw: Ref, gy: Ref, x: Ref, window: Window) -> None:
    """Any chip: sums over positions of the framed input and the framed gradient."""
    defines = defines_for(b, x.dtype, gw.shape[1])
    frame = Frame.of(window, x.shape[2:], gy.shape[2:], x.shape[0], defines["VL"])
    framed = framed_input(b, x, frame, defines)
    plain = replace(frame, window=Window((1, 1, 1)), size=frame.out, phases=(1, 1, 1))
    grad = framed_input(b, gy, plain, defines)
    offset = tap_offsets(b, gw, framed_taps(frame, frame.n_phases * frame.segment), defines)
    result = gw if gw.is_contiguous and gw.dtype == framed.dtype else b.temp(gw.shape, framed.dtype)
    _weight_grad(b, grad, framed, offset, result, frame, defines)
    if result is not gw:
        b.copy(gw, result)


def _pointwise_weight_grad(b: Builder, gw: Ref, gy: Ref, x: Ref, window: Window) -> None:
    """One tap: gw [O, I] is a plain product, summed over samples."""
    samples, out, inner = gy.shape[0], gy.shape[1], x.shape[1]
    target = gw.as_strided((out, inner), gw.strides[1:3])
    emit_gemm(
        b, target, b.reshape(gy, samples, out, -1), b.reshape(x, samples, inner, -1).transpose(1, 2), sum_batch=True
    )


def _weight_grad(
    b: Builder, grad: Ref, framed: Ref, offset: Ref, result: Ref, frame: Frame, defines: dict[str, Any]
) -> None:
    groups, channels, inner = result.shape[:3]
    depth = frame.window.size * inner
    rows, some, span = _split_weight_grad(b, channels, depth, groups, defines["MR"])
    of_group = inner * frame.n_phases * frame.segment
    g = Layout((depth, channels, groups), ((0, 0, of_group), (0, frame.segment, channels * frame.segment)))
    m = Layout((*frame.out[::-1], frame.samples), (frame.steps,))
    grid = (-(-channels // rows), -(-depth // some), groups)
    args: list[Any] = [grad, framed, offset, result, g, m, frame.segment, span or frame.segment, rows, some]
    b.launch(SOURCE, "conv_weight_grad", grid, args, defines)


def _split_weight_grad(b: Builder, channels: int, depth: int, groups: int, tile: int) -> tuple[int, int, int]:
    """Channels and taps per work-item of conv_weight_grad, and positions per pass (0: all)."""
    least = 1 if tile == 1 else 4
    if not b.is_cpu:
        return least, 4, 0
    rows = min(WEIGHT_ROWS, -(-channels // least) * least)
    wanted = -(-4 * b.device.properties.compute_units // (-(-channels // rows) * groups))
    quads = -(-depth // 4)
    return rows, -(-quads // min(wanted, quads)) * 4, SPAN


def emit_bias_grad(b: Builder, gb: Ref, gy: Ref) -> None:
    """gb [C] = gy [N, C, D, H, W] summed over everything but the channel."""
    if gy.numel == 0:
        b.fill(gb, 0)
        return
    if b.groups:
        emit_reduce(b, gb, gy, (0, 2, 3, 4), SUM, acc_dtype(gy.dtype))
        return
    shape = (gy.shape[1], gy.shape[0], *gy.shape[2:])
    m = layout(shape, gy.transpose(0, 1))
    b.launch(SOURCE, "conv_bias_grad", gb.numel, [gy, gb, m], defines_for(b, gy.dtype, 1))


def grouped(w: Ref, groups: int) -> Ref:
    """[G, O, I, kd, kh, kw] from [G * O, I, kd, kh, kw]; a view."""
    return w.as_strided((groups, w.shape[0] // groups, *w.shape[1:]), (w.shape[0] // groups * w.strides[0], *w.strides))
