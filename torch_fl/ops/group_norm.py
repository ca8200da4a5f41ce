"""Group normalization: reductions over the channels and places of a group and one pointwise pass."""

from __future__ import annotations

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.norm import DOT, SQUARES, affine, compute_dtype, masked
from ..kernels.pointwise import emit
from ..kernels.reduce import MEAN, SUM, Reduction, emit_reduce
from ..refs import Ref, Value
from ..registry import kernel

_WEIGHTED = Reduction(map="v * z")


def _grouped(ref: Ref, group: int) -> Ref:
    """(N, C, ...) as (N, G, C/G, ...)."""
    n, c, *rest = ref.shape
    first, step, *strides = ref.strides
    return ref.as_strided((n, group, c // group, *rest), (first, step * (c // group), step, *strides))


def _channel_groups(ref: Ref | None, group: int, ndim: int) -> Ref | None:
    """(C,) as (G, C/G, 1, ...) of `ndim` dimensions in all but the first."""
    if ref is None:
        return None
    k, s = ref.shape[0] // group, ref.strides[0]
    return ref.as_strided((group, k, *(1,) * (ndim - 3)), (s * k, s, *(0,) * (ndim - 3)))


def _trailing(ref: Ref, ndim: int) -> Ref:
    """(N, G) as (N, G, 1, ...)."""
    return ref.as_strided((*ref.shape, *(1,) * (ndim - 2)), (*ref.strides, *(0,) * (ndim - 2)))


@kernel("aten::native_group_norm")
def group_norm(b: Builder, input: Ref, weight: Ref | None, bias: Ref | None, C: int, group: int, eps: Value) -> None:
    """(y, mean, rstd): mean and rstd [N, group] over the channels and places of each group."""
    if input.ndim < 2 or input.shape[1] != C:
        raise Unsupported("an input that is not [N, C, ...]")
    acc, x = compute_dtype(input.dtype), _grouped(input, group)
    pair, dims = (input.shape[0], group), tuple(range(2, x.ndim))
    mean, var, rstd = (b.temp(pair, acc) for _ in range(3))
    emit_reduce(b, mean, x, dims, MEAN, acc)
    emit_reduce(b, var, x, dims, SQUARES, acc, mean)
    emit(b, {"rstd": (rstd, "1 / sqrt(var + eps)")}, {"var": var}, {"eps": eps}, acc)
    scale, shift = (_channel_groups(r, group, x.ndim) for r in (weight, bias))
    affine(b, x, _grouped(b.out(0), group), _trailing(mean, x.ndim), _trailing(rstd, x.ndim), scale, shift)
    b.copy(b.out(1), mean)
    b.copy(b.out(2), rstd)


@kernel("aten::native_group_norm_backward")
def group_norm_backward(
    b: Builder,
    grad_out: Ref,
    input: Ref,
    mean: Ref,
    rstd: Ref,
    weight: Ref | None,
    C: int,
    group: int,
    output_mask: list[bool],
) -> None:
    """Gradients of input, weight and bias. Source of the formulas: Wu and He, Group Normalization (2018)."""
    if input.ndim < 2 or input.shape[1] != C:
        raise Unsupported("an input that is not [N, C, ...]")
    dx, dw, db = masked(b, output_mask)
    if dx is not None and dx.dtype != input.dtype:
        dx = b.new_out(0, input.shape, input.dtype)
    acc, g, x = compute_dtype(input.dtype), _grouped(grad_out, group), _grouped(input, group)
    n, k = input.shape[0], C // group
    places, size = tuple(range(3, x.ndim)), (n, group, k)
    plain, along = b.temp(size, acc), b.temp(size, acc)
    emit_reduce(b, plain, g, places, SUM, acc)
    emit_reduce(b, along, g, places, DOT, acc, _trailing(mean, 3).expand(size), 0, x)
    if dw is not None:
        by_channel = dw.as_strided((group, k), (k, 1))
        emit_reduce(b, by_channel, along, (0,), _WEIGHTED, acc, None, 0, _trailing(rstd, 3).expand(size))
    if db is not None:
        emit_reduce(b, db.as_strided((group, k), (k, 1)), plain, (0,), SUM, acc)
    if dx is None:
        return
    wide = _channel_groups(weight, group, x.ndim)
    sums = [b.temp((n, group), acc) for _ in range(2)]
    for total, part in zip(sums, (plain, along)):
        scale = _channel_groups(weight, group, 3)
        other = scale.expand(size) if scale else None
        emit_reduce(b, total, part, (2,), _WEIGHTED if weight else SUM, acc, None, 0, other)
    tensors = {"g": g, "x": x} | ({"weight": wide} if wide else {})
    per_group = {"mean": mean, "rstd": rstd, "plain": sums[0], "along": sums[1]}
    tensors |= {name: _trailing(ref, x.ndim) for name, ref in per_group.items()}
    share = 1 / max(1, input.numel // max(1, n * group))
    text = f"rstd * (g{' * weight' if wide else ''} - plain * share - (x - mean) * (rstd * rstd * along * share))"
    emit(b, {"dx": (_grouped(dx, group), text)}, tensors, {"share": share}, acc)
