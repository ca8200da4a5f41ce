"""F.grid_sample in two and three dimensions, forward and backward: linear, nearest and cubic, every padding mode.

Rules for coordinates and edges: torch's GridSampler.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..builder import Builder
from ..errors import unsupported_dtype
from ..kernels.types import widened
from ..kernels.window import layout, triple, volume
from ..refs import Layout, Ref
from ..registry import kernel

_SOURCE = "grid.c"
_LINEAR, _NEAREST, _CUBIC = range(3)
_TAPS = {_LINEAR: 2, _NEAREST: 1, _CUBIC: 4}


class _Sampling:
    """What all three kernels need: taps, layouts of image and grid."""

    def __init__(self, b: Builder, rank: int, image: Ref, grid: Ref, result: Ref, mode: int) -> None:
        if not image.dtype.is_floating_point or grid.dtype != image.dtype:
            raise unsupported_dtype(image.dtype)
        types = b.types(T=image.dtype)
        d, h, w = triple([_TAPS[mode]] * rank, rank, 1)
        taps = {"MODE": mode, "TD": d, "TH": h, "TW": w, "FLAT": int(rank == 2)}
        self.defines = {**types, "A": types["T_acc"], **taps}
        x, y = volume(image, rank), volume(result, rank)
        places = grid if rank == 3 else grid.unsqueeze(1)
        self.per_sample = y.numel // (y.shape[0] * y.shape[1]) if y.numel else 0
        self.samples, self.channels = y.shape[:2]
        # places and images as (c, n, d, h, w), the component of the grid in the place of the channel
        order = (1, 0, 2, 3, 4)
        walked = places.permute(4, 0, 1, 2, 3)
        self.m: Layout = layout([y.shape[i] for i in order], walked, y.permute(*order))
        self.e: Layout = layout([x.shape[i] for i in order], x.permute(*order))


def _sample(
    rank: int, b: Builder, input: Ref, grid: Ref, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> None:
    """input [N, C, ...] at grid [N, ..., rank] in [-1, 1]."""
    out = b.out()
    s = _Sampling(b, rank, input, grid, out, interpolation_mode)
    total = s.samples * s.per_sample
    items, chunk = b.split(total, 256)
    args: list[Any] = [input, grid, out, s.m, s.e, padding_mode, int(align_corners), total, chunk]
    b.launch(_SOURCE, "grid_sample", items, args, s.defines)


def _sample_backward(
    rank: int,
    b: Builder,
    grad_output: Ref,
    input: Ref,
    grid: Ref,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> None:
    """Gradients of input (if output_mask asks for it) and grid."""
    s = _Sampling(b, rank, input, grid, grad_output, interpolation_mode)
    rules: list[Any] = [s.m, s.e, padding_mode, int(align_corners)]
    if output_mask[0]:
        _image_grad(b, s, b.out(0), grad_output, grid, rules)
    out = b.out(int(output_mask[0]))
    target = b.row_major(out)
    total = s.samples * s.per_sample
    items, chunk = b.split(total, 256)
    args: list[Any] = [grad_output, input, grid, target, *rules, total, chunk]
    b.launch(_SOURCE, "grid_sample_grid", items, args, s.defines)
    b.deliver(out, target)


def _image_grad(b: Builder, s: _Sampling, out: Ref, grad: Ref, grid: Ref, rules: list[Any]) -> None:
    wide = widened(grad.dtype)
    target = b.row_major(out, wide)
    if out.numel:
        planes = s.samples * s.channels
        items, chunk = b.split(planes, 1)
        b.launch(_SOURCE, "grid_sample_input", items, [grad, grid, target, *rules, planes, chunk], s.defines)
    b.deliver(out, target)


for _rank in (2, 3):
    kernel(f"aten::grid_sampler_{_rank}d")(partial(_sample, _rank))
    kernel(f"aten::grid_sampler_{_rank}d_backward")(partial(_sample_backward, _rank))
