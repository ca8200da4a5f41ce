"""Division with a whole quotient or a rest. Of integers by zero it is an error, as on torch's CPU.

A divisor that is a number is looked at when the call is made, a tensor by a kernel: its zeros are raised at the next
read of device memory, as indices out of bounds are (runtime/guard.py). The quotients by zero themselves are -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..builder import Builder
from ..kernels.indexed import raw_bits
from ..kernels.wrong import note_wrong
from ..refs import Ref
from ..registry import kernel
from ..runtime.guard import TEXTS
from .rows import PROMOTION, compute_dtype, run_row

_NUMERIC = ("float", "int")
_ROUNDED = {"floor": "m_floor_div(self, other)", "trunc": "m_trunc_div(self, other)"}


def _divide(b: Builder, self: Any, other: Any, expression: str) -> None:
    """An expression that divides by `other`."""
    if not compute_dtype([self, other], PROMOTION["default"]).is_floating_point and b.out().numel:
        _forbid_zero(b, other)
    run_row(b, dict.fromkeys(_NUMERIC, expression), {"self": self, "other": other})


def _forbid_zero(b: Builder, divisor: Any) -> None:
    """Let zeros of a divisor be an error: at every replay if it is a number, at the next read if it is a tensor."""
    if not isinstance(divisor, Ref):
        b.function(_not_zero, divisor)
        return
    note_wrong(b, raw_bits(divisor), "v == 0", "division")


def _not_zero(divisor: Any) -> None:
    if divisor == 0:
        raise RuntimeError(TEXTS["division"])


def _division(names: Sequence[str], expression: str) -> None:
    @kernel(*names, elementwise=True)
    def divide(b: Builder, self: Any, other: Any) -> None:
        _divide(b, self, other, expression)


_division(("aten::floor_divide", "aten::floor_divide.Scalar"), _ROUNDED["floor"])
_division(("aten::fmod.Tensor", "aten::fmod.Scalar"), "m_fmod(self, other)")
_division(
    ("aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor"), "m_remainder(self, other)"
)


@kernel("aten::div.Tensor_mode", "aten::div.Scalar_mode", elementwise=True)
def div_mode(b: Builder, self: Any, other: Any, rounding_mode: str | None) -> None:
    """Division, rounded down ("floor"), towards zero ("trunc") or not at all."""
    if rounding_mode is None:
        run_row(b, "self / other", {"self": self, "other": other}, "int_to_float")
    else:
        _divide(b, self, other, _ROUNDED[rounding_mode])
