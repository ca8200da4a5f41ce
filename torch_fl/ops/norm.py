"""Layer and RMS normalization with their gradients (native/norm_lanes.c, layer_norm*.c, norm_groups.c)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..builder import Builder
from ..kernels.norm import compute_dtype, masked
from ..kernels.norm_lanes import SHORT, join_parts, norm_lane_defines, norm_lanes
from ..kernels.row_groups import emit_norm_grads, grad_parts, launch_rows
from ..kernels.source import read_native
from ..kernels.types import ctype
from ..refs import Ref, Value
from ..registry import kernel

_GRAIN = 16384


def _rows(input: Ref, normalized_shape: Sequence[int]) -> tuple[int, int]:
    n = 1
    for s in normalized_shape:
        n *= s
    return (input.numel // n if n else 0), n


def _row_defines(b: Builder, x: Ref, stats: Ref, weight: Ref | None, bias: Ref | None, center: bool) -> dict[str, Any]:
    acc = compute_dtype(x.dtype)
    w = weight or bias or x
    defines = b.types(T=x.dtype, M=stats.dtype, WT=w.dtype, ACC_=acc)
    defines |= {"ACC": ctype(acc).compute, "CENTER": int(center), "HAS_W": int(weight is not None)}
    defines["WEIGHT(v)"] = "(v)" if weight else "1"
    defines["BIAS(v)"] = "(v)" if bias else "0"
    return defines


def normalize_rows(
    b: Builder,
    input: Ref,
    shape: Sequence[int],
    weight: Ref | None,
    bias: Ref | None,
    eps: Any,
    mean: Ref | None,
    rstd: Ref,
) -> None:
    """out(0), mean (None: rows are not centred) and rstd, one number for each row."""
    rows, n = _rows(input, shape)
    x, out = b.contiguous(input), b.out(0)
    weight = b.contiguous(weight) if weight else None
    bias = b.contiguous(b.cast(bias, weight.dtype if weight else bias.dtype)) if bias else None
    y = b.row_major(out)
    defines = _row_defines(b, x, rstd, weight, bias, mean is not None)
    tensors: list[Any] = [x, weight or bias or x, bias or weight or x, y, mean or rstd, rstd, rows]
    if b.groups:
        launch_rows(b, "norm_groups.c", "norm_groups", rows, n, [*tensors, n, eps], defines)
        b.deliver(out, y)
        return
    items, chunk = b.split(rows, max(1, _GRAIN // max(n, 1)))
    args = [*tensors, chunk, n, eps]
    lanes = norm_lane_defines(b, x, weight or bias or x, n)
    if lanes is not None:
        norm_lanes(b, "norm_short_lanes" if n <= SHORT else "norm_lanes", items, args, defines | lanes)
    else:
        b.launch(read_native("layer_norm.h") + read_native("layer_norm.c"), "layer_norm", items, args, defines)
    b.deliver(out, y)


@kernel("aten::native_layer_norm")
def layer_norm(
    b: Builder, input: Ref, normalized_shape: list[int], weight: Ref | None, bias: Ref | None, eps: Value
) -> None:
    """(y, mean, rstd) over the trailing `normalized_shape`."""
    normalize_rows(b, input, normalized_shape, weight, bias, eps, b.out(1), b.out(2))


@kernel("aten::_fused_rms_norm")
def rms_norm(b: Builder, input: Ref, normalized_shape: list[int], weight: Ref | None, eps: Value | None) -> None:
    """(y, rstd): x / sqrt(mean(x^2) + eps) * weight; eps defaults to the epsilon of the compute dtype."""
    normalize_rows(
        b, input, normalized_shape, weight, None, eps or torch.finfo(compute_dtype(input.dtype)).eps, None, b.out(1)
    )


def _rows_backward(
    b: Builder,
    grad_out: Ref,
    input: Ref,
    shape: Sequence[int],
    mean: Ref | None,
    rstd: Ref,
    weight: Ref | None,
    outs: Sequence[Ref | None],
) -> None:
    rows, n = _rows(input, shape)
    dx, dw, db = outs
    if not rows:
        for out in outs:
            if out is not None:
                b.fill(out, 0)
        return
    x, g = b.contiguous(input), b.contiguous(b.cast(grad_out, input.dtype))
    weight = b.contiguous(weight) if weight else None
    items, chunk = b.split(rows, max(1, _GRAIN // max(n, 1)))
    if b.groups:
        items = grad_parts(rows, n)
    elif not b.is_cpu:  # each work-item has a row of partial sums
        chunk = -(-rows // min(rows, 2048))
        items = -(-rows // chunk)
    acc = compute_dtype(x.dtype)
    made = [None if out is None else _part(b, out, items, n, acc) for out in (dw, db)]
    target = dx if dx is not None and dx.is_contiguous and dx.dtype == x.dtype else b.temp(x.shape, x.dtype)
    defines = _row_defines(b, x, rstd, weight, None, mean is not None)
    defines |= {k: int(o is not None) for k, o in (("WRITE_X", dx), ("SUM_W", dw), ("SUM_B", db))}
    stats = (b.contiguous(mean or rstd), b.contiguous(rstd))
    if b.groups:
        emit_norm_grads(b, g, x, stats, weight, None if dx is None else target, made, rows, n, defines)
    else:
        parts = [p or b.temp((1,), acc) for p in made]
        args: list[Any] = [g, x, *stats, weight or x, target, *parts, rows, chunk, n]
        lanes = norm_lane_defines(b, x, weight or x, n)
        if lanes is not None:
            norm_lanes(b, "norm_grad_lanes", items, args, defines | lanes)
        else:
            text = read_native("layer_norm.h") + read_native("layer_norm_backward.c")
            b.launch(text, "layer_norm_backward", items, args, defines)
    if dx is not None and target is not dx:
        b.copy(dx, target)
    join_parts(b, made, (dw, db))


def _part(b: Builder, out: Ref, parts: int, n: int, acc: torch.dtype) -> Ref:
    """Where work-items leave their shares of `out`: there if there is one, who has all of it."""
    alone = parts == 1 and out.is_contiguous and out.dtype == acc
    return out.as_strided((1, n), (n, 1)) if alone else b.temp((parts, n), acc)


@kernel("aten::native_layer_norm_backward")
def layer_norm_backward(
    b: Builder,
    grad_out: Ref,
    input: Ref,
    normalized_shape: list[int],
    mean: Ref,
    rstd: Ref,
    weight: Ref | None,
    output_mask: list[bool],
) -> None:
    """Gradients of input, weight and bias."""
    outs = masked(b, output_mask)
    _rows_backward(b, grad_out, input, normalized_shape, mean, rstd, weight, outs)


@kernel("aten::_fused_rms_norm_backward")
def rms_norm_backward(
    b: Builder,
    grad_out: Ref,
    input: Ref,
    normalized_shape: list[int],
    rstd: Ref,
    weight: Ref | None,
    output_mask: list[bool],
) -> None:
    """Gradients of input and weight."""
    outs = [*masked(b, output_mask), None]
    _rows_backward(b, grad_out, input, normalized_shape, None, rstd, weight, outs)
