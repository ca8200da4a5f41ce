"""Tensor methods that name CUDA: `to`, `cuda`, `type`, `is_cuda`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .. import names
from ..errors import message
from ..tensor import Tensor
from . import cuda_types
from .patches import Patch
from .placement import factory, named, to


def cuda(
    self: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """The tensor on the device (default: the current one), itself if it is there. Raises RuntimeError for the CPU."""
    where = torch.device(names.OWN, device) if isinstance(device, int) else torch.device(named(device or "cuda"))
    if not names.is_ours(where):
        raise RuntimeError(f"Invalid device, must be cuda device, but got {device}")
    return self.to(where, non_blocking=non_blocking, memory_format=memory_format)


def _array_interface(self: torch.Tensor) -> Any:
    raise AttributeError(
        message(
            f"a tensor on {self.device} has no pointer that a CUDA library could read",
            hint="Tensor.cpu() copies it to host memory",
        )
    )


def _typed(original: Any) -> Any:
    def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """torch.Tensor.type, with the types of torch.cuda."""
        if dtype is None:
            return original(self).replace(f"torch.{names.OWN}.", "torch.cuda.")
        kind = cuda_types.find(dtype)
        if kind is None:
            return original(self, dtype, non_blocking, **kwargs)
        where = self.device if self.is_cuda else named("cuda")
        return self.to(where, kind.dtype, non_blocking=non_blocking)

    type_.__name__ = "type"
    return type_


def patches() -> Iterator[Patch]:
    """Methods of torch.Tensor and of our class."""
    from .. import dispatch  # noqa: F401 - it completes the class, whose methods are wrapped here

    yield Patch(Tensor, "to", to(Tensor.to))
    yield Patch(Tensor, "new_tensor", factory(Tensor.new_tensor))
    yield Patch(torch.Tensor, "cuda", cuda)
    yield Patch(torch.Tensor, "type", _typed(torch.Tensor.type))
    yield Patch(Tensor, "is_cuda", property(lambda self: True))
    yield Patch(Tensor, "__cuda_array_interface__", property(_array_interface))
