"""Special functions: gamma, zeta, error and Bessel functions, and ops on the parts of a number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..builder import Builder
from ..dispatch import op_of, planned
from ..errors import Unsupported
from ..infer import to_meta
from ..kernels.pointwise import complex_parts, emit
from ..kernels.source import read_native
from ..refs import Ref
from ..registry import find_overload, handler, kernel
from ..resizing import resize_out
from ..spec import spec_of
from ..tensor import Tensor
from .rows import PROMOTION, compute_dtype, pointwise, run_row

for _name in ("digamma", "erfinv", "i0"):
    pointwise(f"aten::{_name}", {"float": f"s_{_name}(self)"}, "int_to_float")
for _name in ("i0e", "i1", "i1e", "ndtri", "erfcx"):
    pointwise(f"aten::special_{_name}", {"float": f"s_{_name}(self)"}, "int_to_float")
pointwise(
    ("aten::special_zeta", "aten::special_zeta.other_scalar", "aten::special_zeta.self_scalar"),
    {"float": "s_zeta(self, other)"},
    "int_to_float",
)
pointwise(
    "aten::special_entr",
    {"float": "self != self ? self : self > 0 ? -self * m_log(self) : self == 0 ? 0 : -(ACC)INFINITY"},
    "int_to_float",
)
_BESSEL = read_native("bessel.h")
for _name, _expression in {
    "bessel_j0": "bessel_j0(self)", "bessel_j1": "bessel_j1(self)",
    "bessel_y0": "bessel_y0(self)", "bessel_y1": "bessel_y1(self)",
    "modified_bessel_i0": "s_i0(self)", "modified_bessel_i1": "s_i1(self)",
    "modified_bessel_k0": "bessel_k0(self)", "modified_bessel_k1": "bessel_k1(self)",
    "scaled_modified_bessel_k0": "bessel_k0e(x)", "scaled_modified_bessel_k1": "bessel_k1e(x)",
    "spherical_bessel_j0": "bessel_spherical_j0(x)", "airy_ai": "bessel_airy(x)",
}.items():  # fmt: skip
    pointwise(f"aten::special_{_name}", {"float": _expression}, "int_to_float", _BESSEL)
for _name in ("igamma", "igammac"):
    pointwise(f"aten::{_name}", {"float": f"s_{_name}(self, other)"}, "int_to_float")


@kernel("aten::polygamma", elementwise=True)
def polygamma(b: Builder, n: int, self: Any) -> None:
    """The n-th derivative of digamma."""
    expression = {0: "s_digamma(self)", 1: "s_trigamma(self)"}.get(n, "s_polygamma(n, self)")
    run_row(b, {"float": expression}, {"self": self, "n": n}, "int_to_float", promote=("self",))


@kernel("aten::logit", elementwise=True)
def logit(b: Builder, self: Any, eps: Any) -> None:
    """log(x / (1 - x)) of x limited to [eps, 1 - eps]."""
    x = "self" if eps is None else "(self < eps ? eps : self > 1 - eps ? 1 - eps : self)"
    operands = {"self": self, "eps": eps}
    run_row(b, {"float": f"log({x} / (1 - {x}))"}, operands, "int_to_float", promote=("self",))


@kernel("aten::logit_backward", elementwise=True)
def logit_backward(b: Builder, grad_output: Any, self: Any, eps: Any) -> None:
    """Gradient of logit: 0 where x was limited, NaN outside [0, 1] without a limit."""
    inside, outside = ("self >= eps && self <= 1 - eps", "0") if eps is not None else ("self >= 0 && self <= 1", "NAN")
    expression = f"{inside} ? grad_output / (self * (1 - self)) : (ACC){outside}"
    operands = {"grad_output": grad_output, "self": self, "eps": eps}
    run_row(b, {"float": expression}, operands, promote=("grad_output", "self"))


_IMPLICIT = read_native("implicit.h")


@kernel("aten::_standard_gamma_grad", infer=False)
def standard_gamma_grad(b: Builder, self: Ref, output: Ref) -> None:
    """Derivative of gamma numbers `output` by their shapes `self`."""
    out = b.new_out(0, output.shape, output.dtype)
    run_row(b, {"float": "implicit_gamma(a, x)"}, {"a": self, "x": output}, helpers=_IMPLICIT, out=out)


@kernel("aten::_dirichlet_grad", infer=False)
def dirichlet_grad(b: Builder, x: Ref, alpha: Ref, total: Ref) -> None:
    """Derivative of Dirichlet numbers x by their concentrations, without the factor 1 - x; `total`: sums of these."""
    out = b.new_out(0, x.shape, x.dtype)
    operands = {"x": x, "alpha": alpha, "total": total}
    run_row(b, {"float": "implicit_beta(x, alpha, total)"}, operands, helpers=_IMPLICIT, out=out)


@handler("aten::conj_physical.out")
def conj_physical_out(self: Tensor, *, out: Tensor) -> Tensor:
    """Real numbers are copied; complex ones have a kernel."""
    if self.dtype.is_complex:
        return planned(op_of(_CONJ_OUT), (self,), {"out": out})  # type: ignore[no-any-return]
    if type(out) is not Tensor or out.dtype != self.dtype:
        raise Unsupported("out= of another dtype, which torch refuses")
    if out.shape != self.shape:
        strides = torch.empty_like(to_meta(self)).stride()
        resize_out(out, self.shape, spec_of(tuple(self.shape), strides, out.dtype, out._spec.device))
    return out.copy_(self)  # type: ignore[return-value]


_CONJ_OUT: Any = find_overload("aten::conj_physical.out")


@kernel("aten::nextafter", elementwise=True)
def nextafter(b: Builder, self: Any, other: Any) -> None:
    """The next number of the dtype from self towards other."""
    if not isinstance(self, Ref) or not isinstance(other, Ref):
        raise Unsupported("nextafter of a number")
    out = b.out()
    if out.dtype.itemsize > 2:
        return run_row(b, {"float": "nextafter(self, other)"}, {"self": self, "other": other})
    if not self.dtype == other.dtype == out.dtype:
        raise Unsupported("nextafter of several dtypes")
    bits = {n: replace(r, dtype=torch.int16) for n, r in {"self": self, "other": other}.items()}
    top = 0x7C00 if out.dtype == torch.float16 else 0x7F80
    outs = {"out_": (replace(out, dtype=torch.int16), f"s_next16(self, other, {top})")}
    return emit(b, outs, bits, {}, torch.int16)


@kernel("aten::frexp.Tensor")
def frexp(b: Builder, self: Any) -> None:
    """Mantissa in [0.5, 1) and exponent of 2."""
    compute = compute_dtype([self], PROMOTION["default"])
    outs = {"mantissa": (b.out(0), "mantissa_"), "exponent": (b.out(1), "exponent_")}
    code = "int exponent_ = 0; const ACC mantissa_ = frexp(self, &exponent_);"
    emit(b, outs, {"self": self}, {}, compute, code=f"{code} exponent_ = self - self == 0 ? exponent_ : 0;")


@kernel("aten::angle", elementwise=True)
def angle(b: Builder, self: Any) -> None:
    """The angle of a number in the complex plane."""
    if self.dtype.is_complex:
        parts = complex_parts(self)
        return run_row(b, "atan2(im, re)", {"re": parts.select(-1, 0), "im": parts.select(-1, 1)})
    return run_row(
        b, {"float": "self != self ? self : self < 0 ? K(3.141592653589793) : 0"}, {"self": self}, "int_to_float"
    )


@kernel("aten::complex")
def complex_(b: Builder, real: Ref, imag: Ref) -> None:
    """A complex number from its parts."""
    out = complex_parts(b.out())
    b.copy(out.select(-1, 0), real)
    b.copy(out.select(-1, 1), imag)


@kernel("aten::polar")
def polar(b: Builder, abs: Ref, angle: Ref) -> None:
    """A complex number from its absolute value and angle."""
    out = complex_parts(b.out())
    for part, function in enumerate(("m_cos", "m_sin")):
        run_row(b, f"r * {function}(angle)", {"r": abs, "angle": angle}, out=out.select(-1, part))
