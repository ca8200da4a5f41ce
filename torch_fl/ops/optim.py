"""Fused optimizers and the gradient scaler: one launch per tensor, in place; learning rates come at launch.

Scalars that cancel badly in float32 (1 - beta, 1 - beta ** step) are computed from float64: on the host where they
are numbers, as -expm1(step log(beta)) where the step is on the device. Source of the formulas: torch.optim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from ..builder import Builder
from ..kernels.pointwise import emit
from ..refs import Ref, Value
from ..registry import kernel
from .rows import PROMOTION, compute_dtype

_SKIP = "if (found_inf == 1) return;"
_UNSCALE = "grad /= grad_scale;"
_MAXIMIZE = "grad = -grad;"


def _update(
    b: Builder,
    written: Mapping[str, Ref],
    grad: Ref,
    scalars: Mapping[str, Any],
    setup: str,
    code: str,
    grad_scale: Any,
    found_inf: Any,
    maximize: bool,
) -> None:
    """One tensor's step: `written` tensors are read, changed by `code`, and written back.

    `scalars`: numbers and tensors of one element by name; `grad` is unscaled in place where there is a grad_scale.
    """
    outs = {n: (r, n) for n, r in written.items()}
    if grad_scale is not None:
        outs["grad"] = (grad, "scaled_")
        code = f"{_UNSCALE} const ACC scaled_ = grad; {_MAXIMIZE if maximize else ''} {code}"
    elif maximize:
        code = f"{_MAXIMIZE} {code}"
    everything = {**scalars, "grad_scale": grad_scale, "found_inf": found_inf}
    tensors = {**written, "grad": grad, **{n: v for n, v in everything.items() if isinstance(v, Ref)}}
    numbers = {n: v for n, v in everything.items() if v is not None and not isinstance(v, Ref)}
    compute = compute_dtype([*written.values()], PROMOTION["default"])
    emit(b, outs, tensors, numbers, compute, "", code, f"{_SKIP if found_inf is not None else ''} {setup}")


def _map(value: Any, fn: Any) -> Any:
    """`fn` of a launch-time number in float64."""
    return value.map(fn, float) if isinstance(value, Value) else fn(value)


_ADAM_SETUP = """
  const ACC step_size_ = lr / -m_expm1(state_step * log_beta1);
  const ACC root_ = sqrt(-m_expm1(state_step * log_beta2));"""
_ADAM = """
      exp_avg += (grad - exp_avg) * rest1;
      exp_avg_sq = beta2 * exp_avg_sq + rest2 * grad * grad;"""
_ADAM_MAX = " max_exp_avg_sq = max_exp_avg_sq > exp_avg_sq ? max_exp_avg_sq : exp_avg_sq;"


def _register_adam(name: str, decay: str) -> None:
    """Adam (Kingma and Ba, 2015) or AdamW (Loshchilov and Hutter, 2019), which differ in how weights decay."""

    @kernel(f"aten::{name}", f"aten::{name}.tensor_lr", infer=False)
    def step(
        b: Builder,
        self: list[Ref],
        grads: list[Ref],
        exp_avgs: list[Ref],
        exp_avg_sqs: list[Ref],
        max_exp_avg_sqs: list[Ref],
        state_steps: list[Any],
        lr: Any,
        beta1: Any,
        beta2: Any,
        weight_decay: Any,
        eps: Any,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Any,
        found_inf: Any,
    ) -> None:
        scalars = {
            "lr": lr, "weight_decay": weight_decay, "eps": eps, "beta2": beta2,
            "rest1": _map(beta1, _complement), "rest2": _map(beta2, _complement),
            "log_beta1": _map(beta1, _log), "log_beta2": _map(beta2, _log),
        }  # fmt: skip
        names = ("self", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 4 if amsgrad else 3]
        code = f"{decay}{_ADAM}{_ADAM_MAX if amsgrad else ''}"
        code += f" self -= step_size_ * exp_avg / (sqrt({names[-1]}) / root_ + eps);"
        for grad, state_step, *written in zip(
            grads, state_steps, self, exp_avgs, exp_avg_sqs, *([max_exp_avg_sqs] if amsgrad else [])
        ):
            chosen = scalars | {"state_step": state_step}
            _update(b, dict(zip(names, written)), grad, chosen, _ADAM_SETUP, code, grad_scale, found_inf, maximize)


def _complement(beta: float) -> float:
    return 1 - beta


def _log(beta: float) -> float:
    """log(beta), -inf for 0: -expm1(step * -inf) is then 1."""
    return math.log(beta) if beta > 0 else -math.inf


_register_adam("_fused_adam_", "grad += weight_decay * self;")
_register_adam("_fused_adamw_", "self -= lr * weight_decay * self;")


@kernel("aten::_fused_sgd_", "aten::_fused_sgd_.tensor_lr", infer=False)
def fused_sgd(
    b: Builder,
    self: list[Ref],
    grads: list[Ref],
    momentum_buffer_list: list[Ref],
    weight_decay: Any,
    momentum: Any,
    lr: Any,
    dampening: Any,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Any,
    found_inf: Any,
) -> None:
    """Stochastic gradient descent with momentum (none where the list of buffers is empty)."""
    code = "grad += weight_decay * self;"
    scalars = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
    if momentum_buffer_list:
        code += " buf = grad;" if is_first_step else " buf = momentum * buf + rest * grad;"
        code += " grad += momentum * buf;" if nesterov else " grad = buf;"
        scalars["rest"] = _map(dampening, _complement)
    code += " self -= lr * grad;"
    for i, (param, grad) in enumerate(zip(self, grads)):
        written = {"self": param} | ({"buf": momentum_buffer_list[i]} if momentum_buffer_list else {})
        _update(b, written, grad, scalars, "", code, grad_scale, found_inf, maximize)


@kernel("aten::_fused_adagrad_", "aten::_fused_adagrad_.tensor_lr", infer=False)
def fused_adagrad(
    b: Builder,
    self: list[Ref],
    grads: list[Ref],
    state_sums: list[Ref],
    state_steps: list[Any],
    lr: Any,
    lr_decay: Any,
    weight_decay: Any,
    eps: Any,
    maximize: bool,
    grad_scale: Any,
    found_inf: Any,
) -> None:
    """Adagrad (Duchi et al., 2011)."""
    setup = "const ACC rate_ = lr / (1 + (state_step - 1) * lr_decay);"
    code = "grad += weight_decay * self; state_sum += grad * grad; self -= rate_ * grad / (sqrt(state_sum) + eps);"
    scalars = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
    for param, grad, total, step in zip(self, grads, state_sums, state_steps):
        written = {"self": param, "state_sum": total}
        _update(b, written, grad, scalars | {"state_step": step}, setup, code, grad_scale, found_inf, maximize)


@kernel("aten::_amp_foreach_non_finite_check_and_unscale_", infer=False)
def unscale(b: Builder, self: list[Ref], found_inf: Ref, inv_scale: Ref) -> None:
    """Gradients times inv_scale; found_inf becomes 1 where one was not finite."""
    for grad in self:
        dense = b.contiguous(_sorted(grad))
        items, chunk = b.split(dense.numel)
        defines = b.types(T=grad.dtype, S=inv_scale.dtype, F=found_inf.dtype)
        b.launch("optim.c", "unscale", items, [dense, inv_scale, found_inf, dense.numel, chunk], defines)
        if dense.slot != grad.slot:
            b.copy(_sorted(grad), dense)


def _sorted(ref: Ref) -> Ref:
    """Dimensions in the order of memory: a dense tensor of any layout becomes row-major."""
    return ref.permute(*sorted(range(ref.ndim), key=lambda d: (-ref.strides[d], d)))


_GROW = """
      const int successful_ = (int)growth_tracker + 1, grow_ = successful_ == growth_interval;
      const float larger_ = self * scale_growth_factor;
      self = found_inf > 0 ? self * scale_backoff_factor : grow_ && larger_ - larger_ == 0 ? larger_ : self;
      growth_tracker = found_inf > 0 || grow_ ? 0 : successful_;"""


@kernel("aten::_amp_update_scale_")
def update_scale(
    b: Builder,
    self: Ref,
    growth_tracker: Ref,
    found_inf: Ref,
    scale_growth_factor: Any,
    scale_backoff_factor: Any,
    growth_interval: int,
) -> None:
    """The loss scale after a step: smaller after an overflow, larger after growth_interval steps without one."""
    scalars = {
        "scale_growth_factor": scale_growth_factor,
        "scale_backoff_factor": scale_backoff_factor,
        "growth_interval": growth_interval,
    }
    outs = {"self": (self, "self"), "growth_tracker": (growth_tracker, "growth_tracker")}
    tensors = {"self": self, "growth_tracker": growth_tracker, "found_inf": found_inf}
    emit(b, outs, tensors, scalars, torch.float32, code=_GROW)
