"""Convolution on chips with local memory: products of tiles whose right side is gathered from the input.

Refs are as in kernels/conv.py. Groups of few output channels (depthwise) would leave a tile empty: they go one output
to a work-item. The depth is cut into parts like that of other products where tiles are too few for the chip.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..refs import Layout, Ref
from ..runtime.adapter import Matrix
from ..tuning import Way
from .conv_parts import acc_dtype
from .pointwise import emit
from .reduce import SUM, emit_reduce
from .row_groups import GROUP, row_source
from .tiles import LARGE, SMALL, matrix_defines, matrix_for, parts_of, steps_of, tile_source
from .types import ctype
from .window import Window

if TYPE_CHECKING:
    from ..builder import Builder

FEW = 8
"""Output channels of a group from which tiles pay."""


def forward_ways(b: Builder, y: Ref, x: Ref, w: Ref, window: Window) -> list[Way]:
    """Ways of `kernels.conv.emit_forward` for something that is not empty, the one of the rules first."""
    groups, channels, inner = w.shape[:3]
    if channels < FEW:
        return [Way("few", _emit_few)]
    steps = steps_of(inner * window.size, matrix_for(b, x.dtype, w.dtype))
    return _ways(b, _emit_forward, channels, y.numel // (groups * channels), groups, steps, acc_dtype(x.dtype).itemsize)


def weight_ways(b: Builder, gw: Ref, gy: Ref, x: Ref, window: Window) -> list[Way]:
    """Ways of `kernels.conv.emit_weight_grad` for something that is not empty, the one of the rules first."""
    groups, channels, inner = gw.shape[:3]
    if channels < FEW:
        return [Way("few", _emit_few_weight)]
    steps = steps_of(gy.numel // (groups * channels), matrix_for(b, x.dtype, gy.dtype))
    return _ways(b, _emit_weight_grad, channels, inner * window.size, groups, steps, acc_dtype(x.dtype).itemsize)


def _ways(
    b: Builder, emit: Callable[..., None], rows: int, cols: int, groups: int, steps: int, itemsize: int
) -> list[Way]:
    """Sizes of tiles, and into how many parts the depth is cut."""
    sizes = [_tile(b, rows, cols, groups, itemsize)]
    if itemsize <= 4 and cols > SMALL:
        sizes += [(SMALL, SMALL), (SMALL, LARGE), *([(LARGE, LARGE)] if rows > SMALL else [])]
    found: dict[str, Way] = {}
    for tm, tn in sizes:
        for parts in (parts_of(b, -(-rows // tm) * -(-cols // tn) * groups, steps), 1):
            name = f"tiles {tm}x{tn} in {parts}"
            found.setdefault(name, Way(name, partial(emit, (tm, tn), parts)))
    return list(found.values())


def _emit_few(b: Builder, y: Ref, x: Ref, w: Ref, bias: Ref | None, window: Window) -> None:
    """One output to a work-item."""
    positions = y.shape[0] * y.shape[2] * y.shape[3] * y.shape[4]
    args = [x, w, w if bias is None else b.contiguous(bias), y, int(bias is not None), *_layouts(x, y, w, window)]
    grid = (positions, w.shape[1] * w.shape[0])
    b.launch(_source(), "conv_few", grid, args, _defines(b, x, y, w, window, SMALL, SMALL))


def _emit_forward(
    tile: tuple[int, int], parts: int, b: Builder, y: Ref, x: Ref, w: Ref, bias: Ref | None, window: Window
) -> None:
    """y = convolution of x with w, plus bias; none is empty."""
    (tm, tn), (groups, channels, inner) = tile, w.shape[:3]
    tensors = [x, w, w if bias is None else b.contiguous(bias)]
    matrix = matrix_for(b, x.dtype, w.dtype)
    tiles = -(-channels // tm) * -(-(y.numel // (groups * channels)) // tn)
    part = -(-steps_of(inner * window.size, matrix) // parts)
    if parts == 1:
        args = [*tensors, y, int(bias is not None), part, 0, *_layouts(x, y, w, window)]
        defines = _defines(b, x, y, w, window, tm, tn, matrix)
        b.launch(_source(matrix), "conv_forward", (tiles, 1, groups), args, defines)
        return
    partial_sums = b.temp((parts, *y.shape), acc_dtype(x.dtype))
    target = partial_sums.select(0, 0)
    args = [*tensors, target, 0, part, target.numel, *_layouts(x, target, w, window)]
    defines = _defines(b, x, target, w, window, tm, tn, matrix)
    b.launch(_source(matrix), "conv_forward", (tiles, parts, groups), args, defines)
    _add_parts(b, y, partial_sums, bias)


def _add_parts(b: Builder, y: Ref, partial: Ref, bias: Ref | None) -> None:
    acc = partial.dtype
    if bias is None:
        emit_reduce(b, y, partial, (0,), SUM, acc)
        return
    total = b.temp(y.shape, acc)
    emit_reduce(b, total, partial, (0,), SUM, acc)
    emit(b, {"o": (y, "total + bias")}, {"total": total, "bias": bias.view(1, -1, 1, 1, 1)}, {}, acc)


def _emit_few_weight(b: Builder, gw: Ref, gy: Ref, x: Ref, window: Window) -> None:
    """One element of the gradient to a work-item."""
    groups, channels, inner = gw.shape[:3]
    args = [x, gy, gw, *_layouts(x, gy, gw, window)]
    defines = _defines(b, x, gw, gw, window, SMALL, SMALL)
    b.launch(_source(), "conv_few_weight", (inner * window.size, channels * groups), args, defines)


def _emit_weight_grad(tile: tuple[int, int], parts: int, b: Builder, gw: Ref, gy: Ref, x: Ref, window: Window) -> None:
    """gw = gradient of the weight; none is empty."""
    (tm, tn), (groups, channels, inner) = tile, gw.shape[:3]
    tiles = -(-channels // tm) * -(-inner * window.size // tn)
    matrix = matrix_for(b, x.dtype, gy.dtype)
    steps = steps_of(gy.numel // (groups * channels), matrix)
    target = b.temp((parts, *gw.shape), acc_dtype(x.dtype)) if parts > 1 else gw.unsqueeze(0)
    one = target.select(0, 0)
    args = [x, gy, one, -(-steps // parts), one.numel if parts > 1 else 0, *_layouts(x, gy, one, window)]
    defines = _defines(b, x, one, one, window, tm, tn, matrix)
    b.launch(_source(matrix), "conv_weight", (tiles, parts, groups), args, defines)
    if parts > 1:
        emit_reduce(b, gw, target, (0,), SUM, target.dtype)


def _tile(b: Builder, rows: int, cols: int, groups: int, itemsize: int) -> tuple[int, int]:
    """Rows and columns of a tile: large ones where there are enough of them."""
    if itemsize > 4:
        return SMALL, SMALL
    tm = LARGE if rows > SMALL else SMALL
    enough = -(-rows // tm) * -(-cols // LARGE) * groups >= b.device.properties.compute_units
    return (tm, LARGE) if enough and cols > SMALL else (SMALL, SMALL)


def _source(matrix: Matrix | None = None) -> str:
    return row_source() + tile_source("conv_tiles.c", matrix)


def _layouts(x: Ref, y: Ref, w: Ref, window: Window) -> list[Any]:
    """What the kernels take as xs, ys, ws and e."""
    order = (4, 3, 2, 0, 1)
    xs, ys = (Layout(tuple(r.shape[d] for d in order), (tuple(r.strides[d] for d in order),)) for r in (x, y))
    ws = Layout((*w.shape[:2:-1], *w.shape[2::-1]), ((*w.strides[:2:-1], *w.strides[2::-1]),))
    e = Layout((1, 1, 1), (window.stride[::-1], window.padding[::-1], window.dilation[::-1]))
    return [xs, ys, ws, e]


def _defines(
    b: Builder, x: Ref, y: Ref, w: Ref, window: Window, tm: int, tn: int, matrix: Matrix | None = None
) -> dict[str, Any]:
    flat = w.as_strided(w.shape[2:], w.strides[2:]).is_contiguous
    wide = flat and w.strides[1] % 4 == 0 and (w.shape[0] == 1 or w.strides[0] % 4 == 0)
    kd, kh, kw = window.kernel
    return {
        **b.types(T=x.dtype, U=y.dtype), **matrix_defines(matrix, x.dtype),
        "ACC": ctype(acc_dtype(x.dtype)).compute, "GROUP": GROUP, "LPR": GROUP,
        "KEEP": 0, "TM": tm, "TN": tn, "KW": kw, "KH": kh, "KD": kd, "W_FLAT": int(flat), "WIDE_W": int(wide),
    }  # fmt: skip
