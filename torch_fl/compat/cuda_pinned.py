"""Pinned host memory as scripts for CUDA use it: what `pin_memory` gives says that it is pinned, in any memory.

Where no chip pins, copies to the device are as fast from any memory, so nothing is lost. The mark lies on the storage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..runtime import host_memory
from ..tensor import Tensor
from .patches import Patch

_MARK = "_torch_fl_pinned"


def is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    """Whether the tensor's memory came from pin_memory."""
    return not isinstance(self, Tensor) and (
        host_memory.is_pinned(self) or bool(getattr(self.untyped_storage(), _MARK, False))
    )


def _marked(tensor: torch.Tensor) -> torch.Tensor:
    setattr(tensor.untyped_storage(), _MARK, True)
    return tensor


def _pinning(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        if isinstance(self, Tensor):
            raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
        return self if is_pinned(self) else _marked(original(self))

    return pin_memory


def patches() -> Iterator[Patch]:
    """Methods of torch.Tensor."""
    yield Patch(torch.Tensor, "is_pinned", is_pinned)
    yield Patch(torch.Tensor, "pin_memory", _pinning(torch.Tensor.pin_memory))
