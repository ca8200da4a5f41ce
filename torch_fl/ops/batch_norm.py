"""Batch normalization, for any memory format.

Kernels of columns serve it where vectors run across channels, else reductions over all but the channels and one
pointwise pass.

`F.batch_norm` reaches `native_batch_norm` on this device, in training and in evaluation.
"""

from __future__ import annotations

from typing import Any

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.batch_columns import as_columns, column_gradients, normalize_columns
from ..kernels.norm import DOT, SQUARES, affine, compute_dtype, masked
from ..kernels.pointwise import emit
from ..kernels.reduce import MEAN, SUM, emit_reduce
from ..refs import Ref, Value
from ..registry import kernel


def per_channel(ref: Ref, ndim: int) -> Ref:
    """(C,) as (C, 1, ...), which broadcasts over (N, C, ...)."""
    return ref.as_strided((ref.shape[0], *(1,) * (ndim - 2)), (ref.strides[0], *(0,) * (ndim - 2)))


def _all_but_channels(x: Ref) -> list[int]:
    return [d for d in range(x.ndim) if d != 1]


def moments(b: Builder, mean: Ref, var: Ref, x: Ref) -> None:
    """Mean and variance of each channel of x."""
    dims, acc = _all_but_channels(x), compute_dtype(x.dtype)
    emit_reduce(b, mean, x, dims, MEAN, acc)
    emit_reduce(b, var, x, dims, SQUARES, acc, mean)


def gradient_sums(b: Builder, plain: Ref, along: Ref, grad_out: Ref, x: Ref, mean: Ref) -> None:
    """The sums of each channel's gradients, and of their products with x - mean."""
    dims, acc = _all_but_channels(x), compute_dtype(x.dtype)
    emit_reduce(b, plain, grad_out, dims, SUM, acc)
    emit_reduce(b, along, grad_out, dims, DOT, acc, mean, 0, x)


def _batch_norm(
    b: Builder,
    input: Ref,
    weight: Ref | None,
    bias: Ref | None,
    running: tuple[Ref | None, Ref | None],
    training: bool,
    momentum: Any,
    eps: Any,
    saves: bool = True,
) -> None:
    acc, channels = compute_dtype(input.dtype), (input.shape[1],)
    if not training:
        if running[0] is None or running[1] is None:
            raise Unsupported("evaluation without running statistics")
        mean, rstd = running[0], b.temp(channels, acc)
        emit(b, {"rstd": (rstd, "1 / sqrt(var + eps)")}, {"var": running[1]}, {"eps": eps}, acc)
        for i in (1, 2):
            if saves:
                b.new_out(i, (0,), b.outs[i].spec.dtype)
    else:
        if _in_columns(b, input, weight, bias, running, (momentum, eps)):
            return
        mean, rstd = _statistics(b, input, running, momentum, eps)
    wide = [per_channel(r, input.ndim) if r else None for r in (mean, rstd, weight, bias)]
    affine(b, input, b.out(0), *wide)  # type: ignore[arg-type]


def _in_columns(
    b: Builder,
    input: Ref,
    weight: Ref | None,
    bias: Ref | None,
    running: tuple[Ref | None, Ref | None],
    numbers: tuple[Any, Any],
) -> bool:
    """Train in columns, where the layout and all dtypes are made for them."""
    at = as_columns(b, [input, b.out(0)])
    stats, acc = (b.out(1), b.out(2)), compute_dtype(input.dtype)
    if at is None or any(s.dtype != acc for s in stats) or not (_alike(weight, bias) and _alike(*running)):
        return False
    normalize_columns(b, at, input, b.out(0), stats, (weight, bias), running, numbers)
    return True


def _alike(*refs: Ref | None) -> bool:
    """Whether the tensors that are there have one dtype and no gaps."""
    present = [r for r in refs if r is not None]
    return all(r.is_contiguous and r.dtype == present[0].dtype for r in present)


def _statistics(
    b: Builder, input: Ref, running: tuple[Ref | None, Ref | None], momentum: Any, eps: Any
) -> tuple[Ref, Ref]:
    """Mean and 1/sqrt(variance + eps) of each channel, saved as results 1 and 2; running statistics are updated."""
    acc, channels = compute_dtype(input.dtype), (input.shape[1],)
    count = input.numel // max(1, channels[0])
    saved = [b.out(i) if b.out(i).dtype == acc else b.temp(channels, acc) for i in (1, 2)]
    mean, rstd, var = *saved, b.temp(channels, acc)
    moments(b, mean, var, input)
    outs, tensors = {"rstd": (rstd, "1 / sqrt(var + eps)")}, {"var": var}
    scalars = {"eps": eps}
    if running[0] is not None and running[1] is not None:
        scalars |= {"momentum": momentum, "unbias": count / (count - 1) if count > 1 else float("nan")}
        tensors |= {"mean": mean, "running_mean": running[0], "running_var": running[1]}
        outs["running_mean"] = (running[0], "running_mean * (1 - momentum) + momentum * mean")
        outs["running_var"] = (running[1], "running_var * (1 - momentum) + momentum * var * unbias")
    emit(b, outs, tensors, scalars, acc)
    for i, ref in zip((1, 2), saved):
        if ref is not b.out(i):
            b.copy(b.out(i), ref)
    return mean, rstd


@kernel("aten::native_batch_norm", "aten::_native_batch_norm_legit")
def batch_norm(
    b: Builder,
    input: Ref,
    weight: Ref | None,
    bias: Ref | None,
    running_mean: Ref | None,
    running_var: Ref | None,
    training: bool,
    momentum: Value,
    eps: Value,
) -> None:
    """(y, mean, rstd) of each channel; in training the running statistics are updated in place."""
    _batch_norm(b, input, weight, bias, (running_mean, running_var), training, momentum, eps)


@kernel("aten::_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    b: Builder, input: Ref, weight: Ref | None, bias: Ref | None, training: bool, momentum: Value, eps: Value
) -> None:
    """(y, mean, rstd) of each channel, without running statistics."""
    _batch_norm(b, input, weight, bias, (None, None), training, momentum, eps)


@kernel("aten::_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    b: Builder,
    input: Ref,
    weight: Ref | None,
    bias: Ref | None,
    running_mean: Ref,
    running_var: Ref,
    momentum: Value,
    eps: Value,
) -> None:
    """(y, empty, empty) with the running statistics."""
    _batch_norm(b, input, weight, bias, (running_mean, running_var), False, momentum, eps)


@kernel("aten::_batch_norm_with_update")
def batch_norm_with_update(
    b: Builder,
    input: Ref,
    weight: Ref | None,
    bias: Ref | None,
    running_mean: Ref,
    running_var: Ref,
    momentum: Value,
    eps: Value,
) -> None:
    """(y, mean, rstd, reserve); the running statistics are updated in place."""
    _batch_norm(b, input, weight, bias, (running_mean, running_var), True, momentum, eps)


@kernel("aten::native_batch_norm_backward")
def batch_norm_backward(
    b: Builder,
    grad_out: Ref,
    input: Ref,
    weight: Ref | None,
    running_mean: Ref | None,
    running_var: Ref | None,
    save_mean: Ref | None,
    save_invstd: Ref | None,
    train: bool,
    eps: Value,
    output_mask: list[bool],
) -> None:
    """Gradients of input, weight and bias. Source of the formulas: Ioffe and Szegedy, Batch Normalization (2015)."""
    dx, dw, db = masked(b, output_mask)
    acc, channels, ndim = compute_dtype(input.dtype), (input.shape[1],), input.ndim
    mean, rstd = (save_mean, save_invstd) if train else (running_mean, b.temp(channels, acc))
    if mean is None or rstd is None:
        raise Unsupported("no statistics")
    at = as_columns(b, [input, grad_out, *([dx] if dx is not None else [])]) if train else None
    if at is not None and _alike(mean, rstd) and _alike(weight, dw, db):
        column_gradients(b, at, grad_out, input, (mean, rstd), weight, (dx, dw, db))
        return
    if not train and running_var is not None:
        emit(b, {"rstd": (rstd, "1 / sqrt(var + eps)")}, {"var": running_var}, {"eps": eps}, acc)
    plain, along = b.temp(channels, acc), b.temp(channels, acc)
    if train or dw is not None or db is not None:
        gradient_sums(b, plain, along, grad_out, input, mean)
    if dw is not None:
        emit(b, {"dw": (dw, "along * rstd")}, {"along": along, "rstd": rstd}, {}, acc)
    if db is not None:
        b.copy(db, plain)
    if dx is None:
        return
    tensors = {"g": grad_out, "rstd": per_channel(rstd, ndim)}
    tensors |= {"weight": per_channel(weight, ndim)} if weight else {}
    scale = "rstd * weight" if weight else "rstd"
    if not train:
        emit(b, {"dx": (dx, f"g * {scale}")}, tensors, {}, acc)
        return
    tensors |= {"x": input, "mean": per_channel(mean, ndim)}
    tensors |= {"plain": per_channel(plain, ndim), "along": per_channel(along, ndim)}
    share = 1 / max(1, input.numel // max(1, channels[0]))
    text = f"{scale} * (g - plain * share - (x - mean) * (rstd * rstd * along * share))"
    emit(b, {"dx": (dx, text)}, tensors, {"share": share}, acc)
