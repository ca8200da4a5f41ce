"""Lists of tensors (`_foreach_*`): the row of the op on one tensor, once per tensor, in one plan.

What a row cannot do for some element of the lists sends the whole call to torch's loop over single tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.lists import Texts, emit_each
from ..refs import Ref
from ..registry import Kernel, add_kernel, find_overload, registered
from ..schema import params_of
from . import activation, pointwise, ternary, unary  # noqa: F401 - their rows are looked up here
from .rows import Row

_UNARY = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg
reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"""
_BINARY = {
    "add": "add.Tensor",
    "sub": "sub.Tensor",
    "mul": "mul.Tensor",
    "div": "div.Tensor",
    "maximum": "maximum",
    "minimum": "minimum",
    "clamp_min": "maximum",
    "clamp_max": "minimum",
    "pow": "pow.Tensor_Tensor",
}
_TERNARY = {"addcmul": "addcmul", "addcdiv": "addcdiv", "lerp": "lerp.Tensor"}
_SCALAR_PLACE = {"pow": "exponent", "addcmul": "value", "addcdiv": "value", "lerp": "weight"}
"""Where the number of a Scalar overload stands in the expression; "other" unless named here."""
_RENAMED = {"tensors1": "end", "weights": "weight"}


def _row_of(name: str) -> Row:
    row = registered()[find_overload(f"aten::{name}")][""].function
    assert isinstance(row, Row)
    return row


def _operands(arguments: Mapping[str, Any], renamed: Mapping[str, str], index: int) -> dict[str, Any]:
    return {renamed.get(n, n): v[index] if isinstance(v, list) else v for n, v in arguments.items()}


def _register(name: str, overload: str, row: Row, place: str = "other", extra: Mapping[str, Any] | None = None) -> None:
    """Both forms of one overload: new tensors, and in place."""
    renamed = {**_RENAMED, "scalar": place, "scalars": place, "exponent": place, "other": place}

    def run(b: Builder, outs: list[Ref], arguments: Mapping[str, Any]) -> None:
        each = [row.step(out, {**(extra or {}), **_operands(arguments, renamed, i)}) for i, out in enumerate(outs)]
        emit_each(b, each, Texts(helpers=row.helpers))

    def functional(b: Builder, /, **arguments: Any) -> None:
        run(b, [b.out(i) for i in range(len(arguments["self"]))], arguments)

    def inplace(b: Builder, /, **arguments: Any) -> None:
        for target, *others in zip(*(v for v in arguments.values() if isinstance(v, list))):
            _check(target, others)
        run(b, arguments["self"], arguments)

    for function, suffix in ((functional, ""), (inplace, "_")):
        full = f"aten::_foreach_{name}{suffix}{overload}"
        func = find_overload(full)
        names = tuple(p.name for p in params_of(func))
        add_kernel(func, Kernel(full, function, "", (), True, not suffix, names))


def _check(target: Ref, others: list[Any]) -> None:
    """In place, operands must not need a wider dtype or shape than the target: torch's own loop has the errors."""
    if not target.dtype.is_floating_point:
        raise Unsupported(f"{target.dtype} in place")
    for other in others:
        if isinstance(other, Ref) and other.dtype.is_complex:
            raise Unsupported("dtype complex")
        if isinstance(other, Ref) and (other.ndim > target.ndim or other.numel not in (1, target.numel)):
            raise Unsupported("shapes that differ")


for _name in _UNARY.split():
    _register(_name, "", _row_of(_name))
for _name, _op in _BINARY.items():
    _overloads = [".Scalar", ".List", ".ScalarList", ".Tensor"]
    for _overload in _overloads[: 4 if _name in ("add", "mul", "div") else 3]:
        _alpha = {"alpha": 1} if _name in ("add", "sub") else {}
        _register(_name, _overload, _row_of(_op), _SCALAR_PLACE.get(_name, "other"), _alpha)
for _name, _op in _TERNARY.items():
    for _overload in (".Scalar", ".ScalarList", *([".List"] if _name == "lerp" else [])):
        _register(_name, _overload, _row_of(_op), _SCALAR_PLACE[_name])
