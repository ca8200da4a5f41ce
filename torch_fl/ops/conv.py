"""Convolution, transposed convolution and their gradients; F.unfold and F.fold.

torch's conv1d, conv2d, conv_transpose2d, padding modes and double backward are composites over these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.conv import emit_bias_grad, emit_forward, emit_input_grad, emit_weight_grad, grouped
from ..kernels.types import raw_dtype
from ..kernels.window import Window, volume
from ..refs import Layout, Ref
from ..registry import kernel

Sizes = Sequence[int]


def _rank(weight: Ref) -> int:
    rank = weight.ndim - 2
    if not 1 <= rank <= 3:
        raise Unsupported(f"{rank} spatial dimensions")
    return rank


def _window(weight: Ref, stride: Sizes, padding: Sizes, dilation: Sizes) -> Window:
    return Window.of(_rank(weight), weight.shape[2:], stride, padding, dilation)


def _result(b: Builder, index: int, channels_last: bool) -> Ref:
    """Result `index`, channels-last where torch's CPU and CUDA kernels make it so; torch's inference does not."""
    out = b.outs[index]
    if out.arg is not None or not channels_last:
        return b.out(index)
    form = torch.channels_last if len(out.spec.shape) == 4 else torch.channels_last_3d
    strides = torch.empty(out.spec.shape, device="meta").to(memory_format=form).stride()
    return b.new_out(index, out.spec.shape, out.spec.dtype, strides)


def _channels_last(*refs: Ref) -> bool:
    """Whether input or weight is laid out so. torch keeps float64 and one dimension row-major."""
    if refs[0].ndim < 4 or refs[0].dtype == torch.float64:
        return False
    metas = [torch.empty_strided(r.shape, r.strides, device="meta") for r in refs]
    return any(suggest_memory_format(m) != torch.contiguous_format for m in metas)


@kernel("aten::convolution")
def convolution(
    b: Builder,
    input: Ref,
    weight: Ref,
    bias: Ref | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    groups: int,
) -> None:
    """input [N, C, ...] with weight [O, C / groups, ...], or transposed [C, O / groups, ...]; one to three dimensions.

    Floats and int64 of one dtype; halves are summed in float32.
    """
    if bias is not None and bias.dtype != input.dtype:
        raise Unsupported("bias of another dtype")
    rank, window = _rank(weight), _window(weight, stride, padding, dilation)
    y = volume(_result(b, 0, _channels_last(input, weight)), rank)
    x, w = volume(input, rank), grouped(volume(weight, rank), groups)
    (emit_input_grad if transposed else emit_forward)(b, y, x, w, bias, window)


@kernel("aten::convolution_backward")
def convolution_backward(
    b: Builder,
    grad_output: Ref,
    input: Ref,
    weight: Ref,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    groups: int,
    output_mask: Sequence[bool],
) -> None:
    """Gradients of input, weight and bias, those that output_mask asks for."""
    rank, window = _rank(weight), _window(weight, stride, padding, dilation)
    gy, x, w = volume(grad_output, rank), volume(input, rank), grouped(volume(weight, rank), groups)
    last = _channels_last(input, weight)
    outs = iter([_result(b, i, last and i < sum(output_mask[:2])) for i in range(sum(output_mask))])
    if output_mask[0]:
        (emit_forward if transposed else emit_input_grad)(b, volume(next(outs), rank), gy, w, None, window)
    if output_mask[1]:
        gw = grouped(volume(next(outs), rank), groups)
        emit_weight_grad(b, gw, *((x, gy) if transposed else (gy, x)), window)
    if output_mask[2]:
        emit_bias_grad(b, next(outs), gy)


@kernel("aten::im2col")
def im2col(b: Builder, self: Ref, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> None:
    """F.unfold: [N, C * kh * kw, windows] from [N, C, H, W]; any dtype, the padding is 0."""
    out = b.out()
    y = b.row_major(out)
    x = volume(replace(self, dtype=raw_dtype(self.dtype.itemsize)), 2)
    window = Window.of(2, kernel_size, stride, padding, dilation)
    windows = _windows(x.shape[3:], window)
    n, c, _, h, w = x.strides
    shape = (*windows[::-1], *window.kernel[:0:-1], x.shape[1], x.shape[0])
    m = Layout(shape, ((w, h, 0, 0, c, n),))
    items, chunk = b.split(y.numel)
    raw = replace(y, dtype=x.dtype)
    args: list[Any] = [x, raw, m, window.over(x.shape[2:]), y.numel, chunk]
    b.launch("unfold.c", "unfold", items, args, b.types(T=x.dtype))
    b.deliver(out, y)


@kernel("aten::col2im")
def col2im(
    b: Builder, self: Ref, output_size: Sizes, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> None:
    """F.fold: [N, C, H, W] from [N, C * kh * kw, windows]; overlaps are added in the compute type."""
    out = b.out()
    image = b.row_major(out)
    columns = self if self.ndim == 3 else self.unsqueeze(0)
    window = Window.of(2, kernel_size, stride, padding, dilation)
    windows = _windows(output_size, window)
    n, row, column = columns.strides
    m = Layout(volume(image, 2).shape[:2:-1] + volume(image, 2).shape[1::-1], ((column, 0, row, n),))
    items, chunk = b.split(image.numel, 1024)
    sizes = window.over((1, *output_size))
    args: list[Any] = [columns, image, m, sizes, windows[1], windows[0], image.numel, chunk]
    b.launch("unfold.c", "fold", items, args, b.types(T=columns.dtype))
    b.deliver(out, image)


def _windows(size: Sizes, window: Window) -> tuple[int, int]:
    """Windows down and across an image of `size` (H, W)."""
    reach = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, window.kernel[1:], window.stride[1:], window.padding[1:], window.dilation[1:])
    ]
    return reach[0], reach[1]
