"""Norms of lists of tensors (clip_grad_norm_) and lists set to 0 (zero_grad), in one launch for all tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.lists import Step, emit_each
from ..kernels.runs import MOST, addressed, counted
from ..refs import Ref
from ..registry import kernel


@kernel("aten::_foreach_norm.Scalar", static=("ord",))
def foreach_norm(b: Builder, self: list[Ref], ord: float, dtype: Any) -> None:
    """The Euclidean norm of each tensor. Other norms, dtypes and layouts are torch's loop over single tensors."""
    dense = all(r.dtype == torch.float32 and r.extent == r.numel > 0 and 0 not in r.strides for r in self)
    if ord != 2 or dtype is not None or not dense or not (b.is_cpu and b.device.backend.addresses):
        raise Unsupported("norms that are not Euclidean, or not of dense tensors of floats")
    for start in range(0, len(self), MOST):
        part = self[start : start + MOST]
        _norms(b, part, [b.out(start + k) for k in range(len(part))])


def _norms(b: Builder, tensors: Sequence[Ref], norms: Sequence[Ref]) -> None:
    ends, count = list(accumulate(r.numel for r in tensors)), len(tensors)
    items, chunk = b.split(ends[-1], 1 << 14)
    kept = torch.float64 if b.fp64 else torch.float32
    sums = b.temp((items, count), kept)
    defines = {"MOST": MOST, "S": "double" if b.fp64 else "float"}
    args: list[Any] = [addressed(tensors), counted(ends), sums, count, chunk]
    b.launch("list_norms.c", "squares", items, args, defines)
    args = [sums, addressed(norms), count, items]
    b.launch("list_norms.c", "roots", 1, args, defines)


@kernel("aten::_foreach_zero_", elementwise=True, infer=False)
def foreach_zero(b: Builder, self: list[Ref]) -> None:
    """Every element of every tensor becomes 0."""
    real = [r for r in self if not r.dtype.is_complex]
    emit_each(b, [Step({"o": (r, "value")}, {}, {"value": 0}, r.dtype) for r in real])
    for ref in self:
        if ref.dtype.is_complex:
            b.fill(ref, 0)
