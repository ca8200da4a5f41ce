"""Fused optimizers and the gradient scaler: one launch per tensor, in place; learning rates come at launch.

Scalars that cancel badly in float32 (1 - beta, 1 - beta ** step) are computed from float64: on the host where they
are numbers, as -expm1(step log(beta)) where the step is on the device. Source of the formulas: torch.optim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..builder import Builder
from ..kernels.lists import Step, Texts, emit_each
from ..kernels.pointwise import emit
from ..refs import Ref, Value
from ..registry import kernel
from .rows import PROMOTION, compute_dtype

_SKIP = "if (found_inf == 1) return;"
_UNSCALE = "grad /= grad_scale;"
_MAXIMIZE = "grad = -grad;"


@dataclass(frozen=True)
class _Rule:
    """How one tensor steps: `code` changes it, `setup` runs once per tensor; and what the gradient scaler asks for."""

    setup: str
    code: str
    grad_scale: Any
    found_inf: Any
    maximize: bool

    @property
    def texts(self) -> Texts:
        """The C of the whole list: gradients are unscaled in place where there is a grad_scale."""
        code = f"{_MAXIMIZE} {self.code}" if self.maximize else self.code
        if self.grad_scale is not None:
            code = f"{_UNSCALE} const ACC scaled_ = grad; {code}"
        return Texts("", code, f"{_SKIP if self.found_inf is not None else ''} {self.setup}")

    def step(self, written: Mapping[str, Ref], grad: Ref, scalars: Mapping[str, Any]) -> Step:
        """One tensor's: `written` tensors are read, changed and written back; `scalars`: numbers, or Refs of one."""
        outs = {n: (r, n) for n, r in written.items()}
        if self.grad_scale is not None:
            outs["grad"] = (grad, "scaled_")
        everything = {**scalars, "grad_scale": self.grad_scale, "found_inf": self.found_inf}
        tensors = {**written, "grad": grad, **{n: v for n, v in everything.items() if isinstance(v, Ref)}}
        numbers = {n: v for n, v in everything.items() if v is not None and not isinstance(v, Ref)}
        return Step(outs, tensors, numbers, compute_dtype([*written.values()], PROMOTION["default"]))


def _map(value: Any, fn: Any) -> Any:
    """`fn` of a launch-time number in float64."""
    return value.map(fn, float) if isinstance(value, Value) else fn(value)


_ADAM_SETUP = """
  const ACC step_size_ = lr / -m_expm1(state_step * log_beta1);
  const ACC root_ = 1 / sqrt(-m_expm1(state_step * log_beta2));"""
_ADAM = """
      exp_avg += (grad - exp_avg) * rest1;
      exp_avg_sq = beta2 * exp_avg_sq + rest2 * grad * grad;"""
_ADAM_MAX = " max_exp_avg_sq = max_exp_avg_sq > exp_avg_sq ? max_exp_avg_sq : exp_avg_sq;"


def _register_adam(name: str, decay: str) -> Any:
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
        code += f" self -= step_size_ * exp_avg / (m_sqrt({names[-1]}) * root_ + eps);"
        rule = _Rule(_ADAM_SETUP, code, grad_scale, found_inf, maximize)
        lists = (self, exp_avgs, exp_avg_sqs, *([max_exp_avg_sqs] if amsgrad else []))
        each = [
            rule.step(dict(zip(names, written)), grad, scalars | {"state_step": state_step})
            for grad, state_step, *written in zip(grads, state_steps, *lists)
        ]
        emit_each(b, each, rule.texts)

    return step


def _complement(beta: float) -> float:
    return 1 - beta


def _log(beta: float) -> float:
    """log(beta), -inf for 0: -expm1(step * -inf) is then 1."""
    return math.log(beta) if beta > 0 else -math.inf


_ADAMS = {
    name: _register_adam(name, decay)
    for name, decay in {
        "_fused_adam_": "grad += weight_decay * self;",
        "_fused_adamw_": "self -= lr * weight_decay * self;",
    }.items()
}


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
    rule = _Rule("", code, grad_scale, found_inf, maximize)
    lists = {"self": self, **({"buf": momentum_buffer_list} if momentum_buffer_list else {})}
    each = [rule.step(dict(zip(lists, w)), grad, scalars) for grad, *w in zip(grads, *lists.values())]
    emit_each(b, each, rule.texts)


_LIBRARY = torch.library.Library("torch_fl_impl", "FRAGMENT")
_LIBRARY.define(
    "adam_steps(Tensor(a!)[] self, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
    "Tensor(d!)[] max_exp_avg_sqs, Scalar step, Scalar lr, Scalar beta1, Scalar beta2, Scalar weight_decay, "
    "Scalar eps, bool amsgrad, bool maximize, bool decoupled) -> ()"
)
_LIBRARY.define(
    "sgd_steps(Tensor(a!)[] self, Tensor[] grads, Tensor(b!)[] buffers, Scalar weight_decay, Scalar momentum, "
    "Scalar lr, Scalar dampening, bool nesterov, bool maximize, bool is_first_step) -> ()"
)


@kernel("torch_fl_impl::adam_steps", infer=False)
def adam(
    b: Builder, self: list[Ref], grads: list[Ref], exp_avgs: list[Ref], exp_avg_sqs: list[Ref],
    max_exp_avg_sqs: list[Ref], step: Any, lr: Any, beta1: Any, beta2: Any, weight_decay: Any, eps: Any,
    amsgrad: bool, maximize: bool, decoupled: bool,
) -> None:  # fmt: skip
    """Adam or (`decoupled`) AdamW with one `step` for all tensors."""
    run = _ADAMS["_fused_adamw_" if decoupled else "_fused_adam_"]
    lists = (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, [step] * len(self))
    run(b, *lists, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, None, None)


@kernel("torch_fl_impl::sgd_steps", infer=False)
def sgd(
    b: Builder, self: list[Ref], grads: list[Ref], buffers: list[Ref], weight_decay: Any, momentum: Any, lr: Any,
    dampening: Any, nesterov: bool, maximize: bool, is_first_step: bool,
) -> None:  # fmt: skip
    """Gradient descent, with momentum where there are buffers."""
    rest = (weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step, None, None)
    fused_sgd(b, self, grads, buffers, *rest)


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
    rule = _Rule(setup, code, grad_scale, found_inf, maximize)
    each = [
        rule.step({"self": param, "state_sum": total}, grad, scalars | {"state_step": step})
        for param, grad, total, step in zip(self, grads, state_sums, state_steps)
    ]
    emit_each(b, each, rule.texts)


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
