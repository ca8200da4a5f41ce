"""Arithmetic, comparison, bitwise and logical ops of two operands, as rows."""

from __future__ import annotations

from typing import Any

from ..builder import Builder
from ..registry import kernel
from .rows import pointwise, run_row

_ADD = {"float": "self + alpha * other", "int": "self + alpha * other", "bool": "self || (alpha && other)"}
_NUMERIC = ("float", "int")


def _numeric(expression: str) -> dict[str, str]:
    return dict.fromkeys(_NUMERIC, expression)


pointwise(("aten::add.Tensor", "aten::add.Scalar"), _ADD)
pointwise(("aten::sub.Tensor", "aten::sub.Scalar"), _numeric("self - alpha * other"))
pointwise(("aten::rsub.Tensor", "aten::rsub.Scalar"), _numeric("other - alpha * self"))
pointwise(("aten::mul.Tensor", "aten::mul.Scalar"), "self * other")
pointwise(("aten::div.Tensor", "aten::div.Scalar"), "self / other", "int_to_float")

_POWERS = {
    2: _numeric("self * self"),
    3: _numeric("self * self * self"),
    1: _numeric("self"),
    -1: {"float": "1 / self"},
    -2: {"float": "1 / (self * self)"},
    0.5: {"float": "sqrt(self)"},
    -0.5: {"float": "1 / sqrt(self)"},
}
"""Exponents with an expression of their own, as in torch's CPU kernel."""


@kernel("aten::pow.Tensor_Scalar", static=("exponent",), elementwise=True)
def pow_scalar(b: Builder, self: Any, exponent: Any) -> None:
    """self ** exponent."""
    expression = _POWERS.get(exponent, _numeric("m_pow(self, exponent)"))
    run_row(b, expression, {"self": self, "exponent": exponent})


pointwise(("aten::pow.Tensor_Tensor", "aten::pow.Scalar"), _numeric("m_pow(self, exponent)"))

# The first operand wins where it is NaN; a comparison with a NaN is false, so the second wins where that is NaN.
pointwise("aten::maximum", "self != self || self > other ? self : other")
pointwise("aten::minimum", "self != self || self < other ? self : other")
pointwise("aten::fmax", "other != other || self > other ? self : other")
pointwise("aten::fmin", "other != other || self < other ? self : other")

for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    pointwise((f"aten::{_name}.Tensor", f"aten::{_name}.Scalar"), f"self {_sign} other", "bool")

for _name, _sign in {"and": "&", "or": "|", "xor": "^"}.items():
    _forms = ("Tensor", "Scalar", "Scalar_Tensor")
    _expression = f"self {_sign} other"
    pointwise([f"aten::bitwise_{_name}.{f}" for f in _forms], {"int": _expression, "bool": _expression})

for _name, _function in {"left": "m_shl", "right": "m_shr"}.items():
    _shift = {"int": f"{_function}(self, other)", "bool": f"{_function}(self, other)"}
    _forms = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    pointwise([f"aten::bitwise_{_name}_shift.{f}" for f in _forms], _shift)
    pointwise([f"aten::__{_name[0]}shift__.{f}" for f in ("Tensor", "Scalar")], _shift)

pointwise("aten::logical_and", "self != 0 && other != 0", "bool")
pointwise("aten::logical_or", "self != 0 || other != 0", "bool")
pointwise("aten::logical_xor", "(self != 0) != (other != 0)", "bool")

pointwise("aten::gcd", {"int": "m_gcd(self, other)"})
pointwise("aten::lcm", {"int": "m_lcm(self, other)"})
pointwise("aten::atan2", {"float": "atan2(self, other)"}, "int_to_float")
pointwise("aten::hypot", {"float": "hypot(self, other)"})
pointwise(("aten::copysign.Tensor", "aten::copysign.Scalar"), {"float": "copysign(self, other)"}, "int_to_float")
pointwise("aten::heaviside", "self == 0 ? values : (ACC)(self > 0)")
pointwise("aten::logaddexp", {"float": "m_logaddexp(self, other)"})
pointwise("aten::logaddexp2", {"float": "m_logaddexp2(self, other)"})
pointwise(
    ("aten::xlogy.Tensor", "aten::xlogy.Scalar_Other", "aten::xlogy.Scalar_Self"),
    {"float": "m_xlogy(self, other)"},
    "int_to_float",
)
pointwise(
    ("aten::special_xlog1py", "aten::special_xlog1py.other_scalar", "aten::special_xlog1py.self_scalar"),
    {"float": "m_xlog1py(self, other)"},
    "int_to_float",
)
