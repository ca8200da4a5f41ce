"""Gradient of weight normalization, as the ops of torch's own formula for it."""

from __future__ import annotations

from typing import Any

import torch

from ..registry import handler


@handler("aten::_weight_norm_interface_backward")
def weight_norm_backward(
    grad_w: torch.Tensor, saved_v: torch.Tensor, saved_g: torch.Tensor, saved_norms: torch.Tensor, dim: int
) -> Any:
    """Gradients of (v, g). torch's formula, which second derivatives use, is the same in ops that have kernels."""
    return torch.ops.aten._weight_norm_differentiable_backward.default(grad_w, saved_v, saved_g, saved_norms, dim)
