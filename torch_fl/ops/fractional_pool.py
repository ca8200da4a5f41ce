"""Fractional max pooling in two and three dimensions (native/fractional_pool.c), and its gradient.

The random numbers are an argument of the op: results are those of the CPU for the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..builder import Builder
from ..kernels.window import layout, triple, volume
from ..refs import Layout, Ref
from ..registry import kernel
from .pool import max_pool_backward

_SOURCE = "fractional_pool.c"


def _fractional_pool(b: Builder, rank: int, self: Ref, kernel_size: Sequence[int], random_samples: Ref) -> None:
    x, y, index = volume(self, rank), volume(b.out(0), rank), volume(b.out(1), rank)
    window = triple(kernel_size, rank, 1)
    sizes = Layout(tuple(reversed(x.shape[2:])), (tuple(reversed(window)),))
    nan = "((v) != (v))" if self.dtype.is_floating_point else "0"
    # torch draws (W, H) for images and (D, H, W) for volumes
    defines = {**b.types(T=self.dtype, R=random_samples.dtype), "IS_NAN(v)": nan}
    defines["DRAW(d)"] = "(d)" if rank == 2 else "(2 - (d))"
    items, chunk = b.split(y.numel, 512)
    args: list[Any] = [x, b.contiguous(random_samples), y, index, layout(y.shape, x, y, index), sizes, rank]
    b.launch(_SOURCE, "fractional_pool", items, [*args, y.numel, chunk], defines)


@kernel("aten::fractional_max_pool2d")
def fractional_max_pool2d(b: Builder, self: Ref, kernel_size: Sequence[int], random_samples: Ref) -> None:
    """(largest elements, their places within their planes) of [N, C, H, W] or [C, H, W]."""
    _fractional_pool(b, 2, self, kernel_size, random_samples)


@kernel("aten::fractional_max_pool3d")
def fractional_max_pool3d(b: Builder, self: Ref, kernel_size: Sequence[int], random_samples: Ref) -> None:
    """The same of [N, C, D, H, W] or [C, D, H, W]."""
    _fractional_pool(b, 3, self, kernel_size, random_samples)


@kernel("aten::fractional_max_pool2d_backward")
def fractional_max_pool2d_backward(b: Builder, grad_output: Ref, self: Ref, indices: Ref) -> None:
    """Each window's gradient added to the element it took."""
    max_pool_backward(2, b, grad_output, self, indices)


@kernel("aten::fractional_max_pool3d_backward", infer=False)
def fractional_max_pool3d_backward(b: Builder, grad_output: Ref, self: Ref, indices: Ref) -> None:
    """The same for volumes."""
    b.new_out(0, self.shape, self.dtype)
    max_pool_backward(3, b, grad_output, self, indices)
