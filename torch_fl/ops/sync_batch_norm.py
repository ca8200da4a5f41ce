"""Batch normalization over several processes: the steps between which nn.SyncBatchNorm exchanges statistics.

Sources: Ioffe and Szegedy, Batch Normalization (2015); Chan, Golub, LeVeque, Updating formulae and a pairwise algorithm
for computing sample variances (1979), by which the variances of the processes are joined.
"""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..kernels.norm import affine, compute_dtype
from ..kernels.pointwise import emit
from ..kernels.reduce import SUM, emit_reduce
from ..refs import Ref, Value
from ..registry import handler, kernel
from ..spec import spec_of
from .batch_norm import gradient_sums, moments, per_channel

_ATEN = torch.ops.aten


def _like(b: Builder, x: Ref) -> Ref:
    """The result of x's shape and dtype, row-major or channels-last as x."""
    spec = spec_of(x.shape, x.strides, x.dtype, b.device)
    return b.new_out(0, x.shape, x.dtype, x.strides if spec.is_dense else None)


@kernel("aten::batch_norm_stats", infer=False)
def batch_norm_stats(b: Builder, input: Ref, eps: Value) -> None:
    """(mean, 1/sqrt(variance + eps)) of each channel: float64 for float64, else float32."""
    acc, channels = compute_dtype(input.dtype), (input.shape[1],)
    mean, rstd, var = b.new_out(0, channels, acc), b.new_out(1, channels, acc), b.temp(channels, acc)
    moments(b, mean, var, input)
    emit(b, {"rstd": (rstd, "1 / sqrt(var + eps)")}, {"var": var}, {"eps": eps}, acc)


@handler("aten::batch_norm_gather_stats_with_counts")
def batch_norm_gather_stats_with_counts(
    input: Any, mean: Any, invstd: Any, running_mean: Any, running_var: Any, momentum: float, eps: float, counts: Any
) -> tuple[Any, Any]:
    """(mean, 1/sqrt(variance + eps)) over processes, from [processes, channels] of them and how many elements each had.

    The running statistics are updated in place.
    """
    weights = _ATEN.unsqueeze.default(counts.to(mean.dtype), 1)
    n = weights.sum()
    joined = (mean * weights).sum(0) / n
    var = ((invstd.pow(-2) - eps + (mean - joined).square()) * weights).sum(0) / n
    if running_mean is not None:
        running_mean.lerp_(joined.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((var * (n / (n - 1))).to(running_var.dtype), momentum)
    return joined, (var + eps).rsqrt()


@handler("aten::batch_norm_gather_stats")
def batch_norm_gather_stats(
    input: Any, mean: Any, invstd: Any, running_mean: Any, running_var: Any, momentum: float, eps: float, count: int
) -> tuple[Any, Any]:
    """The same where each process had `count` elements."""
    counts = _ATEN.new_full.default(mean, [mean.shape[0]], count)
    return batch_norm_gather_stats_with_counts(  # type: ignore[no-any-return]
        input, mean, invstd, running_mean, running_var, momentum, eps, counts
    )


@kernel("aten::batch_norm_elemt", infer=False)
def batch_norm_elemt(b: Builder, input: Ref, weight: Ref | None, bias: Ref | None, mean: Ref, invstd: Ref) -> None:
    """(input - mean) * invstd * weight + bias, per channel."""
    wide = [per_channel(r, input.ndim) if r else None for r in (mean, invstd, weight, bias)]
    affine(b, input, _like(b, input), *wide)  # type: ignore[arg-type]


@kernel("aten::batch_norm_backward_reduce", infer=False)
def batch_norm_backward_reduce(
    b: Builder,
    grad_out: Ref,
    input: Ref,
    mean: Ref,
    invstd: Ref,
    weight: Ref | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> None:
    """(sum of gradients, of their products with input - mean, gradient of weight, of bias), per channel."""
    acc, channels = compute_dtype(input.dtype), mean.shape
    plain, along = b.new_out(0, channels, acc), b.new_out(1, channels, acc)
    given = weight.dtype if weight else input.dtype
    gradient_sums(b, plain, along, grad_out, input, mean)
    dw, db = b.new_out(2, channels, given), b.new_out(3, channels, given)
    emit(b, {"dw": (dw, "along * rstd")}, {"along": along, "rstd": invstd}, {}, acc)
    b.copy(db, plain)


@kernel("aten::batch_norm_backward_elemt", infer=False)
def batch_norm_backward_elemt(
    b: Builder,
    grad_out: Ref,
    input: Ref,
    mean: Ref,
    invstd: Ref,
    weight: Ref | None,
    sum_dy: Ref,
    sum_dy_xmu: Ref,
    count: Ref,
) -> None:
    """The gradient of the input, from sums over all processes; `count`: how many elements per channel each had."""
    acc = compute_dtype(input.dtype)
    n = b.temp((1,) * input.ndim, acc)
    emit_reduce(b, n.as_strided((), ()), count, list(range(count.ndim)), SUM, acc)
    named = {"mean": mean, "rstd": invstd, "plain": sum_dy, "along": sum_dy_xmu} | (
        {"weight": weight} if weight else {}
    )
    tensors = {"g": grad_out, "x": input, "n": n} | {k: per_channel(r, input.ndim) for k, r in named.items()}
    text = f"rstd{' * weight' if weight else ''} * (g - plain / n - (x - mean) * (rstd * rstd * along / n))"
    emit(b, {"dx": (_like(b, input), text)}, tensors, {}, acc)
