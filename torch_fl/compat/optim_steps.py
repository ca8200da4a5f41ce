"""Adam, AdamW and SGD in their foreach form as one pass over memory, by the kernels of their fused form.

torch writes a foreach step as ten ops over all parameters, each of which reads and writes everything, with temporaries.
On a device the same numbers come from one launch. A step of another kind (several devices, capturable, learning rates
on the device, parameters of different ages, complex or sparse gradients) is torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import Unsupported

Run = Callable[..., bool]
"""Called like torch's `_multi_tensor_...`; whether it made the step."""


def _ours(kind: Any, *lists: Sequence[Any]) -> bool:
    """Whether all tensors are of class `kind`, on one device, and the lists agree in their dtypes."""
    if not all(type(t) is kind for tensors in lists for t in tensors):
        return False
    device = lists[0][0]._spec.device
    return all(
        t._spec.device is device and t._spec.dtype is first._spec.dtype and t._spec.dtype.is_floating_point
        for tensors in lists
        for t, first in zip(tensors, lists[0])
    )


def _made(overload: Any, *args: Any, **kwargs: Any) -> bool:
    from ..dispatch import call

    try:
        call(overload, args, kwargs)
    except Unsupported:
        return False
    return True


def adam(
    kind: Any, params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, max_exp_avg_sqs: Any, state_steps: Any,
    grad_scale: Any, found_inf: Any, *, amsgrad: bool, has_complex: bool, beta1: Any, beta2: Any, lr: Any,
    weight_decay: float, eps: float, maximize: bool, capturable: bool, differentiable: bool,
    decoupled_weight_decay: bool,
) -> bool:  # fmt: skip
    """torch.optim.adam._multi_tensor_adam; AdamW is Adam with `decoupled_weight_decay`."""
    numbers = (lr, beta1, beta2)
    if capturable or has_complex or differentiable or not all(isinstance(v, (int, float)) for v in numbers):
        return False
    lists = [params, grads, exp_avgs, exp_avg_sqs, *([max_exp_avg_sqs] if amsgrad else [])]
    if grad_scale is not None or found_inf is not None or not _ours(kind, *lists):
        return False
    step, *others = {s.item() for s in state_steps}
    if others:
        return False
    rest = (max_exp_avg_sqs if amsgrad else [], step + 1, lr, beta1, beta2, weight_decay, eps)
    if not _made(
        torch.ops.torch_fl_impl.adam_steps.default, *lists[:4], *rest, amsgrad, maximize, decoupled_weight_decay
    ):
        return False
    one = torch.ones((), device="cpu") if state_steps[0].device.type == "cpu" else 1
    torch._foreach_add_(state_steps, one)
    return True


def sgd(
    kind: Any, params: Any, grads: Any, momentum_buffer_list: Any, grad_scale: Any, found_inf: Any, *,
    weight_decay: float, momentum: float, lr: Any, dampening: float, nesterov: bool, maximize: bool,
    has_sparse_grad: bool,
) -> bool:  # fmt: skip
    """torch.optim.sgd._multi_tensor_sgd; the first buffers of momentum are put into the list."""
    if has_sparse_grad or grad_scale is not None or found_inf is not None or not isinstance(lr, (int, float)):
        return False
    buffers: list[Any] = momentum_buffer_list if momentum else []
    first = bool(buffers) and all(b is None for b in buffers)
    if first:
        buffers = [torch.empty_like(g) for g in grads]
    if not _ours(kind, params, grads, *([buffers] if momentum else [])):
        return False
    rest = (weight_decay, momentum, lr, dampening, nesterov, maximize, first)
    if not _made(torch.ops.torch_fl_impl.sgd_steps.default, params, grads, buffers, *rest):
        return False
    if first:
        momentum_buffer_list[:] = buffers
    return True


STEPS: dict[str, Run] = {"_multi_tensor_adam": adam, "_multi_tensor_sgd": sgd}
