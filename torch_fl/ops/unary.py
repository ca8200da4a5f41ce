"""Math functions of one operand, as rows."""

from __future__ import annotations

from typing import Any

from ..builder import Builder
from ..registry import kernel
from .rows import pointwise, run_row

pointwise("aten::neg", {"float": "-self", "int": "-self"})
pointwise("aten::abs", {"float": "fabs(self)", "int": "self < 0 ? -self : self", "bool": "self"})
pointwise(("aten::sign", "aten::sgn"), "(ACC)((self > 0) - (self < 0))")
# By copysign: gcc 12 with AVX-512 fails to compile a vectorized signbit.
pointwise("aten::signbit", {"float": "copysign((ACC)1, self) < 0", "int": "self < 0", "bool": "0"}, "bool")
pointwise("aten::bitwise_not", {"int": "~self", "bool": "!self"})
pointwise("aten::logical_not", "self == 0", "bool")
pointwise("aten::isnan", "self != self", "bool")
pointwise("aten::isinf", {"float": "fabs(self) == (ACC)INFINITY", "int": "0", "bool": "0"}, "bool")
pointwise("aten::isposinf", {"float": "self == (ACC)INFINITY", "int": "0", "bool": "0"}, "bool")
pointwise("aten::isneginf", {"float": "self == -(ACC)INFINITY", "int": "0", "bool": "0"}, "bool")

for _name, _function in {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint"}.items():
    pointwise(f"aten::{_name}", {"float": f"{_function}(self)", "int": "self"})
pointwise("aten::frac", {"float": "self - trunc(self)"})

_FLOAT = {
    "sqrt": "sqrt(self)",
    "rsqrt": "1 / sqrt(self)",
    "reciprocal": "1 / self",
    "exp": "m_exp(self)",
    "exp2": "exp2(self)",
    "expm1": "m_expm1(self)",
    "log": "m_log(self)",
    "log2": "log2(self)",
    "log10": "log10(self)",
    "log1p": "m_log1p(self)",
    "sigmoid": "m_sigmoid(self)",
    "tanh": "m_tanh(self)",
    "sinh": "sinh(self)",
    "cosh": "cosh(self)",
    "sin": "m_sin(self)",
    "cos": "m_cos(self)",
    "tan": "tan(self)",
    "asin": "asin(self)",
    "acos": "acos(self)",
    "atan": "atan(self)",
    "asinh": "asinh(self)",
    "acosh": "acosh(self)",
    "atanh": "atanh(self)",
    "erf": "m_erf(self)",
    "erfc": "erfc(self)",
    "lgamma": "lgamma(self)",
    "deg2rad": "self * K(0.017453292519943295)",
    "rad2deg": "self * K(57.29577951308232)",
}
for _name, _expression in _FLOAT.items():
    pointwise(f"aten::{_name}", {"float": _expression}, "int_to_float")


@kernel("aten::round.decimals", elementwise=True)
def round_decimals(b: Builder, self: Any, decimals: int) -> None:
    """Round half to even at a decimal place (negative: before the point)."""
    expression = "rint(self * ten) / ten" if decimals >= 0 else "rint(self / ten) * ten"
    table = {"float": expression if decimals else "rint(self)", "int": "self"}
    run_row(b, table, {"self": self, "ten": 10.0 ** abs(decimals)}, promote=("self",))


@kernel("aten::nan_to_num", static=("nan", "posinf", "neginf"), elementwise=True)
def nan_to_num(b: Builder, self: Any, nan: float | None, posinf: float | None, neginf: float | None) -> None:
    """NaN and infinities replaced by numbers (default: 0 and the dtype's limits)."""
    import torch

    if not self.dtype.is_floating_point:
        return run_row(b, "self", {"self": self})
    limits = torch.finfo(self.dtype)
    numbers = {
        "nan_": 0.0 if nan is None else nan,
        "high": limits.max if posinf is None else posinf,
        "low": limits.min if neginf is None else neginf,
    }
    expression = "self != self ? nan_ : self == (ACC)INFINITY ? high : self == -(ACC)INFINITY ? low : self"
    return run_row(b, expression, {"self": self, **numbers}, promote=("self",))
