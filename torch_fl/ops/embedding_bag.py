"""Bags of embeddings (native/embedding_bag.c), their gradients, and tables whose rows are limited to a norm.

The gradient of the table is that of a plain embedding: each index receives the gradient of its bag, scaled.
"""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.indexed import along, check_index, emit_gather, emit_scatter, row_index
from ..kernels.norm import compute_dtype
from ..kernels.pointwise import emit
from ..kernels.reduce import Reduction, emit_reduce
from ..refs import Ref, Value
from ..registry import kernel
from ..runtime.guard import code_of
from .distance import norm_macros
from .scatter import scalar, start_from

SUM, MEAN, MAX = 0, 1, 2
"""torch's numbers for mode="sum", "mean", "max"."""
_SOURCE = "embedding_bag.c"
_NO_INDEX = -(1 << 62)
"""In the place of an index to skip; -1 would hide a wrong index."""
_TILE = 32


@kernel("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(
    b: Builder, weight: Ref, indices: Ref, offsets: Ref, mode: int, per_sample_weights: Ref | None,
    include_last_offset: bool, padding_idx: int,
) -> None:  # fmt: skip
    """(bags [B, D], bag of each index [N], indices per bag, row of each maximum [B, D]) of a table [V, D].

    Indices equal to `padding_idx` do not count; without indices a bag is 0.
    """
    check_index(indices)
    check_index(offsets)
    (out, bag_of, sizes, best), (n, (bags, width)) = (b.out(i) for i in range(4)), (indices.numel, b.out(0).shape)
    idx, starts, table = b.contiguous(indices), b.contiguous(offsets), b.contiguous(weight)
    skip = padding_idx if padding_idx >= 0 else _NO_INDEX
    types = {"TI": idx.dtype, "TO": starts.dtype, "TB": bag_of.dtype, "T": weight.dtype}
    tile = _TILE if b.is_cpu else 1
    unused = {"NORM(s, d)": "(s)", "END(s)": "(s)"}
    defines = {
        **b.types(**types),
        **unused,
        "MODE": mode,
        "WEIGHTED": int(per_sample_weights is not None),
        "TILE": tile,
    }
    factors = table if per_sample_weights is None else b.contiguous(per_sample_weights)
    b.fill(sizes, 0)
    codes = [code_of(name) for name in ("embedding_bag", "embedding_bag start", "embedding_bag end")]
    given: list[Any] = [idx, starts, bag_of, sizes, b.guard(), n, bags, starts.numel, skip, *codes]
    b.launch(_SOURCE, "bags", bags, given, defines)
    tiles = -(-width // tile)
    args: list[Any] = [
        table, idx, starts, factors, out, best, b.guard(), n, bags, weight.shape[0], width, tiles, skip,
        codes[0],
    ]  # fmt: skip
    b.launch(_SOURCE, "embedding_bag", bags * tiles, args, defines)


def _rows_of_bags(b: Builder, grad: Ref, offset2bag: Ref) -> Ref:
    """For each index the gradient of its bag: [N, D]."""
    rows = b.temp((offset2bag.numel, grad.shape[1]), grad.dtype)
    emit_gather(b, rows, grad, row_index("embedding_bag_backward", grad, 0, offset2bag))
    return rows


@kernel("aten::_embedding_bag_dense_backward")
def embedding_bag_backward(
    b: Builder, grad: Ref, indices: Ref, offset2bag: Ref, bag_size: Ref, maximum_indices: Ref, num_weights: int,
    scale_grad_by_freq: bool, mode: int, per_sample_weights: Ref | None, padding_idx: int,
) -> None:  # fmt: skip
    """Gradient of the table [V, D]: rows of bags added up by index, or put where the maxima were."""
    out, work = b.out(), compute_dtype(grad.dtype)
    if mode == MAX:
        return _maxima_backward(b, out, grad, maximum_indices, bag_size)
    rows = _rows_of_bags(b, grad, offset2bag)
    if mode == MEAN:
        counts = b.temp((indices.numel,), bag_size.dtype)
        emit_gather(b, counts, bag_size, row_index("embedding_bag_backward", bag_size, 0, offset2bag))
        tensors = {"g": rows, "n": counts.unsqueeze(1).expand(rows.shape)}
        emit(b, {"g": (rows, "n > 1 ? g / n : g")}, tensors, {}, work)
    if per_sample_weights is not None:
        tensors = {"g": rows, "f": per_sample_weights.unsqueeze(1).expand(rows.shape)}
        emit(b, {"g": (rows, "g * f")}, tensors, {}, work)
    options = (num_weights, padding_idx, scale_grad_by_freq)
    b.call("aten::embedding_dense_backward", rows, indices, *options, out=out)
    return None


@kernel("aten::_embedding_bag_backward")
def any_embedding_bag_backward(
    b: Builder, grad: Ref, indices: Ref, offset2bag: Ref, bag_size: Ref, maximum_indices: Ref, num_weights: int,
    scale_grad_by_freq: bool, mode: int, sparse: bool, per_sample_weights: Ref | None, padding_idx: int,
) -> None:  # fmt: skip
    """The same by torch's other name."""
    if sparse:
        raise Unsupported("a sparse gradient")
    bags = (offset2bag, bag_size, maximum_indices)
    options = (scale_grad_by_freq, mode, per_sample_weights, padding_idx)
    embedding_bag_backward(b, grad, indices, *bags, num_weights, *options)


def _maxima_backward(b: Builder, out: Ref, grad: Ref, places: Ref, sizes: Ref) -> None:
    """The gradient of each maximum at its place; bags without indices have none."""
    b.fill(out, 0)
    if not places.numel:
        return
    source = b.temp(grad.shape, grad.dtype)
    counts = sizes.narrow(0, 0, grad.shape[0]).unsqueeze(1).expand(grad.shape)
    emit(b, {"o": (source, "n > 0 ? g : 0")}, {"g": grad, "n": counts}, {}, compute_dtype(grad.dtype))
    emit_scatter(b, out, source, along("embedding_bag_backward", out, 0, places), [0], "sum")


@kernel("aten::_embedding_bag_per_sample_weights_backward")
def per_sample_weights_backward(
    b: Builder, grad: Ref, weight: Ref, indices: Ref, offset2bag: Ref, padding_idx: int
) -> None:
    """[N]: for each index, the product of its row and the gradient of its bag."""
    out, work = b.out(), compute_dtype(grad.dtype)
    gradients = _rows_of_bags(b, grad, offset2bag)
    rows = b.temp(gradients.shape, weight.dtype)
    emit_gather(b, rows, weight, row_index("embedding_bag_backward", weight, 0, b.contiguous(indices)))
    emit_reduce(b, out, gradients, (1,), Reduction(map="(ACC)v * (ACC)z"), work, other=rows)
    if padding_idx >= 0:
        padding = {"i": indices, "o": out}
        emit(b, {"o": (out, "i == skip ? 0 : o")}, padding, {"skip": padding_idx}, work)


@kernel("aten::embedding_renorm", static=("norm_type",), elementwise=True)
def embedding_renorm(b: Builder, self: Ref, indices: Ref, max_norm: Value, norm_type: float) -> None:
    """Rows of the table [V, D] that are named by `indices` and longer than `max_norm` are scaled down to it."""
    check_index(indices)
    table, flat = start_from(b, self), b.reshape(indices, indices.numel)
    marked = b.temp((table.shape[0],), torch.int32)
    b.fill(marked, 0)
    place = row_index("embedding_renorm_", marked, 0, flat)
    emit_scatter(b, marked, scalar(b, 1, torch.int32), place, [0])
    step, end = norm_macros(norm_type)
    defines = {**b.types(T=table.dtype), "NORM(s, d)": step, "END(s)": end}
    unused = {"TI": "int", "TO": "int", "TB": "int", "MODE": SUM, "WEIGHTED": 0, "TILE": 1}
    numbers: list[Any] = [table.shape[1], *table.strides, max_norm, float(norm_type)]
    b.launch(_SOURCE, "renorm", table.shape[0], [table, marked, *numbers], defines | unused)
