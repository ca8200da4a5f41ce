"""Upsampling with antialiasing (bilinear and bicubic), as two passes over one dimension each (native/antialias.c)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from ..builder import Builder
from ..errors import unsupported_dtype
from ..kernels.norm import compute_dtype
from ..refs import Ref
from ..registry import kernel
from .upsample import rate_of

_SOURCE = "antialias.c"
_TILE = 32
_FILTERS = {"bilinear": ("linear_filter", 1), "bicubic": ("cubic_filter", 2)}


def _defines(b: Builder, dtype: torch.dtype, mode: str) -> dict[str, object]:
    if not dtype.is_floating_point:
        raise unsupported_dtype(dtype)
    types, (function, reach) = b.types(T=dtype), _FILTERS[mode]
    tile = _TILE if b.is_cpu else 1
    return {**types, "A": types["T_acc"], "FILTER": function, "REACH": reach, "TILE": tile}


def _rates(small: Ref, large: Ref, align: bool, scales: tuple[float | None, float | None]) -> list[float]:
    """Input elements per output element, of height and width."""
    kind: Any = np.float64 if small.dtype == torch.float64 else np.float32
    return [rate_of(kind, small.shape[d], large.shape[d], scales[d - 2], align) for d in (2, 3)]


def _shrink(b: Builder, mode: str, x: Ref, y: Ref, dim: int, rate: float) -> None:
    """y = x resampled along `dim` of [N, C, H, W]; both row-major."""
    inner = x.shape[3] if dim == 2 else 1
    lines = y.numel // max(1, inner)
    args: list[Any] = [x, y, x.shape[dim], y.shape[dim], inner, rate]
    b.launch(_SOURCE, "shrink", lines, args, _defines(b, x.dtype, mode))


def _spread(b: Builder, mode: str, grad: Ref, dx: Ref, dim: int, rate: float) -> None:
    """The transpose of `_shrink`; `dx` is row-major in the compute dtype."""
    inner = grad.shape[3] if dim == 2 else 1
    columns = grad.shape[0] * grad.shape[1] * (inner if dim == 2 else grad.shape[2])
    args: list[Any] = [grad, dx, dx.shape[dim], grad.shape[dim], inner, rate]
    b.launch(_SOURCE, "shrink_backward", columns, args, _defines(b, grad.dtype, mode))


def _upsample(
    mode: str, b: Builder, self: Ref, align_corners: bool, scales_h: float | None, scales_w: float | None
) -> None:
    """[N, C, H, W] resized to the result's height and width, each output a mean over the inputs it stands for."""
    out = b.out()
    rates = _rates(self, out, align_corners, (scales_h, scales_w))
    between = b.temp((*out.shape[:2], self.shape[2], out.shape[3]), out.dtype)
    y = b.row_major(out)
    _shrink(b, mode, b.contiguous(self), between, 3, rates[1])
    _shrink(b, mode, between, y, 2, rates[0])
    b.deliver(out, y)


def _upsample_backward(
    mode: str, b: Builder, grad_output: Ref, align_corners: bool, scales_h: float | None, scales_w: float | None
) -> None:
    """Gradient of the input; halves are summed in float32."""
    out, wide = b.out(), compute_dtype(grad_output.dtype)
    rates = _rates(out, grad_output, align_corners, (scales_h, scales_w))
    between = b.temp((*out.shape[:2], out.shape[2], grad_output.shape[3]), wide)
    dx = b.row_major(out, wide)
    _spread(b, mode, b.contiguous(grad_output), between, 2, rates[0])
    _spread(b, mode, between, dx, 3, rates[1])
    b.deliver(out, dx)


for _mode in _FILTERS:
    _static = ("scales_h", "scales_w")
    kernel(f"aten::_upsample_{_mode}2d_aa", static=_static)(partial(_upsample, _mode))
    kernel(f"aten::_upsample_{_mode}2d_aa_backward", static=_static)(partial(_upsample_backward, _mode))
