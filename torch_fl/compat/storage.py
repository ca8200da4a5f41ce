"""Storages of device tensors: what `untyped_storage()` returns, and what torch.load builds tensors from.

A wrapper has no C++ storage that means anything, and torch would end the process where it makes one for a device type
without an allocator. A `DeviceStorage` stands in: to C++ an empty CPU storage, to Python the bytes of a Buffer.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch

from .. import names
from ..errors import Error, message

if TYPE_CHECKING:
    from ..runtime.devices import Buffer
    from ..tensor import Tensor

_next_address = 1 << 62
_lock = threading.Lock()
_addresses: weakref.WeakKeyDictionary[Buffer, int] = weakref.WeakKeyDictionary()
_storages: weakref.WeakValueDictionary[int, DeviceStorage] = weakref.WeakValueDictionary()


def address_of(buffer: Buffer) -> int:
    """A number that is this buffer's alone while the process lives. No memory lies there, neither host's nor chip's."""
    global _next_address
    found = _addresses.get(buffer)
    if found is None:
        with _lock:
            found = _addresses.setdefault(buffer, _next_address)
            _next_address += (buffer.nbytes // 512 + 1) * 512
    return found


def storage_of(buffer: Buffer) -> DeviceStorage:
    """The storage of a buffer: one object as long as somebody holds it."""
    at = address_of(buffer)
    found = _storages.get(at)
    if found is None:
        found = DeviceStorage.__new__(DeviceStorage)
        found._buffer = buffer
        found = _storages.setdefault(at, found)
    return found


def data_ptr(self: Tensor) -> int:
    """A number that tells whether tensors share memory, as users of `data_ptr` ask; not an address one can read."""
    if not self._spec.numel:
        return 0
    return address_of(self._buffer) + self._offset * self._spec.itemsize


def untyped_storage(self: Tensor) -> DeviceStorage:
    """The bytes that this tensor and its views share."""
    return storage_of(self._buffer)


class DeviceStorage(torch.UntypedStorage):
    """The bytes of one buffer. Pickled, it is a CPU storage with the same bytes."""

    _buffer: Buffer

    def _flat(self) -> Tensor:
        from ..spec import contiguous_spec
        from ..tensor import wrap

        buffer = self._buffer
        return wrap(buffer, contiguous_spec((buffer.nbytes,), torch.uint8, buffer.device))

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where the bytes are."""
        return names.shown(self._buffer.device.index)

    @property
    def _cdata(self) -> int:
        return address_of(self._buffer)

    def data_ptr(self) -> int:
        """As of a tensor at its start."""
        return address_of(self._buffer) if self._buffer.nbytes else 0

    def nbytes(self) -> int:
        """Size in bytes."""
        return self._buffer.nbytes

    size = nbytes
    __len__ = nbytes

    def cpu(self) -> torch.UntypedStorage:
        """A copy in host memory."""
        return self._flat().cpu().untyped_storage()

    def tolist(self) -> list[int]:
        """The bytes; waits for the device."""
        return self._flat().tolist()

    def clone(self) -> DeviceStorage:
        """A copy on the same chip."""
        return storage_of(self._flat().clone()._buffer)  # type: ignore[attr-defined]

    def copy_(self, source: Any, non_blocking: bool | None = None) -> DeviceStorage:  # type: ignore[override]
        """Take the bytes of another storage of the same size. Raises RuntimeError for another size."""
        if source.nbytes() != self.nbytes():
            raise RuntimeError(
                f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes"
            )
        if self.nbytes():
            self._flat().copy_(_flat_of(source))
        return self

    def _set_from_file(self, *where: Any) -> DeviceStorage:
        host = torch.UntypedStorage(self.nbytes())
        host._set_from_file(*where)
        return self.copy_(host)

    def fill_(self, value: int) -> DeviceStorage:
        """Every byte becomes `value`."""
        self._flat().fill_(value)
        return self

    def resize_(self, size: int) -> DeviceStorage:
        """Give the memory back with 0, get memory with more; what was there stays. Tensors keep their shapes.

        Raises RuntimeError for a smaller size other than 0: tensors rely on the bytes they have.
        """
        if size > self.nbytes() or not size:
            _resize(self._buffer, size)
        elif size < self.nbytes():
            raise RuntimeError(
                message(
                    f"the storage of a tensor on {self.device} cannot be cut from {self.nbytes()} bytes to {size}",
                    because="tensors over it may reach beyond",
                    hint="resize_(0), which gives all of it back",
                )
            )
        return self

    def __getitem__(self, index: Any) -> Any:
        found = self._flat()[index]
        return found.item() if found.dim() == 0 else storage_of(found.contiguous()._buffer)  # type: ignore[attr-defined]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._flat()[index] = value

    def byteswap(self, dtype: torch.dtype) -> None:
        """Reverse the bytes of each element, in place."""
        swapped = self.cpu()
        swapped.byteswap(dtype)
        self.copy_(swapped)

    def is_pinned(self, device: Any = "npu") -> bool:
        """False: this is not host memory."""
        return False

    def is_shared(self) -> bool:
        """True, as for CUDA: there is nothing to do before another process is sent the tensor's values."""
        return True

    def share_memory_(self) -> DeviceStorage:
        """Does nothing, as for CUDA."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceStorage:
        from ..tensor_methods import _copied

        return storage_of(_copied(self._buffer, memo))

    def __reduce_ex__(self, proto: Any) -> Any:
        return self.cpu().__reduce_ex__(proto)

    def __repr__(self) -> str:
        return f"[{type(self).__name__}(device={self.device}) of size {self.nbytes()}]"

    __str__ = __repr__


class _NoMemory:
    """In the place of a handle: whoever uses it is told. Drivers ask handles for other things each."""

    def __getattr__(self, name: str) -> Any:
        raise Error(
            message(
                "a tensor has no memory",
                because="its storage was resized to 0 bytes",
                hint="untyped_storage().resize_(nbytes) before it is used again",
            )
        )


def _resize(buffer: Buffer, size: int) -> None:
    device, old = buffer.device, buffer.nbytes
    if not size:
        buffer.swap(type(buffer)(device, _NoMemory(), 0, [], device.memory.counters))
        return
    grown = device.allocate(size)
    if old:
        device.backend.copy_d2d(grown.handle, 0, buffer.handle, 0, old)
    buffer.swap(grown)
    _move_address(buffer)


def _move_address(buffer: Buffer) -> None:
    """A buffer that has grown gets a range of numbers of its size."""
    at = _addresses.pop(buffer, None)
    storage = _storages.pop(at, None) if at is not None else None
    if storage is not None:
        _storages[address_of(buffer)] = storage


def _flat_of(storage: torch.UntypedStorage) -> torch.Tensor:
    if isinstance(storage, DeviceStorage):
        return storage._flat()
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """torch.UntypedStorage(nbytes, device="npu") is a DeviceStorage; everything else is torch's own."""
    if device is None or not names.is_ours(torch.device(device)):
        given = kwargs if device is None else {**kwargs, "device": device}
        return torch._C.StorageBase.__new__(cls, *args, **given)
    flat = torch.empty(0 if not args or not isinstance(args[0], int) else args[0], dtype=torch.uint8, device=device)
    if args and not isinstance(args[0], int):
        flat = torch.tensor(list(args[0]), dtype=torch.uint8, device=device)
    return storage_of(flat._buffer)  # type: ignore[attr-defined]


def install() -> None:
    """Route torch.UntypedStorage(..., device="npu") to DeviceStorage; done once, at registration."""
    torch.UntypedStorage.__new__ = _new  # type: ignore[method-assign]
