"""Activation functions and their derivatives."""

from __future__ import annotations

from typing import Any

from ..builder import Builder
from ..registry import kernel
from .rows import pointwise, run_row

_FORWARD = {
    "hardsigmoid": "(self + 3 > 6 ? 6 : self + 3 < 0 ? 0 : self + 3) / 6",
    "hardswish": "self * (self + 3 > 6 ? 6 : self + 3 < 0 ? 0 : self + 3) / 6",
    "silu": "self * m_sigmoid(self)",
    "mish": "self * m_tanh(m_softplus(self))",
    "leaky_relu": "self > 0 ? self : self * negative_slope",
    "elu": "self > 0 ? self * scale : m_expm1(self * input_scale) * alpha * scale",
    "softplus": "self * beta > threshold ? self : m_softplus(self * beta) / beta",
    "hardshrink": "self >= -lambd && self <= lambd ? 0 : self",
    "softshrink": "self > lambd ? self - lambd : self < -lambd ? self + lambd : self != self ? self : 0",
}
for _name, _expression in _FORWARD.items():
    pointwise(f"aten::{_name}", {"float": _expression}, promote=("self",))

pointwise("aten::relu", {"float": "self < 0 ? 0 : self", "int": "self < 0 ? 0 : self"})
pointwise("aten::threshold", "self <= threshold ? value : self", promote=("self",))
pointwise("aten::hardtanh", "self < min_val ? min_val : self > max_val ? max_val : self", promote=("self",))

_BACKWARD = {
    "sigmoid_backward": "grad_output * (output * (1 - output))",
    "tanh_backward": "grad_output * (1 - output * output)",
    "threshold_backward": "self <= threshold ? 0 : grad_output",
    "leaky_relu_backward": "self > 0 ? grad_output : grad_output * negative_slope",
    "hardtanh_backward": "self <= min_val || self >= max_val ? 0 : grad_output",
    "hardsigmoid_backward": "self > -3 && self < 3 ? grad_output / 6 : 0",
    "hardswish_backward": "self < -3 ? 0 : self <= 3 ? grad_output * (self / 3 + K(0.5)) : grad_output",
    "silu_backward": "m_silu_grad(grad_output, self)",
    "hardshrink_backward": "self >= -lambd && self <= lambd ? 0 : grad_out",
    "softshrink_backward": "self >= -lambd && self <= lambd ? 0 : grad_output",
    "softplus_backward": "self * beta > threshold ? grad_output : grad_output * m_sigmoid(self * beta)",
    "mish_backward": "m_mish_grad(grad_output, self)",
}
for _name, _expression in _BACKWARD.items():
    _first = "grad_out" if _name == "hardshrink_backward" else "grad_output"
    _second = "output" if " output " in _expression else "self"
    pointwise(f"aten::{_name}", {"float": _expression}, promote=(_first, _second))


@kernel("aten::gelu", elementwise=True)
def gelu(b: Builder, self: Any, approximate: str) -> None:
    """x Phi(x), or its tanh approximation."""
    run_row(b, {"float": "m_gelu(self)" if approximate == "none" else "m_gelu_tanh(self)"}, {"self": self})


@kernel("aten::gelu_backward", elementwise=True)
def gelu_backward(b: Builder, grad_output: Any, self: Any, approximate: str) -> None:
    """Gradient of GELU."""
    function = "m_gelu_grad" if approximate == "none" else "m_gelu_tanh_grad"
    run_row(b, {"float": f"{function}(grad_output, self)"}, {"grad_output": grad_output, "self": self})


@kernel("aten::elu_backward", elementwise=True)
def elu_backward(
    b: Builder, grad_output: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self_or_result: Any
) -> None:
    """Gradient of ELU from its input or its result."""
    inner = "(x + alpha)" if is_result else "alpha * m_exp(x * input_scale)"
    factor = f"grad_output * input_scale * scale * {inner}" if not is_result else f"grad_output * input_scale * {inner}"
    if is_result:
        factor = "grad_output * input_scale * (x + alpha * scale)"
    operands = {
        "grad_output": grad_output, "x": self_or_result, "alpha": alpha, "scale": scale, "input_scale": input_scale,
    }  # fmt: skip
    run_row(b, {"float": f"x <= 0 ? {factor} : grad_output * scale"}, operands, promote=("grad_output", "x"))
