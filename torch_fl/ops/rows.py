"""Ops that are one C expression: `pointwise("aten::add.Tensor", "self + alpha * other")` is a complete kernel.

Names in the expression are the schema's own. Tensors and numbers arrive in the compute type of torch's type
promotion; numbers in a Tensor place (x * 2) as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from ..builder import Builder
from ..errors import RegistryError, Unsupported, unsupported_dtype
from ..kernels.lists import Step
from ..kernels.pointwise import emit
from ..kernels.types import widened
from ..refs import Ref, Value
from ..registry import Kernel, add_kernel, find_overload
from ..schema import params_of

PROMOTION = {
    "default": KIND.DEFAULT,
    "int_to_float": KIND.INT_TO_FLOAT,
    "bool": KIND.ALWAYS_BOOL,
    "no_opmath": KIND.NO_OPMATH,
    "bool_to_long": KIND.BOOL_TO_LONG,
}


Expression = str | Mapping[str, str]
PROMOTED = ("self", "other", "exponent", "min", "max")
"""Numbers in these places take part in type promotion, others (alpha, value, negative_slope ...) do not."""


def pointwise(
    names: str | Sequence[str],
    expression: Expression,
    promotion: str = "default",
    helpers: str = "",
    promote: Sequence[str] | None = None,
) -> None:
    """Register one expression as the kernel of ops (see the module docstring).

    `expression`: for all dtypes, or by kind of the compute dtype: {"float": ..., "int": ..., "bool": ...}, where a
    missing kind falls to the next route. `promote`: names that take part in type promotion (default: all tensors,
    and numbers in the place of one). `helpers`: C functions the expression calls beside those of native/math.h.
    """
    for name in [names] if isinstance(names, str) else names:
        func = find_overload(name)
        params = [p for p in params_of(func) if p.kind in ("tensor", "value")]
        if not params:
            raise RegistryError(f"{name} has no tensors")
        chosen = promote or [p.name for p in params if p.kind == "tensor" or p.name in PROMOTED]
        row = Row(expression, promotion, tuple(chosen), helpers)
        add_kernel(func, Kernel(name, row, "", (), True, True, tuple(p.name for p in params)))


class Row:
    """The kernel function of a row. Called with `out`, it writes there instead of to the op's first result."""

    def __init__(self, expression: Expression, promotion: str, promote: tuple[str, ...], helpers: str) -> None:
        self.expression = expression
        self.promotion = promotion
        self.promote = promote
        self.helpers = helpers

    def __call__(self, b: Builder, /, out: Ref | None = None, **operands: Any) -> None:
        run_row(b, self.expression, operands, self.promotion, self.promote, self.helpers, out)

    def step(self, out: Ref, operands: Mapping[str, Any]) -> Step:
        """The same as one step of a list."""
        return _step(self.expression, operands, self.promotion, self.promote, out)


def run_row(
    b: Builder,
    expression: Expression,
    operands: Mapping[str, Any],
    promotion: str = "default",
    promote: Sequence[str] | None = None,
    helpers: str = "",
    out: Ref | None = None,
) -> None:
    """Run an expression inside a kernel function: for ops whose expression depends on their arguments.

    `operands`: Refs, Values and numbers by the name they have in the expression; None is left out. The result goes to
    `out` or to the op's first result. The other arguments are those of `pointwise`.
    """
    step = _step(expression, operands, promotion, promote, b.out() if out is None else out)
    emit(b, step.outs, step.tensors, step.scalars, step.compute, helpers)


def _step(
    expression: Expression, operands: Mapping[str, Any], promotion: str, promote: Sequence[str] | None, out: Ref
) -> Step:
    present = {n: o for n, o in operands.items() if o is not None}
    compute = compute_dtype([o for n, o in present.items() if promote is None or n in promote], PROMOTION[promotion])
    text = expression if isinstance(expression, str) else expression.get(_kind_of(compute))
    if text is None:
        raise unsupported_dtype(compute)
    tensors = {n: o for n, o in present.items() if isinstance(o, Ref)}
    scalars = {n: o for n, o in present.items() if not isinstance(o, Ref)}
    return Step({"out_": (out, text)}, tensors, scalars, compute)


def _kind_of(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "bool"
    return "float" if dtype.is_floating_point else "int"


def compute_dtype(operands: Sequence[Any], kind: Any) -> torch.dtype:
    """The dtype an op computes in by torch's promotion rules; operands are Refs, Values and numbers."""
    examples = [example(o) for o in operands]
    if any(e.dtype.is_complex if isinstance(e, torch.Tensor) else isinstance(e, complex) for e in examples):
        raise Unsupported("dtype complex")
    if kind is KIND.ALWAYS_BOOL:
        kind = KIND.DEFAULT
    found: torch.dtype = elementwise_dtypes(*examples, type_promotion_kind=kind)[0]
    if kind is KIND.NO_OPMATH:
        return found
    # Halves compute as float; the storage dtypes of the operands say how they are loaded.
    return widened(found)


def example(operand: Any) -> Any:
    """What torch's type promotion wants to see of an operand: a tensor without elements, or a number."""
    if isinstance(operand, Ref):
        return torch.empty((1,) * min(operand.ndim, 1), dtype=operand.dtype, device="meta")
    if isinstance(operand, Value):
        return {int: 1, float: 1.0, bool: True, complex: 1j}[operand.kind]
    return operand
