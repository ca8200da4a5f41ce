"""Pointwise ops of complex numbers, as rows like those of ops/rows.py; functions `c_...` are in native/complex.h.

These kernels are asked after those for real numbers, which give up on complex ones. All operands arrive as complex
numbers in the compute type; where the result is real, so is the expression. None is `elementwise`: compilers may read
the second part of a number after the first part of the result is written, so in-place calls go through a temporary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import elementwise_dtypes

from ..builder import Builder
from ..errors import unsupported_dtype
from ..kernels.pointwise import emit
from ..refs import Ref
from ..registry import COMPLEX, Kernel, add_kernel, find_overload, kernel
from ..schema import params_of
from .rows import PROMOTED, PROMOTION, example


def complex_dtype(operands: Sequence[Any], promotion: str = "default") -> torch.dtype:
    """The complex dtype an op computes in. Raises Unsupported where no operand is complex."""
    found: torch.dtype = elementwise_dtypes(
        *[example(o) for o in operands if o is not None], type_promotion_kind=PROMOTION[promotion]
    )[0]
    if not found.is_complex:
        raise unsupported_dtype(found)
    return found


def run_complex(
    b: Builder,
    expression: str,
    operands: Mapping[str, Any],
    promote: Sequence[str] | None = None,
    out: Ref | None = None,
    real: bool = False,
) -> None:
    """out (default: the op's first result) = a C expression of complex operands by name; None is left out.

    `promote`: the names that take part in type promotion (default: all). `real`: the expression is a real number, which
    in-place forms write into complex tensors. Raises Unsupported for real operands.
    """
    present = {n: o for n, o in operands.items() if o is not None}
    compute = complex_dtype([o for n, o in present.items() if promote is None or n in promote])
    tensors = {n: o for n, o in present.items() if isinstance(o, Ref)}
    scalars = {n: o for n, o in present.items() if not isinstance(o, Ref)}
    out = b.out() if out is None else out
    text = f"c_real({expression})" if real and out.dtype.is_complex else expression
    name = next((n for n, t in tensors.items() if t == out), "out_")
    emit(b, {name: (out, text)}, tensors, scalars, compute)


def complex_row(
    names: str | Sequence[str], expression: str, promote: Sequence[str] | None = None, real: bool = False
) -> None:
    """Register one expression as the complex kernel of ops, as `pointwise` does for real numbers."""
    for name in [names] if isinstance(names, str) else names:
        params = [p for p in params_of(find_overload(name)) if p.kind in ("tensor", "value")]
        chosen = promote or [p.name for p in params if p.kind == "tensor" or p.name in PROMOTED]

        def run(b: Builder, /, *, chosen: Sequence[str] = chosen, **operands: Any) -> None:
            run_complex(b, expression, operands, chosen, real=real)

        names_of = tuple(p.name for p in params)
        add_kernel(find_overload(name), Kernel(name, run, COMPLEX, names=names_of))


def times(number: Any, name: str, operand: str) -> str:
    """number * operand; a real number multiplies both parts, so that infinities stay where they are."""
    is_complex = getattr(number, "kind", type(number)) is complex
    return f"c_mul({name}, {operand})" if is_complex else f"c_scale({name}.re, {operand})"


@kernel("aten::add.Tensor", "aten::add.Scalar", backend=COMPLEX)
def add(b: Builder, self: Any, other: Any, alpha: Any) -> None:
    """self + alpha * other."""
    operands = {"self": self, "other": other, "alpha": alpha}
    run_complex(b, f"c_add(self, {times(alpha, 'alpha', 'other')})", operands, ("self", "other"))


@kernel("aten::sub.Tensor", "aten::sub.Scalar", backend=COMPLEX)
def sub(b: Builder, self: Any, other: Any, alpha: Any) -> None:
    """self - alpha * other."""
    operands = {"self": self, "other": other, "alpha": alpha}
    run_complex(b, f"c_sub(self, {times(alpha, 'alpha', 'other')})", operands, ("self", "other"))


@kernel("aten::rsub.Tensor", "aten::rsub.Scalar", backend=COMPLEX)
def rsub(b: Builder, self: Any, other: Any, alpha: Any) -> None:
    """other - alpha * self."""
    operands = {"self": self, "other": other, "alpha": alpha}
    run_complex(b, f"c_sub(other, {times(alpha, 'alpha', 'self')})", operands, ("self", "other"))


complex_row(("aten::mul.Tensor", "aten::mul.Scalar"), "c_mul(self, other)")
complex_row(("aten::div.Tensor", "aten::div.Scalar"), "c_div(self, other)")
complex_row(("aten::eq.Tensor", "aten::eq.Scalar"), "c_eq(self, other)", real=True)
complex_row(("aten::ne.Tensor", "aten::ne.Scalar"), "!c_eq(self, other)", real=True)
complex_row("aten::logical_and", "c_true(self) && c_true(other)", real=True)
complex_row("aten::logical_or", "c_true(self) || c_true(other)", real=True)
complex_row("aten::logical_xor", "c_true(self) != c_true(other)", real=True)
complex_row("aten::where.self", "c_true(condition) ? self : other", ("self", "other"))
complex_row(("aten::masked_fill.Scalar", "aten::masked_fill.Tensor"), "c_true(mask) ? value : self", ("self",))
complex_row("aten::lerp.Scalar", "c_lerp(self, end, weight)", ("self", "end"))
complex_row("aten::lerp.Tensor", "c_lerp(self, end, weight)")


@kernel("aten::addcmul", backend=COMPLEX)
def addcmul(b: Builder, self: Any, tensor1: Any, tensor2: Any, value: Any) -> None:
    """self + value * tensor1 * tensor2."""
    _add_term(b, "c_mul(tensor1, tensor2)", self, tensor1, tensor2, value)


@kernel("aten::addcdiv", backend=COMPLEX)
def addcdiv(b: Builder, self: Any, tensor1: Any, tensor2: Any, value: Any) -> None:
    """self + value * tensor1 / tensor2."""
    _add_term(b, "c_div(tensor1, tensor2)", self, tensor1, tensor2, value)


def _add_term(b: Builder, term: str, self: Any, tensor1: Any, tensor2: Any, value: Any) -> None:
    operands = {"self": self, "tensor1": tensor1, "tensor2": tensor2, "value": value}
    run_complex(b, f"c_add(self, {times(value, 'value', term)})", operands, ("self", "tensor1", "tensor2"))


_UNARY = {
    "neg": "c_neg(self)",
    "conj_physical": "c_conj(self)",
}
for _name, _expression in _UNARY.items():
    complex_row(f"aten::{_name}", _expression)
_REAL = {"abs": "c_abs(self)", "logical_not": "!c_true(self)", "isnan": "c_isnan(self)", "isinf": "c_isinf(self)"}
for _name, _expression in _REAL.items():
    complex_row(f"aten::{_name}", _expression, real=True)
_SAME_NAME = """sgn reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sigmoid sin cos tan sinh cosh tanh asin
acos atan asinh acosh atanh"""
for _name in _SAME_NAME.split():
    complex_row(f"aten::{_name}", f"c_{_name}(self)")

_POWERS = {
    2: "c_mul(self, self)",
    3: "c_mul(c_mul(self, self), self)",
    1: "self",
    -1: "c_reciprocal(self)",
    -2: "c_reciprocal(c_mul(self, self))",
    0.5: "c_sqrt(self)",
    -0.5: "c_rsqrt(self)",
}
"""Exponents with an expression of their own, as for real numbers."""


@kernel("aten::pow.Tensor_Scalar", backend=COMPLEX, static=("exponent",))
def pow_scalar(b: Builder, self: Any, exponent: Any) -> None:
    """self ** exponent."""
    run_complex(b, _POWERS.get(exponent, "c_pow(self, exponent)"), {"self": self, "exponent": exponent})


complex_row(("aten::pow.Tensor_Tensor", "aten::pow.Scalar"), "c_pow(self, exponent)")
