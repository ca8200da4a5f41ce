"""hash_tensor: the exclusive or of the bits of all elements along dimensions, as numbers of 64 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.reduce import Reduction, emit_reduce, reduced_dims
from ..refs import Ref
from ..registry import kernel

_XOR = Reduction(join="a ^ b")


@kernel("aten::hash_tensor")
def hash_tensor(b: Builder, self: Ref, dim: Any, mode: int) -> None:
    """Integers count as int64, floats as float64; of no elements the hash is 0."""
    if mode != 0:
        raise Unsupported(f"mode {mode}")
    out = replace(b.out(), dtype=torch.int64)
    if self.dtype.is_floating_point:
        self = replace(b.cast(self, torch.float64), dtype=torch.int64)
    emit_reduce(b, out, self, reduced_dims(self.ndim, dim), _XOR, torch.int64)
