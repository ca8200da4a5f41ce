"""softmax and log_softmax along a dimension, and their gradients (native/softmax_*.c, native/lanes.h)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..builder import Builder
from ..kernels.pointwise import merge
from ..kernels.row_groups import SHORT, launch_rows
from ..kernels.source import read_native
from ..kernels.types import ctype
from ..kernels.vectors import lane_defines, lane_source
from ..refs import Layout, Ref
from ..registry import kernel

_TILE = 256
_GRAIN = 16384
_SHORT = 32
"""Rows of fewer elements are not worth explicit vectors."""


def _along(b: Builder, direction: str, refs: Sequence[Ref], dim: int, logarithm: bool) -> None:
    """Launch `direction` ("forward", "backward") over refs of one shape: inputs first, the result last."""
    refs = [r if r.ndim else r.view(1) for r in refs]
    dim %= refs[0].ndim
    n, steps = refs[0].shape[dim], [r.strides[dim] for r in refs]
    kept = [r.select(dim, 0) for r in refs]
    sizes, strides = merge(kept[0].shape, [r.strides for r in kept])
    columns = kept[0].numel > 1 and strides[0][0] < steps[0] and n > 1
    tile = _TILE if b.is_cpu else 1
    acc = torch.float64 if refs[-1].dtype == torch.float64 else torch.float32
    defines = b.types(ACC_=acc, T=refs[0].dtype, S=refs[-2].dtype, U=refs[-1].dtype)
    inner = [s[0] for s in strides] if columns else steps
    defines |= {"ACC": ctype(acc).compute, "EXP": "exp" if acc == torch.float64 else "fast_exp_down"}
    defines |= {"LOGARITHM": int(logarithm), "TILE": tile}
    defines["UNIT"] = int(all(s == 1 for s in inner))
    units = kept[0].numel
    if b.groups and not columns and n > SHORT:
        args = [*refs, units, n, *steps, Layout.of(sizes, strides)]
        launch_rows(b, "softmax_groups.c", f"{direction}_groups", units, n, args, defines)
        return
    if (
        not columns
        and defines["UNIT"]
        and n >= _SHORT
        and _in_lanes(b, direction, refs, acc, logarithm, (n, units, Layout.of(sizes, strides)))
    ):
        return
    if columns:
        units = -(-sizes[0] // tile) * (units // sizes[0]) if units else 0
    items, chunk = b.split(units, max(1, _GRAIN // max(1, n * (tile if columns else 1))))
    layout = Layout.of(sizes, strides)
    walk = "columns" if columns else "rows"
    text = read_native("fastmath.h") + read_native("softmax.h") + read_native(f"softmax_{walk}.c")
    b.launch(text, f"{direction}_{walk}", items, [*refs, units, chunk, n, *steps, layout], defines)


def _in_lanes(
    b: Builder, direction: str, refs: Sequence[Ref], acc: torch.dtype, logarithm: bool, rows: tuple[int, int, Layout]
) -> bool:
    """Contiguous rows in explicit vectors, where there are such for these dtypes."""
    defines = lane_defines(b, acc, T=refs[0].dtype, S=refs[-2].dtype, R=refs[-1].dtype)
    if defines is None:
        return False
    defines |= {"LOGARITHM": int(logarithm), "KEEP": int(refs[-1].dtype == acc and not logarithm)}
    n, units, layout = rows
    items, chunk = b.split(units, max(1, _GRAIN // n))
    b.launch(lane_source("softmax_lanes.c"), f"{direction}_lanes", items, [*refs, units, chunk, n, layout], defines)
    return True


@kernel("aten::_softmax")
def softmax(b: Builder, self: Ref, dim: int) -> None:
    """exp(x - max) / sum(exp(x - max)) along dim; a half becomes a float where half_to_float says so."""
    _along(b, "forward", [self, b.out()], dim, False)


@kernel("aten::_log_softmax")
def log_softmax(b: Builder, self: Ref, dim: int) -> None:
    """x - max - log(sum(exp(x - max))) along dim."""
    _along(b, "forward", [self, b.out()], dim, True)


@kernel("aten::_softmax_backward_data")
def softmax_backward(b: Builder, grad_output: Ref, output: Ref, dim: int) -> None:
    """output * (grad - sum(grad * output)) along dim."""
    _along(b, "backward", [grad_output, output, b.out()], dim, False)


@kernel("aten::_log_softmax_backward_data")
def log_softmax_backward(b: Builder, grad_output: Ref, output: Ref, dim: int) -> None:
    """grad - exp(output) * sum(grad) along dim."""
    _along(b, "backward", [grad_output, output, b.out()], dim, True)
