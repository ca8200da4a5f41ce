"""multilabel_margin_loss, and the gradients of it and of multi_margin_loss (native/margin.c).

torch composes multi_margin_loss; its composition of the other one counts targets after the first -1.
"""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.norm import compute_dtype
from ..kernels.reduce import Reduction, emit_reduce
from ..refs import Ref, Value
from ..registry import kernel
from ..runtime.guard import code_of
from .loss import MEAN, NONE

_SOURCE = "margin.c"


def _samples(self: Ref) -> tuple[int, int]:
    """(number of samples, number of classes) of [C] or [N, C]."""
    return (self.shape[0], self.shape[1]) if self.ndim == 2 else (1, self.numel)


def _share(samples: int, classes: int, reduction: int) -> float:
    return 1 / max(1, classes * (samples if reduction == MEAN else 1))


def _gradients(b: Builder, grad_output: Ref, samples: int, reduction: int) -> tuple[Ref, int]:
    """The gradient of each sample, and the distance between them: 0 where there is one for all."""
    if reduction != NONE or samples == 1:
        return grad_output.as_strided((), ()), 0
    return b.contiguous(grad_output), 1


@kernel("aten::multi_margin_loss_backward", static=("p",), infer=False)
def multi_margin_loss_backward(
    b: Builder, grad_output: Ref, self: Ref, target: Ref, p: int, margin: Value, weight: Ref | None, reduction: int
) -> None:
    """Gradient of the scores [N, C] or [C]."""
    if p not in (1, 2) or not self.dtype.is_floating_point or target.dtype != torch.int64:
        raise Unsupported(f"dtypes {self.dtype} and {target.dtype}")
    samples, classes = _samples(self)
    out = b.new_out(0, self.shape, self.dtype)
    grad, step = _gradients(b, grad_output, samples, reduction)
    x, factors = b.contiguous(self), grad if weight is None else b.contiguous(weight)
    numbers = (classes, step, int(weight is not None), margin, _share(samples, classes, reduction))
    args: list[Any] = [grad, x, b.contiguous(target), factors, out, b.guard(), *numbers, code_of("multi_margin_loss")]
    b.launch(_SOURCE, "multi_margin_backward", samples, args, {**b.types(T=self.dtype), "P": p})


@kernel("aten::multilabel_margin_loss_forward")
def multilabel_margin_loss(b: Builder, self: Ref, target: Ref, reduction: int) -> None:
    """(loss, which classes are targets) of scores [N, C] or [C] and targets that end at the first -1."""
    if not self.dtype.is_floating_point or target.dtype != torch.int64:
        raise Unsupported(f"dtypes {self.dtype} and {target.dtype}")
    samples, classes = _samples(self)
    wide, is_target = compute_dtype(self.dtype), b.out(1)
    losses, marks = b.temp((samples,), wide), b.temp(is_target.shape, self.dtype)
    args: list[Any] = [b.contiguous(self), b.contiguous(target), losses, marks, b.guard(), classes]
    defines = {**b.types(T=self.dtype), "P": 1}
    b.launch(_SOURCE, "multilabel_margin", samples, [*args, code_of("multilabel_margin_loss")], defines)
    b.copy(is_target, marks)
    if reduction == NONE:
        return b.copy(b.out(0), losses.view(*b.out(0).shape))
    how = Reduction(end="a / (ACC)count" if reduction == MEAN else "a")
    return emit_reduce(b, b.out(0), losses, (0,), how, wide)


@kernel("aten::multilabel_margin_loss_backward", infer=False)
def multilabel_margin_loss_backward(
    b: Builder, grad_output: Ref, self: Ref, target: Ref, reduction: int, is_target: Ref
) -> None:
    """Gradient of the scores [N, C] or [C]; halves are summed in float32."""
    if not self.dtype.is_floating_point or target.dtype != torch.int64:
        raise Unsupported(f"dtypes {self.dtype} and {target.dtype}")
    samples, classes = _samples(self)
    out, wide = b.new_out(0, self.shape, self.dtype), compute_dtype(self.dtype)
    sums = out if out.dtype == wide else b.temp(out.shape, wide)
    grad, step = _gradients(b, grad_output, samples, reduction)
    tensors = (b.contiguous(self), b.contiguous(target), b.contiguous(b.cast(is_target, self.dtype)))
    numbers = (classes, step, _share(samples, classes, reduction), code_of("multilabel_margin_loss"))
    args: list[Any] = [grad, *tensors, sums, b.guard(), *numbers]
    b.launch(_SOURCE, "multilabel_margin_backward", samples, args, {**b.types(T=self.dtype), "P": 1})
    b.deliver(out, sums)
