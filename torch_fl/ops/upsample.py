"""Upsampling (nearest, exact, linear, cubic) and reflection and replication padding, one to three dimensions.

One kernel serves all: per dimension, an output element reads a few inputs with weights; see native/upsample.c. Its
transpose is the backward. Method and edge rules: torch's UpSample.h.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..builder import Builder
from ..errors import unsupported_dtype
from ..kernels.types import raw_dtype, widened
from ..kernels.window import Triple, layout, triple, volume
from ..refs import Layout, Ref
from ..registry import Kernel, add_kernel, find_overload
from ..schema import params_of

_SOURCE = "upsample.c"
_MODES = {"nearest": 0, "exact": 1, "linear": 2, "cubic": 3, "reflect": 4, "replicate": 5}
_TAPS = {"linear": 2, "cubic": 4}

# op name without rank and suffix -> mode; the linear ones have a name per rank
_UPSAMPLE = {
    "upsample_nearest1d": ("nearest", 1), "upsample_nearest2d": ("nearest", 2), "upsample_nearest3d": ("nearest", 3),
    "_upsample_nearest_exact1d": ("exact", 1), "_upsample_nearest_exact2d": ("exact", 2),
    "_upsample_nearest_exact3d": ("exact", 3), "upsample_linear1d": ("linear", 1), "upsample_bilinear2d": ("linear", 2),
    "upsample_trilinear3d": ("linear", 3), "upsample_bicubic2d": ("cubic", 2),
    "reflection_pad1d": ("reflect", 1), "reflection_pad2d": ("reflect", 2), "reflection_pad3d": ("reflect", 3),
    "replication_pad1d": ("replicate", 1), "replication_pad2d": ("replicate", 2), "replication_pad3d": ("replicate", 3),
}  # fmt: skip


class Resample:
    """The kernel function of one op of the table, and of its backward."""

    def __init__(self, mode: str, rank: int, backward: bool) -> None:
        self.mode = mode
        self.rank = rank
        self.backward = backward

    def __call__(self, b: Builder, /, **arguments: Any) -> None:
        align = bool(arguments.get("align_corners"))
        scales = [v for n, v in arguments.items() if n.startswith("scales")]
        pads = arguments.get("padding") or [0] * 2 * self.rank
        front = triple([pads[2 * (self.rank - 1 - d)] for d in range(self.rank)], self.rank, 0)
        small, large = (b.out(), arguments["grad_output"]) if self.backward else (arguments["self"], b.out())
        inner, outer = volume(small, self.rank), volume(large, self.rank)
        if self.mode in _TAPS and not inner.dtype.is_floating_point:
            raise unsupported_dtype(inner.dtype)
        rates = self._rates(inner, outer, align, scales)
        (self._gather_back if self.backward else self._gather)(b, inner, outer, front, rates, align)

    def _rates(self, inner: Ref, outer: Ref, align: bool, scales: list[float | None]) -> list[float]:
        """Input elements per output element, innermost dimension first, in the precision torch computes them in."""
        kind: Any = np.float64 if inner.dtype == torch.float64 and self.mode in _TAPS else np.float32
        given: list[float | None] = [None] * (3 - self.rank)
        given += scales or [None] * self.rank
        rates = [rate_of(kind, *v, align) for v in zip(inner.shape[2:], outer.shape[2:], given)]
        return rates[::-1]

    def _defines(self, b: Builder, dtype: torch.dtype) -> dict[str, object]:
        taps = _TAPS.get(self.mode, 1)
        types = b.types(T=dtype)
        acc = types["T_acc"] if dtype.is_floating_point else "float"
        d, h, w = triple([taps] * self.rank, self.rank, 1)
        return {**types, "A": acc, "MODE": _MODES[self.mode], "TD": d, "TH": h, "TW": w}

    def _gather(self, b: Builder, x: Ref, y: Ref, front: Triple, rates: list[float], align: bool) -> None:
        if self.mode not in _TAPS:  # elements only move: as raw bits
            raw = raw_dtype(x.dtype.itemsize)
            x, y = replace(x, dtype=raw), replace(y, dtype=raw)
        total = y.numel
        items, chunk = b.split(total, 1024)
        args: list[Any] = [x, y, layout(y.shape, x, y), _sizes(x, front), *rates, int(align), total, chunk]
        b.launch(_SOURCE, "resample", items, args, self._defines(b, x.dtype))

    def _gather_back(self, b: Builder, out: Ref, grad: Ref, front: Triple, rates: list[float], align: bool) -> None:
        """Each output gradient spread over the inputs it came from; halves are summed in float32."""
        wide = widened(grad.dtype)
        if not wide.is_floating_point:
            raise unsupported_dtype(wide)
        target = b.row_major(out, wide)
        planes = out.shape[0] * out.shape[1]
        if out.numel:
            items, chunk = b.split(planes, max(1, 4096 // (out.numel // planes)))
            args: list[Any] = [
                grad,
                target,
                layout(grad.shape, grad),
                _sizes(out, front),
                *rates,
                int(align),
                planes,
                chunk,
            ]
            b.launch(_SOURCE, "resample_backward", items, args, self._defines(b, grad.dtype))
        b.deliver(out, target)


def rate_of(kind: Any, small: int, large: int, scale: float | None, align: bool) -> float:
    """Input elements per output element of one dimension, in the precision of `kind`."""
    if align:
        return float(kind(small - 1) / kind(large - 1)) if large > 1 else 0.0
    if scale is not None and scale > 0:
        return float(kind(1.0 / scale))
    return float(kind(small) / kind(large)) if large else 0.0


def _sizes(inner: Ref, front: Triple) -> Layout:
    return Layout(tuple(reversed(inner.shape[2:])), (tuple(reversed(front)),))


def _register(name: str, mode: str, rank: int, backward: bool) -> None:
    func = find_overload(name)
    names = tuple(p.name for p in params_of(func))
    static = tuple(n for n in names if n.startswith("scales"))
    add_kernel(func, Kernel(name, Resample(mode, rank, backward), "", static, False, True, names))


for _name, (_mode, _rank) in _UPSAMPLE.items():
    _register(f"aten::{_name}", _mode, _rank, False)
    _register(f"aten::{_name}_backward", _mode, _rank, True)
