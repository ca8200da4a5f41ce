"""What an op may write: torch's rules for elements that are reached twice, and for operands that share memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .infer import find_tensors
from .schema import params_of
from .spec import Spec
from .tensor import Tensor

SAME_VALUE = ("aten::fill_.Scalar", "aten::zero_", "aten::_foreach_zero_")
"""Ops that write one value everywhere: an element that is reached twice does no harm."""
LEFT_TO_CPU = (
    "aten::masked_fill_", "aten::index_fill_", "aten::index_put_", "aten::_index_put_impl_", "aten::threshold_",
    "aten::tril_", "aten::triu_", "aten::baddbmm_", "aten::addmv_",
)  # fmt: skip
"""Ops that torch lets write an element twice, some with a warning: what they leave there depends on the order."""


def is_left_to_cpu(func: Any, bound: Mapping[str, Any]) -> bool:
    """Whether only a loop in torch's own order gives what torch gives. torch looks for strides of 0 and no further."""
    twice = [t._spec for _, t in _written(func, bound) if t._spec.overlaps_itself]
    if func.name() in SAME_VALUE:
        return False
    return any(func._schema.name in LEFT_TO_CPU or not _repeats(spec) for spec in twice)


def _repeats(spec: Spec) -> bool:
    return spec.numel > 0 and any(s == 0 and n > 1 for n, s in zip(spec.shape, spec.strides))


def check(func: Any, bound: Mapping[str, Any]) -> None:
    """Raise torch's RuntimeError where a written tensor reaches an element twice or overlaps an input in part."""
    for name, target in _written(func, bound):
        if _repeats(target._spec) and func.name() not in SAME_VALUE:
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location. Please clone() the tensor before performing the operation."
            )
        for other in find_tensors([v for n, v in bound.items() if n != name]):
            if other is not target and _partly_overlap(target, other):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                    "single memory location. Please clone() the tensor before performing the operation."
                )


def _written(func: Any, bound: Mapping[str, Any]) -> list[tuple[str, Tensor]]:
    """The device tensors an op writes, with the name of their argument."""
    names = [p.name for p in params_of(func) if p.written]
    return [(n, t) for n in names for t in find_tensors([bound.get(n)])]


def _partly_overlap(a: Tensor, b: Tensor) -> bool:
    if a._buffer is not b._buffer or not a._spec.is_dense or not b._spec.is_dense:
        return False  # torch decides nothing for layouts with holes either
    if a._spec is b._spec and a._offset == b._offset:
        return False
    return meet(byte_range(a), byte_range(b))


def byte_range(tensor: Tensor) -> tuple[int, int]:
    """The bytes of its buffer that a tensor reaches: the first, and one past the last."""
    spec = tensor._spec
    return tensor._offset * spec.itemsize, (tensor._offset + spec.extent) * spec.itemsize


def meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two ranges of bytes have one in common."""
    return a[0] < b[1] and b[0] < a[1]
