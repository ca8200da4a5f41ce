"""Embedding tables: rows looked up, and their gradient."""

from __future__ import annotations

import torch

from ..builder import Builder
from ..kernels.indexed import NO_SKIP, check_index, emit_gather, emit_scatter, row_index
from ..kernels.pointwise import emit
from ..refs import Ref
from ..registry import kernel
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
