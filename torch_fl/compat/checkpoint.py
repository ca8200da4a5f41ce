"""Checkpoints hold no device: a tensor is pickled as the CPU tensor with the same bytes, layout and sharing.

So torch.save, pickle, other processes and safetensors work as they are, and a file can be loaded where there is no
torch_fl. `save` and `load` go further: they also take devices out of configurations, and choose one when loading.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import types
import weakref
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import IO, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import names
from ..runtime.devices import Buffer
from ..tensor import Tensor
from .module_apply import OURS

File = str | Path | IO[bytes] | io.BytesIO
_pickled: weakref.WeakKeyDictionary[Buffer, StorageWeakRef] = weakref.WeakKeyDictionary()
"""Host copies that a pickler still holds: tensors that share a buffer go into one file with one storage."""


def reduce_ex(self: Tensor, proto: Any) -> Any:
    """Pickle as a CPU tensor over a copy of the whole storage, as torch does: views stay views of one storage."""
    spec = self._spec
    host: torch.Tensor = torch.empty(0, dtype=spec.dtype)
    host.set_(_host_storage(self._buffer), self._offset, spec.shape, spec.strides)
    if isinstance(self, torch.nn.Parameter):
        host = torch.nn.Parameter(host, self.requires_grad)
    elif self.requires_grad:
        host.requires_grad_()
    vars(host).update({k: v for k, v in vars(self).items() if k not in OURS})
    return host.__reduce_ex__(proto)


def _host_storage(buffer: Buffer) -> torch.UntypedStorage:
    """A copy of a buffer on the host; the same one while a pickler holds it."""
    known = _pickled.get(buffer)
    if known is not None:
        found = torch.UntypedStorage._new_with_weak_ptr(known.cdata)
        if found is not None:
            return found
    from .storage import storage_of

    copied = storage_of(buffer).cpu()
    _pickled[buffer] = StorageWeakRef(copied)
    return copied


def _reduce_for_process(self: Tensor) -> Any:
    """To another process go the bytes themselves: shared memory would be freed with the copy before it is read."""
    return pickle.loads, (pickle.dumps(self, pickle.HIGHEST_PROTOCOL),)


ForkingPickler.register(Tensor, _reduce_for_process)


def _plain_device(device: torch.device) -> Any:
    plain = torch.device("cpu") if names.is_ours(device) else device
    return torch.device, (plain.type,) if plain.index is None else (plain.type, plain.index)


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table | {torch.device: _plain_device}


_pickle = types.ModuleType("pickle")
_pickle.Pickler = _Pickler  # type: ignore[attr-defined]


def save(obj: Any, f: File, **options: Any) -> None:
    """torch.save of a file that names no device: every torch.device("npu") in `obj` is written as the CPU's.

    Takes torch.save's options except pickle_module.
    """
    torch.save(obj, f, pickle_module=_pickle, **options)


def load(f: File, device: torch.device | str | int | None = None, **options: Any) -> Any:
    """torch.load onto `device`: a virtual one by index or name, "cpu", or the current virtual device by default.

    Only tensors and plain values are accepted, as torch.load's default is; `weights_only=False` runs whatever code the
    file holds. Raises pickle.UnpicklingError for a file that asks for more.
    """
    from .. import api

    where = api.device(device) if device is None or isinstance(device, int) else torch.device(device)
    return torch.load(f, map_location=where, **{"weights_only": True, **options})
