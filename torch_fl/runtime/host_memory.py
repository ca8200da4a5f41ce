"""Pinned host memory: what a chip copies to and from by itself while the host goes on.

An adapter gives it (`Backend.pin`); here it becomes CPU tensors, and is known again by the address of their storage.
Only chips that are open are asked: a program that never uses them keeps plain memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import torch

if TYPE_CHECKING:
    from .adapter import Backend

_pinned: WeakValueDictionary[int, np.ndarray[Any, Any]] = WeakValueDictionary()


def empty(nbytes: int, backend: Backend | None = None) -> torch.Tensor | None:
    """A uint8 CPU tensor [nbytes] in memory that `backend` (None: any open chip) pinned; None where none does."""
    from .devices import opened  # `import torch` loads this module, and is to load little

    for chip in [d.backend for d in opened()] if backend is None else [backend]:
        block = chip.pin(nbytes) if nbytes else None
        if block is not None:
            array = np.frombuffer(block, np.uint8, nbytes)
            _pinned[array.ctypes.data] = array
            return torch.from_numpy(array)
    return None


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether a CPU tensor's storage is memory that a chip pinned."""
    return bool(_pinned) and tensor.untyped_storage().data_ptr() in _pinned


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a CPU tensor in pinned memory, strides kept where they are dense; a plain copy where no chip pins."""
    like = torch.empty_like(tensor, device="meta")
    memory = empty(tensor.numel() * tensor.element_size())
    if memory is None:
        return tensor.clone()
    return memory.view(tensor.dtype).as_strided(like.shape, like.stride()).copy_(tensor)
