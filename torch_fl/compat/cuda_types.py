"""`torch.cuda.FloatTensor` and its kin: constructors, isinstance, `x.type(...)` and the default tensor type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..tensor import Tensor
from .patches import Patch

DTYPES = {
    "BFloat16Tensor": torch.bfloat16, "BoolTensor": torch.bool, "ByteTensor": torch.uint8, "CharTensor": torch.int8,
    "DoubleTensor": torch.float64, "FloatTensor": torch.float32, "HalfTensor": torch.float16,
    "IntTensor": torch.int32, "LongTensor": torch.int64, "ShortTensor": torch.int16,
}  # fmt: skip


class _TensorType(type):
    """The class of torch.cuda.FloatTensor and the others: a constructor that isinstance understands."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """As torch.FloatTensor takes it: sizes, a sequence of values, or a tensor of the same type."""
        host = tuple(a.cpu() if isinstance(a, Tensor) else a for a in args)
        return getattr(torch, cls.__name__)(*host, **kwargs).to("cuda")

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype == cls.dtype


def _make(name: str, dtype: torch.dtype) -> _TensorType:
    about = {"dtype": dtype, "layout": torch.strided, "is_cuda": True, "is_sparse": False, "__module__": "torch.cuda"}
    return _TensorType(name, (), about)


TYPES = {name: _make(name, dtype) for name, dtype in DTYPES.items()}


def find(kind: Any) -> _TensorType | None:
    """The type that a class or a name such as "torch.cuda.FloatTensor" means; None for types of others.

    Raises ValueError for a name in torch.cuda that is no type.
    """
    if isinstance(kind, str):
        base, _, name = kind.rpartition(".")
        if base == "torch.cuda" and name not in TYPES:
            raise ValueError(f"invalid type: '{kind}'")
        return TYPES[name] if base == "torch.cuda" else None
    return kind if isinstance(kind, _TensorType) else None


def _with_cuda_types(original: Any) -> Any:
    chosen = [False]

    def set_default_tensor_type(t: Any, /) -> None:
        """torch.set_default_tensor_type; a type of torch.cuda sets the default dtype and the default device."""
        kind = find(t)
        if kind is None:
            original(t)
        else:
            if not kind.dtype.is_floating_point:
                raise TypeError("only floating-point types are supported as the default type")
            torch.set_default_dtype(kind.dtype)
        if kind is not None or chosen[0]:
            torch.set_default_device(None if kind is None else "cuda")
        chosen[0] = kind is not None

    return set_default_tensor_type


def patches() -> Iterator[Patch]:
    """The types, and the function that makes one the default."""
    for name, kind in TYPES.items():
        yield Patch(torch.cuda, name, kind)
    yield Patch(torch, "set_default_tensor_type", _with_cuda_types(torch.set_default_tensor_type))
