"""What the normalizations share: accumulation dtype, masked results, the pointwise pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..builder import Builder
from ..refs import Ref
from .pointwise import emit
from .reduce import Reduction

SQUARES = Reduction(map="(v - s) * (v - s)", end="a / (ACC)count")
"""The variance, from the mean in `shift`."""
DOT = Reduction(map="v * (z - s)")
"""The sum of products with another tensor that is centered by `shift`."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def masked(b: Builder, mask: Sequence[bool]) -> list[Ref | None]:
    """Results by position where a mask leaves some out."""
    found: list[Ref | None] = []
    for wanted in mask:
        found.append(b.out(sum(o is not None for o in found)) if wanted else None)
    return found


def affine(b: Builder, x: Ref, out: Ref, mean: Ref, rstd: Ref, weight: Ref | None, bias: Ref | None) -> None:
    """out = (x - mean) * rstd * weight + bias, everything broadcast to x."""
    tensors = {"x": x, "mean": mean, "rstd": rstd}
    tensors |= {"weight": weight} if weight else {}
    tensors |= {"bias": bias} if bias else {}
    text = f"(x - mean) * rstd{' * weight' if weight else ''}{' + bias' if bias else ''}"
    emit(b, {"y": (out, text)}, tensors, {}, compute_dtype(x.dtype))
