"""rms_norm kept whole in training: one kernel forward, one backward.

torch composes rms_norm of six ops before a backend sees it, and gives the fused op no derivative here. The composition
still serves what the kernels do not: mixed dtypes, tensors of other classes, derivatives of the gradient, forward-mode
derivatives, and modes that look at ops.
"""

from __future__ import annotations

from typing import Any

import torch

from ..compat.untraced import untraced
from ..dispatch import boxed, op_of, planned
from ..registry import handler
from ..tensor import Tensor
from ..whole import differentiable, looked_at

_ATEN = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_FORWARD = _ATEN._fused_rms_norm.default
_BACKWARD = _ATEN._fused_rms_norm_backward.default
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def _compose(input: torch.Tensor, shape: list[int], weight: torch.Tensor | None, eps: float | None) -> torch.Tensor:
    return _ATEN.rms_norm.default._op_dk(_COMPOSITE, input, shape, weight, eps)  # type: ignore[no-any-return]


class _RmsNorm(torch.autograd.Function):
    """The fused kernels as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> Any:
        y, rstd = boxed(_FORWARD, input, shape, weight, eps)
        ctx.save_for_backward(input, weight, rstd)
        ctx.shape, ctx.eps = shape, eps
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        input, weight, rstd = ctx.saved_tensors
        mask = [ctx.needs_input_grad[0], ctx.needs_input_grad[2]]
        if torch.is_grad_enabled():  # a gradient that can itself be differentiated
            wanted = [t for t, m in zip((input, weight), mask) if m]
            y = _compose(input, ctx.shape, weight, ctx.eps)
            found = iter(torch.autograd.grad(y, wanted, grads[0], create_graph=True))
            dx, dw = (next(found) if m else None for m in mask)
        else:
            dx, dw = boxed(_BACKWARD, grads[0], input, ctx.shape, rstd, weight, mask)
        return dx, None, dw, None


def _fits(input: Any, shape: list[int], weight: Any) -> bool:
    if type(input) is not Tensor or input._spec.dtype not in _FLOATS or not input._spec.numel:
        return False
    if not shape or input._spec.shape[-len(shape) :] != tuple(shape):
        return False
    if weight is None:
        return True
    same = isinstance(weight, Tensor) and weight._spec.device is input._spec.device
    return same and weight._spec.dtype == input._spec.dtype and weight._spec.shape == tuple(shape)


def _composed_for(input: Any, shape: list[int], weight: Any) -> bool:
    """Whether the composition serves the call."""
    return not _fits(input, shape, weight) or looked_at()


def rms_norm(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the trailing `normalized_shape`, for autograd."""
    shape = list(normalized_shape)
    if _composed_for(input, shape, weight):
        return _compose(input, shape, weight, eps)
    if differentiable(input, weight):
        return _RmsNorm.apply(input, shape, weight, eps)  # type: ignore[no-untyped-call, no-any-return]
    return boxed(_FORWARD, input, shape, weight, eps)[0]  # type: ignore[no-any-return]


@handler("aten::rms_norm")
def inferred_rms_norm(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """The same where nothing is differentiated: in inference mode."""
    shape = list(normalized_shape)
    if _composed_for(input, shape, weight):
        return _compose(input, shape, weight, eps)
    return planned(op_of(_FORWARD), (input, shape, weight, eps), {})[0]  # type: ignore[no-any-return]


_library: Any = torch.library.Library("aten", "IMPL")
_library.impl("rms_norm", untraced(rms_norm), "AutogradPrivateUse1")
