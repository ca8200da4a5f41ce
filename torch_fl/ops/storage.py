"""`set_` from a storage: how torch.load rebuilds a tensor, with the storages that tensors share kept shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..compat.storage import DeviceStorage
from ..registry import handler
from ..spec import contiguous_strides, spec_of
from ..tensor import Tensor, set_content, wrap

_SAME_DEVICE = (
    'Attempted to set the storage of a tensor on device "{}" to a storage on different device "{}".  This is no longer '
    "allowed; the devices must match."
)


@handler("aten::set_.source_Storage")
def set_source_storage(self: Tensor, source: Any) -> Tensor:
    """All of the storage as one dimension."""
    set_source_storage_offset(self, source, 0, [source.nbytes() // self._spec.itemsize])
    return self


@handler("aten::set_.source_Storage_storage_offset")
def set_source_storage_offset(
    self: Tensor, source: Any, storage_offset: int, size: Sequence[int], stride: Sequence[int] = ()
) -> Tensor:
    """`self` becomes a view of the storage; it keeps its dtype. Raises RuntimeError where it does not fit."""
    if not isinstance(source, DeviceStorage):
        raise RuntimeError(_SAME_DEVICE.format(self.device, source.device))
    shape, buffer = tuple(size), source._buffer
    spec = spec_of(shape, tuple(stride) or contiguous_strides(shape), self._spec.dtype, buffer.device)
    needed = (storage_offset + spec.extent) * spec.itemsize if spec.numel else 0
    if storage_offset < 0 or needed > buffer.nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(spec.strides)}, storage offset {storage_offset}, and "
            f"itemsize {spec.itemsize} requiring a storage size of {needed} are out of bounds for storage of size "
            f"{buffer.nbytes}"
        )
    set_content(self, wrap(buffer, spec, storage_offset))
    return self


@handler("aten::set_")
def set_nothing(self: Tensor) -> Tensor:
    """An empty tensor of the same dtype."""
    made = torch.empty(0, dtype=self._spec.dtype, device=self.device)
    set_content(self, made)  # type: ignore[arg-type]
    return self
