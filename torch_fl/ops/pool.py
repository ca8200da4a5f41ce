"""Max and average pooling, forward and backward, fixed and adaptive windows, in two and three spatial dimensions.

The one-dimensional forms are torch's composites over the two-dimensional ones. Result shapes come from torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.types import widened
from ..kernels.window import Window, layout, volume
from ..refs import Ref
from ..registry import handler, kernel

_SOURCE = "pool.c"
_ADAPTIVE = Window((1, 1, 1))
Sizes = Sequence[int]


def _defines(b: Builder, dtype: torch.dtype, adaptive: bool) -> dict[str, object]:
    types = b.types(T=dtype)
    nan = "((v) != (v))" if dtype.is_floating_point else "0"
    return {**types, "A": types["T_acc"], "IS_NAN(v)": nan, "ADAPTIVE": int(adaptive)}


def _max_pool(
    rank: int, b: Builder, self: Ref, kernel_size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> None:
    """Largest element of each window and its index within its plane; a NaN wins, else the first of equals."""
    _emit_max(b, rank, self, Window.of(rank, kernel_size, stride, padding, dilation), False)


def _adaptive_max_pool(rank: int, b: Builder, self: Ref) -> None:
    """The same over windows that split the input evenly."""
    _emit_max(b, rank, self, _ADAPTIVE, True)


def _emit_max(b: Builder, rank: int, self: Ref, window: Window, adaptive: bool) -> None:
    x, y, index = volume(self, rank), volume(b.out(0), rank), volume(b.out(1), rank)
    total = y.numel
    items, chunk = b.split(total, 1024)
    args: list[Any] = [x, y, index, layout(y.shape, x, y, index), window.over(x.shape[2:]), total, chunk]
    b.launch(_SOURCE, "max_pool", items, args, _defines(b, self.dtype, adaptive))


def max_pool_backward(rank: int, b: Builder, grad_output: Ref, self: Ref, indices: Ref) -> None:
    """Each window's gradient added to the element it took; sums are in the compute type."""
    grad, index, out = volume(grad_output, rank), volume(indices, rank), b.out()
    defines = _defines(b, grad.dtype, False)
    wide = widened(grad.dtype)
    target = b.row_major(out, wide)
    planes = grad.shape[0] * grad.shape[1]
    plane = out.numel // planes if planes else 0
    if out.numel:
        items, chunk = b.split(planes, max(1, 4096 // plane))
        args: list[Any] = [grad, index, target, layout(grad.shape, grad, index), plane, planes, chunk]
        b.launch(_SOURCE, "max_pool_backward", items, args, defines)
    b.deliver(out, target)


def _avg_pool(
    rank: int,
    b: Builder,
    self: Ref,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    count_include_pad: bool,
    divisor_override: int | None,
) -> None:
    """Mean of each window; what it divides by follows torch's rules for padding."""
    window = Window.of(rank, kernel_size, stride, padding, [1])
    _emit_avg(b, rank, self, window, count_include_pad, divisor_override, False)


def _adaptive_avg_pool(rank: int, b: Builder, self: Ref) -> None:
    """Mean over windows that split the input evenly."""
    _emit_avg(b, rank, self, _ADAPTIVE, False, None, True)


def _emit_avg(
    b: Builder, rank: int, self: Ref, window: Window, include_pad: bool, divisor: int | None, adaptive: bool
) -> None:
    x, y = volume(self, rank), volume(b.out(), rank)
    total = y.numel
    items, chunk = b.split(total, 1024)
    args: list[Any] = [
        x,
        y,
        layout(y.shape, x, y),
        window.over(x.shape[2:]),
        int(include_pad),
        divisor or 0,
        total,
        chunk,
    ]
    b.launch(_SOURCE, "avg_pool", items, args, _defines(b, self.dtype, adaptive))


def _avg_pool_backward(
    rank: int,
    b: Builder,
    grad_output: Ref,
    self: Ref,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    count_include_pad: bool,
    divisor_override: int | None,
) -> None:
    """Each input element gathers its share from the windows that hold it."""
    window = Window.of(rank, kernel_size, stride, padding, [1])
    _emit_avg_backward(b, rank, grad_output, window, count_include_pad, divisor_override, False)


def _adaptive_avg_pool_backward(rank: int, b: Builder, grad_output: Ref, self: Ref) -> None:
    """The same for windows that split the input evenly."""
    _emit_avg_backward(b, rank, grad_output, _ADAPTIVE, False, None, True)


def _emit_avg_backward(
    b: Builder, rank: int, grad_output: Ref, window: Window, include_pad: bool, divisor: int | None, adaptive: bool
) -> None:
    grad, out = volume(grad_output, rank), volume(b.out(), rank)
    if not grad.dtype.is_floating_point:
        raise Unsupported(f"dtype {grad.dtype}")
    total = out.numel
    items, chunk = b.split(total, 1024)
    sizes = window.over(grad.shape[2:])
    args: list[Any] = [grad, out, layout(out.shape, grad, out), sizes, int(include_pad), divisor or 0, total, chunk]
    b.launch(_SOURCE, "avg_pool_backward", items, args, _defines(b, grad.dtype, adaptive))


@handler("aten::max_unpool2d")
def max_unpool2d(self: torch.Tensor, indices: torch.Tensor, output_size: Sizes) -> torch.Tensor:
    """Values put back where max_pool2d found them: torch's decomposition, in the memory format of `self`."""
    decompose = torch._decomp.decomposition_table[torch.ops.aten.max_unpool2d.default]
    return decompose(self, indices, output_size).contiguous(memory_format=suggest_memory_format(self))  # type: ignore[no-any-return]


for _rank in (2, 3):
    kernel(f"aten::max_pool{_rank}d_with_indices")(partial(_max_pool, _rank))
    kernel(f"aten::max_pool{_rank}d_with_indices_backward")(partial(max_pool_backward, _rank))
    kernel(f"aten::adaptive_max_pool{_rank}d")(partial(_adaptive_max_pool, _rank))
    kernel(f"aten::adaptive_max_pool{_rank}d_backward")(partial(max_pool_backward, _rank))
    kernel(f"aten::avg_pool{_rank}d")(partial(_avg_pool, _rank))
    kernel(f"aten::avg_pool{_rank}d_backward")(partial(_avg_pool_backward, _rank))
    kernel(f"aten::_adaptive_avg_pool{_rank}d")(partial(_adaptive_avg_pool, _rank))
    kernel(f"aten::_adaptive_avg_pool{_rank}d_backward")(partial(_adaptive_avg_pool_backward, _rank))
