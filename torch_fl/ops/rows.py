"""Ops that are one C expression: `pointwise("aten::add.Tensor", "self + alpha * other")` is a complete kernel.

Names in the expression are the schema's own. Tensors and numbers arrive in the compute type of torch's type
promotion; numbers in a Tensor place (x * 2) as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from ..errors import RegistryError, Unsupported
from ..kernels.pointwise import emit
from ..plan import Builder, Ref, Value
from ..registry import Kernel, add_kernel, find_overload
from ..schema import params_of

PROMOTION = {
    "default": KIND.DEFAULT,
    "int_to_float": KIND.INT_TO_FLOAT,
    "bool": KIND.ALWAYS_BOOL,
    "no_opmath": KIND.NO_OPMATH,
    "bool_to_long": KIND.BOOL_TO_LONG,
}


def pointwise(
    names: str | Sequence[str],
    expression: str | dict[str, str],
    promotion: str = "default",
    helpers: str = "",
    promote: Sequence[str] | None = None,
    only: str = "",
) -> None:
    """Register one expression as the kernel of ops (see the module docstring).

    `expression`: for all dtypes, or by kind of the compute dtype: {"float": ..., "int": ..., "bool": ...}, where a
    missing kind falls to the next route. `promote`: names that take part in type promotion (default: all tensors and
    numbers that the expression uses in tensor places). `helpers`: C functions the expression calls.
    """
    table = {"float": expression, "int": expression, "bool": expression} if isinstance(expression, str) else expression
    for name in [names] if isinstance(names, str) else names:
        func = find_overload(name)
        params = [p for p in params_of(func) if p.kind in ("tensor", "value")]
        if not params:
            raise RegistryError(f"{name} has no tensors")
        row = _Row(
            table, PROMOTION[promotion], helpers, tuple(promote or [p.name for p in params if p.kind == "tensor"])
        )
        entry = Kernel(name, row, "", (), True, True, tuple(p.name for p in params))
        add_kernel(func, entry)


class _Row:
    """The kernel function of a row."""

    def __init__(self, table: dict[str, str], kind: Any, helpers: str, promote: tuple[str, ...]) -> None:
        self.table = table
        self.kind = kind
        self.helpers = helpers
        self.promote = promote

    def __call__(self, b: Builder, /, **arguments: Any) -> None:
        operands = [a for n, a in arguments.items() if n in self.promote and a is not None]
        compute = compute_dtype(operands, self.kind)
        expression = self.table.get(_kind_of(compute))
        if expression is None:
            raise Unsupported(f"dtype {str(compute).removeprefix('torch.')}")
        out = b.out()
        tensors = {n: a for n, a in arguments.items() if isinstance(a, Ref)}
        scalars = {n: a for n, a in arguments.items() if isinstance(a, Value)}
        emit(b, {"out_": (out, expression)}, tensors, scalars, compute, self.helpers)


def _kind_of(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "bool"
    return "float" if dtype.is_floating_point else "int"


def compute_dtype(operands: Sequence[Any], kind: Any) -> torch.dtype:
    """The dtype an op computes in by torch's promotion rules; operands are Refs, Values and numbers."""
    examples = [_example(o) for o in operands]
    if any(e.dtype.is_complex if isinstance(e, torch.Tensor) else isinstance(e, complex) for e in examples):
        raise Unsupported("dtype complex")
    if kind is KIND.ALWAYS_BOOL:
        kind = KIND.DEFAULT
    found: torch.dtype = elementwise_dtypes(*examples, type_promotion_kind=kind)[0]
    if kind is KIND.NO_OPMATH:
        return found
    # Halves compute as float; the storage dtypes of the operands say how they are loaded.
    return torch.float32 if found in (torch.float16, torch.bfloat16) else found


def _example(operand: Any) -> Any:
    if isinstance(operand, Ref):
        return torch.empty((1,) * min(operand.ndim, 1), dtype=operand.dtype, device="meta")
    if isinstance(operand, Value):
        return {int: 1, float: 1.0, bool: True, complex: 1j}[operand.kind]
    return operand
