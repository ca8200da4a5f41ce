"""Files that are written while `cuda` means our device say `cuda:0`, as the same script's files would on CUDA.

So `torch.load(file)` without map_location gives device tensors again, here and on a machine with CUDA. A tensor is
still pickled as a CPU tensor; its storage carries the name of the device as a note, which torch asks for here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import serialization

from ..tensor import Tensor
from .patches import Patch

_NOTE = "_torch_fl_location"


def _storages(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.storage.TypedStorage):
        yield value._untyped_storage
    elif isinstance(value, torch.Tensor):
        yield value.untyped_storage()
    elif isinstance(value, tuple):
        for v in value:
            yield from _storages(v)


def _noting(original: Any) -> Any:
    def __reduce_ex__(self: Tensor, proto: Any) -> Any:
        made = original(self, proto)
        for storage in _storages(made):
            setattr(storage, _NOTE, str(self.device))
        return made

    return __reduce_ex__


def _location(storage: Any) -> str | None:
    return getattr(storage, _NOTE, None)


def _no_storage(storage: Any, location: str) -> None:
    """Loading is left to torch's own entry for cuda."""


_ENTRY: Any = (5, _location, _no_storage)


def install() -> None:
    """Let torch.save ask for our notes, before it asks where the storage is."""
    serialization._package_registry.insert(0, _ENTRY)


def remove() -> None:
    """Stop that."""
    serialization._package_registry.remove(_ENTRY)


def patches() -> Iterator[Patch]:
    """Pickling of our tensors."""
    yield Patch(Tensor, "__reduce_ex__", _noting(Tensor.__reduce_ex__))
