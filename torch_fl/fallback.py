"""Run any aten op on the CPU: bring its tensors over, honour mutation and aliasing, take the results back.

Every device buffer among the arguments becomes one CPU storage, so views of one buffer stay views of one storage on
the CPU, and an output that shares a storage there becomes a view of the device buffer here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .errors import FallbackError, describe_call, message
from .infer import map_tensors
from .runtime import host_memory, settings
from .runtime.adapter import host_bytes
from .runtime.devices import Buffer, Device
from .schema import bind_all, params_of
from .spec import spec_of
from .telemetry import limits, log, records, where
from .tensor import Tensor, set_content, wrap

POLICIES = settings.FALLBACK_POLICIES
_CPU = torch.device("cpu")


class _State:
    policy: str = settings.fallback_policy()
    warned: set[tuple[str, str]] = set()
    calls = 0
    nbytes = 0


class FallbackWarning(UserWarning):
    """An op ran on the CPU because the device has no kernel for it."""


def set_fallback(policy: str) -> None:
    """What to do when an op has no kernel: "allow" it in silence, "warn" once per op and reason, or "error"."""
    if policy not in POLICIES:
        raise ValueError(f"set_fallback takes one of {POLICIES}, got {policy!r}")
    _State.policy = policy


def get_fallback() -> str:
    """The policy in force."""
    return _State.policy


def counts() -> tuple[int, int]:
    """(fallbacks, bytes moved for them) since the process started."""
    return _State.calls, _State.nbytes


def _announce(func: Any, args: Any, kwargs: Any, device: Device, reason: str) -> None:
    """Tell everybody who wants to know, before the op runs. Raises where the policy or a budget forbids it."""
    name = func.name()
    if _State.policy == "error":
        raise FallbackError(
            message(
                f"{name} has no kernel on {device!r} and fallback to the CPU is forbidden",
                call=describe_call(name, args, kwargs),
                because=reason,
                hint='torch_fl.set_fallback("warn") to let it run on the CPU',
            )
        )
    limits.charge_fallback(lambda: describe_call(name, args, kwargs), reason)
    records.fell_back(reason)
    if log.logger.isEnabledFor(logging.INFO):
        log.log_fallback(name, device.index, reason, where.user_line())
    if _State.policy == "warn" and (name, reason) not in _State.warned:
        _State.warned.add((name, reason))
        where.warn(f"{name}: fallback to CPU on npu:{device.index} ({reason})", FallbackWarning)


class _Crossing:
    """The buffers of one call on their way to the CPU and back."""

    def __init__(self) -> None:
        self.storages: dict[int, tuple[Buffer, torch.UntypedStorage]] = {}
        self.originals: dict[int, Tensor] = {}
        self.nbytes = 0
        self._keep: list[torch.Tensor] = []

    def arguments(self, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of the call on the CPU; `originals` then gives the device tensor of each by its identity."""

        def over(tensor: torch.Tensor) -> torch.Tensor:
            moved = self.to_cpu(tensor)
            if isinstance(tensor, Tensor):
                self.originals[id(moved)] = tensor
                self._keep.append(moved)
            return moved

        moved_args = [map_tensors(a, over) for a in args]
        return moved_args, {
            k: _CPU if k == "device" and v is not None else map_tensors(v, over) for k, v in kwargs.items()
        }

    def to_cpu(self, tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, Tensor):
            return tensor
        buffer, spec = tensor._buffer, tensor._spec
        buffer.device.check()
        entry = self.storages.get(id(buffer))
        if entry is None:
            storage = torch.UntypedStorage(buffer.nbytes, device=_CPU)
            if buffer.nbytes:
                buffer.device.backend.copy_d2h(storage_bytes(storage), buffer.handle, 0)
            self.nbytes += buffer.nbytes
            entry = self.storages[id(buffer)] = (buffer, storage)
        flat = torch.empty(0, dtype=spec.dtype, device=_CPU)
        return flat.set_(entry[1], tensor._offset, spec.shape, spec.strides)

    def write_back(self, buffer: Buffer) -> None:
        storage = self.storages[id(buffer)][1]
        if buffer.nbytes:
            buffer.device.backend.copy_h2d(buffer.handle, 0, storage_bytes(storage))
        self.nbytes += buffer.nbytes

    def to_device(self, tensor: torch.Tensor, device: Device) -> Tensor:
        """An output: a view where it shares a storage with an argument, else a new device tensor."""
        if tensor.layout != torch.strided or tensor.is_quantized or isinstance(tensor, Tensor):
            return tensor  # type: ignore[return-value]
        spec = spec_of(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, device)
        cdata = tensor.untyped_storage()._cdata
        for buffer, storage in self.storages.values():
            if storage._cdata == cdata:
                return wrap(buffer, spec, int(tensor.storage_offset()))
        self.nbytes += spec.extent * spec.itemsize
        return upload(tensor, device, keep_holes=True)


def storage_bytes(storage: torch.UntypedStorage) -> memoryview:
    """The bytes of a CPU storage, without a copy; valid while the storage lives."""
    # Not Tensor.numpy(), here and below: it makes a storage one that cannot be resized any more.
    return host_bytes(storage.data_ptr(), storage.nbytes())


def tensor_bytes(flat: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, without a copy; valid while the tensor lives."""
    return host_bytes(flat.data_ptr(), flat.numel() * flat.element_size())


def upload(tensor: torch.Tensor, device: Device, keep_holes: bool = False, non_blocking: bool = False) -> Tensor:
    """A plain CPU tensor on a device, strides kept where they are dense or `keep_holes`; waits unless it is pinned."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor._is_zerotensor():
        tensor = tensor.clone()
    spec = spec_of(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, device)
    if not spec.is_dense and not keep_holes:
        tensor = torch.empty_like(tensor, device=_CPU).copy_(tensor)
        spec = spec_of(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, device)
        if not spec.is_dense:
            tensor = tensor.contiguous()
            spec = spec_of(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, device)
    buffer = device.allocate(spec.extent * spec.itemsize)
    if buffer.nbytes:
        flat = tensor.as_strided((spec.extent,), (1,), tensor.storage_offset())
        send(flat, buffer, 0, non_blocking)
    return wrap(buffer, spec)


def send(flat: torch.Tensor, buffer: Buffer, byte_offset: int, non_blocking: bool) -> None:
    """Copy a contiguous CPU tensor into a buffer; `non_blocking`: the host need not wait if it is in pinned memory."""
    backend = buffer.device.backend
    if non_blocking and host_memory.is_pinned(flat):
        backend.send(buffer.handle, byte_offset, tensor_bytes(flat), flat)
    else:
        backend.copy_h2d(buffer.handle, byte_offset, tensor_bytes(flat))


def download(tensor: Tensor, non_blocking: bool = False) -> torch.Tensor:
    """A device tensor as a plain CPU tensor with the same strides where they are dense, else row-major.

    `non_blocking`: in pinned memory, where the chip has it, which is written only when the chip has got there.
    """
    spec, buffer = tensor._spec, tensor._buffer
    if not spec.is_dense:
        from .ops.copy import contiguous

        tensor = contiguous(tensor)
        if not tensor._spec.is_dense:
            return _Crossing().to_cpu(tensor).clone()
        return download(tensor, non_blocking)
    pinned = host_memory.empty(spec.extent * spec.itemsize, buffer.device.backend) if non_blocking else None
    if pinned is not None:
        start = tensor._offset * spec.itemsize
        buffer.device.backend.fetch(tensor_bytes(pinned), buffer.handle, start, pinned)
        return pinned.view(spec.dtype).as_strided(spec.shape, spec.strides)
    flat = torch.empty(spec.extent, dtype=spec.dtype, device=_CPU)
    if spec.extent:
        buffer.device.backend.copy_d2h(tensor_bytes(flat), buffer.handle, tensor._offset * spec.itemsize)
    buffer.device.check()
    return flat.as_strided(spec.shape, spec.strides)


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: Device, reason: str = "no kernel") -> Any:
    """Run `func` on the CPU for arguments on `device`. Raises FallbackError under the policy "error"."""
    _announce(func, args, kwargs, device, reason)
    crossing = _Crossing()
    cpu_args, cpu_kwargs = crossing.arguments(args, kwargs)
    originals = crossing.originals
    result = call_on_cpu(func, cpu_args, cpu_kwargs)
    bound = bind_all(func, cpu_args, cpu_kwargs)
    _finish_written(func, bound, originals, crossing)
    _State.calls += 1

    def back(tensor: torch.Tensor) -> Any:
        same = originals.get(id(tensor))
        return same if same is not None else crossing.to_device(tensor, device)

    returned = map_tensors(result, back)
    _State.nbytes += crossing.nbytes
    limits.charge_bytes(crossing.nbytes, lambda: describe_call(func.name(), args, kwargs), reason)
    return returned


def copies(args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call copied to the CPU, with the memory they share; nothing is counted."""
    return _Crossing().arguments(args, kwargs)


def call_on_cpu(func: Any, args: Any, kwargs: Any) -> Any:
    """`func` for CPU tensors, by torch's decomposition where there is no CPU kernel."""
    with _lazy_conjugates():
        try:
            return func(*args, **kwargs)
        except NotImplementedError:
            table = torch._decomp.decomposition_table
            if func not in table:
                raise
            return table[func](*args, **kwargs)


_LAZY = tuple(getattr(torch._C.DispatchKey, name) for name in ("Conjugate", "Negative", "ZeroTensor"))


@contextmanager
def _lazy_conjugates() -> Iterator[None]:
    """Let CPU kernels conjugate lazily: torch has switched that off where it called us, but not in those kernels."""
    off = [key for key in _LAZY if torch._C._dispatch_tls_is_dispatch_key_excluded(key)]
    for key in off:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        yield
    finally:
        for key in off:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)


def _finish_written(func: Any, bound: dict[str, Any], originals: dict[int, Tensor], crossing: _Crossing) -> None:
    """Copy what the op wrote back into the device buffers; adopt what it resized."""
    done: set[int] = set()
    for p in params_of(func):
        if not p.written or bound[p.name] is None:
            continue
        written = bound[p.name] if isinstance(bound[p.name], (list, tuple)) else [bound[p.name]]
        for moved in written:
            tensor = originals.get(id(moved))
            if tensor is None:
                continue
            spec = tensor._spec
            now = spec_of(tuple(moved.shape), tuple(moved.stride()), moved.dtype, spec.device)
            storage = moved.untyped_storage()
            if (
                storage._cdata != crossing.storages[id(tensor._buffer)][1]._cdata
                or storage.nbytes() > tensor._buffer.nbytes
            ):
                set_content(tensor, upload(moved, spec.device))
                continue
            if now is not spec or moved.storage_offset() != tensor._offset:
                set_content(tensor, wrap(tensor._buffer, now, moved.storage_offset()))
            if id(tensor._buffer) not in done:
                done.add(id(tensor._buffer))
                crossing.write_back(tensor._buffer)
