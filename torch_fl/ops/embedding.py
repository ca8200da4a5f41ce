"""Embedding tables: rows looked up, and their gradient; and one-hot vectors, the rows of the simplest table."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..dispatch import op_of, planned
from ..kernels.indexed import NO_SKIP, along, check_index, emit_gather, emit_scatter, row_index
from ..kernels.pointwise import emit
from ..refs import Ref
from ..registry import find_overload, handler, kernel
from ..runtime.guard import TEXTS
from ..tensor import Tensor
from .random import require
from .scatter import scalar


@kernel("aten::embedding")
def embedding(b: Builder, weight: Ref, indices: Ref) -> None:
    """out[..., :] = weight[indices[...], :]."""
    check_index(indices)
    flat = b.contiguous(indices).view(indices.numel)
    out = b.out().view(indices.numel, weight.shape[1])
    emit_gather(b, out, weight, row_index("embedding", weight, 0, flat))


@kernel("aten::embedding_dense_backward")
def embedding_dense_backward(
    b: Builder, grad_output: Ref, indices: Ref, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> None:
    """out[v] = sum of the rows of the gradient whose index is v; none for `padding_idx`.

    With `scale_grad_by_freq` each row is divided by how often its index occurs.
    """
    check_index(indices)
    out = b.out()
    width = out.shape[1]
    flat = b.contiguous(indices).view(indices.numel)
    rows = b.reshape(grad_output, indices.numel, width)
    skip = padding_idx if padding_idx >= 0 else NO_SKIP
    b.fill(out, 0)
    place = row_index("embedding_dense_backward", out, 0, flat)
    emit_scatter(b, out, rows, place, [0], "sum", skip)
    if not scale_grad_by_freq:
        return
    counts = b.temp((num_weights,), torch.int32)
    b.fill(counts, 0)
    place = row_index("embedding_dense_backward", counts, 0, flat)
    emit_scatter(b, counts, scalar(b, 1, torch.int32), place, [0], "sum")
    compute = torch.float64 if out.dtype == torch.float64 else torch.float32
    emit(b, {"o": (out, "c > 1 ? x / c : x")}, {"x": out, "c": counts.unsqueeze(1).expand(out.shape)}, {}, compute)


@kernel("aten::one_hot", static=("num_classes",), infer=False)
def one_hot(b: Builder, self: Ref, num_classes: int) -> None:
    """[..., num_classes]: 1 at the place that each index names, 0 elsewhere."""
    out = b.new_out(0, (*self.shape, num_classes), torch.int64)
    b.fill(out, 0)
    place = along("one_hot", out, out.ndim - 1, self.unsqueeze(self.ndim))
    emit_scatter(b, out, scalar(b, 1, torch.int64), place, [])


@handler("aten::one_hot")
def checked_one_hot(self: Tensor, num_classes: int = -1) -> Any:
    """one_hot; waits for the device where the number of classes has to be found. Raises RuntimeError."""
    require(self.dtype == torch.int64, "one_hot is only applicable to index tensor of type LongTensor.")
    require(num_classes > 0 or self.numel() > 0, "Can not infer total number of classes from empty tensor.")
    if num_classes == -1:
        low, high = (int(bound) for bound in torch.ops.aten.aminmax.default(self))
        require(low >= 0, "Class values must be non-negative.")
        num_classes = high + 1
    require(num_classes > 0, TEXTS["one_hot"])
    return planned(_ONE_HOT, (self, num_classes), {})


_ONE_HOT = op_of(find_overload("aten::one_hot"))
