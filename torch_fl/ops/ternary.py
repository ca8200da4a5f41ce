"""Ops of three operands: where, masked_fill, clamp, lerp, addcmul, addcdiv."""

from __future__ import annotations

from typing import Any

from ..builder import Builder
from ..registry import kernel
from .rows import pointwise, run_row

pointwise("aten::where.self", "condition != 0 ? self : other", promote=("self", "other"))
pointwise(("aten::masked_fill.Scalar", "aten::masked_fill.Tensor"), "mask != 0 ? value : self", promote=("self",))
pointwise("aten::addcmul", "self + value * tensor1 * tensor2")
pointwise("aten::addcdiv", {"float": "self + value * tensor1 / tensor2"})
pointwise(
    ("aten::lerp.Scalar", "aten::lerp.Tensor"),
    {"float": "fabs(weight) < K(0.5) ? self + weight * (end - self) : end - (end - self) * (1 - weight)"},
)

# A NaN in the tensor or in a bound gives NaN; where the bounds cross, the upper one wins.
_AT_LEAST = "(self < min_ || min_ != min_ ? min_ : self)"
_CLAMP = {
    ("min_",): _AT_LEAST,
    ("max_",): "self > max_ || max_ != max_ ? max_ : self",
    ("min_", "max_"): f"{_AT_LEAST} > max_ || max_ != max_ ? max_ : {_AT_LEAST}",
}


@kernel("aten::clamp", "aten::clamp.Tensor", elementwise=True)
def clamp(b: Builder, self: Any, min: Any, max: Any) -> None:
    """self limited to [min, max], either of which may be missing."""
    bounds = {n: v for n, v in {"min_": min, "max_": max}.items() if v is not None}
    run_row(b, _CLAMP[tuple(bounds)], {"self": self, **bounds})


@kernel("aten::clamp_min", "aten::clamp_min.Tensor", elementwise=True)
def clamp_min(b: Builder, self: Any, min: Any) -> None:
    """self, at least min."""
    clamp(b, self, min, None)


@kernel("aten::clamp_max", "aten::clamp_max.Tensor", elementwise=True)
def clamp_max(b: Builder, self: Any, max: Any) -> None:
    """self, at most max."""
    clamp(b, self, None, max)
