"""torch.equal: one comparison, one reduction, one number that comes to the host."""

from __future__ import annotations

import torch

from ..registry import handler
from ..tensor import Tensor


@handler("aten::equal")
def equal(self: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape and equal elements, whatever their dtypes; NaN equals nothing."""
    if self.shape != other.shape:
        return False
    return bool(torch.eq(self, other).all().item())
