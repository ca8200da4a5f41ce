"""Moving and making tensors: empty, copy_, to, clone, item, and everything that crosses between host and device."""

from __future__ import annotations

from typing import Any

import torch

from .. import names
from ..builder import Builder
from ..compat.streams import lane_of
from ..decomposition import home
from ..dispatch import call, op_of, planned
from ..fallback import download, send, tensor_bytes, upload
from ..kernels.pointwise import emit_copy
from ..refs import Ref
from ..registry import handler, kernel
from ..runtime import host_memory
from ..runtime.devices import Device
from ..schema import NotOurs
from ..spec import Spec, contiguous_spec, spec_of
from ..tensor import NPU0, Tensor, empty, empty_spec, give_layout, set_content, wrap, wrap_view

_ATEN = torch.ops.aten
_CPU = torch.device("cpu")
_STRIDED = (None, torch.strided)


def _check_layout(layout: torch.layout | None) -> None:
    if layout not in _STRIDED:
        raise NotImplementedError(f"npu tensors are strided; {layout} is not supported. try: make it on the CPU")


@handler("aten::empty.memory_format")
def empty_memory_format(
    size: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> Tensor:
    """A tensor with undefined contents; row-major, or channels-last where asked."""
    _check_layout(layout)
    dtype = dtype or torch.get_default_dtype()
    where = home(device)
    if min(size, default=0) < 0:
        torch.empty(size, dtype=dtype)  # raises; beside a size of 0 nothing else would
    if memory_format in (None, torch.contiguous_format):
        return empty(tuple(size), dtype, where)
    meta = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format)
    return empty_spec(spec_of(tuple(meta.shape), tuple(meta.stride()), dtype, where))


@handler("aten::empty_strided")
def empty_strided(
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """A tensor of a given layout with undefined contents."""
    _check_layout(layout)
    if any(n < 0 for n in (*size, *stride)):
        torch.empty_strided(size, stride, dtype=dtype)  # raises: nothing is allocated for negative sizes
    return empty_spec(spec_of(tuple(size), tuple(stride), dtype or torch.get_default_dtype(), home(device)))


def contiguous(tensor: Tensor) -> Tensor:
    """`tensor` itself if row-major, else a row-major copy on its device."""
    if tensor._spec.is_contiguous:
        return tensor
    copy = empty(tensor._spec.shape, tensor._spec.dtype, tensor._spec.device)
    call(_ATEN.copy_.default, (copy, tensor), {})
    return copy


def to_device(tensor: torch.Tensor, device: Device, non_blocking: bool = False) -> Tensor:
    """`tensor` on `device` with its strides where they are dense; itself if it is there."""
    if not isinstance(tensor, Tensor):
        return upload(tensor, device, non_blocking=non_blocking)
    if tensor._spec.device is device:
        return tensor
    dense = tensor if tensor._spec.is_dense else contiguous(tensor)
    spec = dense._spec
    copy = empty_spec(spec_of(spec.shape, spec.strides, spec.dtype, device))
    return copy if _from_peer(copy, dense) else upload(download(tensor), device)


def _from_peer(target: Tensor, source: Tensor) -> bool:
    """Copy between two chips that can, without the host; both dense and of one layout. Raises what `source` noted."""
    (here, to), (there, of) = ((t._spec.device, t) for t in (target, source))
    there.check()
    size = to._spec.itemsize
    places = to._buffer.handle, to._offset * size, there.backend, of._buffer.handle, of._offset * size
    return not to._spec.extent or here.backend.copy_peer(*places, to._spec.extent * size)


def _same_device(self: torch.Tensor, device: torch.device | None) -> bool:
    """Whether a request for `device` is served where `self` is."""
    if device is None:
        return True
    here: Device = self._spec.device  # type: ignore[attr-defined]
    return names.is_ours(device) and (device.index is None or home(device) is here)


@kernel("aten::copy_", elementwise=True)
def copy_kernel(b: Builder, self: Ref, src: Ref) -> None:
    """self[...] = src, broadcast and cast, on one chip."""
    if isinstance(src, Ref):
        emit_copy(b, self, src)
    else:
        b.fill(self, src)


@handler("aten::copy_")
def copy_(self: torch.Tensor, src: Any, non_blocking: bool = False) -> torch.Tensor:
    """self[...] = src wherever the two are (or a number); between chips and host blocking, but for pinned memory."""
    if not isinstance(src, torch.Tensor):
        return planned(_COPY, (self, src), {})  # type: ignore[no-any-return]
    if type(self) is Tensor and type(src) is Tensor and self._spec.device is src._spec.device:
        if self is src or (self._spec.numel == 0 and src._spec.numel in (0, 1)):
            return self
        return planned(_COPY, (self, src), {})  # type: ignore[no-any-return]
    if type(self) is Tensor:
        if src.dim() and self._spec.is_contiguous and src.dtype == self._spec.dtype and src.shape == self.shape:
            write(self, src, non_blocking)
            return self
        return planned(_COPY, (self, to_device(src, self._spec.device, non_blocking)), {})  # type: ignore[no-any-return]
    if type(src) is not Tensor:
        raise NotOurs
    if non_blocking and _fetch(self, src):
        return self
    return self.copy_(download(src))


def _fetch(target: torch.Tensor, source: Tensor) -> bool:
    """Start a copy to pinned memory; False where the two are not alike, or the memory is not pinned."""
    spec = source._spec
    alike = target.dtype == spec.dtype and tuple(target.shape) == spec.shape and target.is_contiguous()
    if not (alike and spec.is_contiguous and spec.numel and host_memory.is_pinned(target)):
        return False
    flat = target.detach().as_strided((spec.numel,), (1,))
    source._spec.device.backend.fetch(tensor_bytes(flat), source._buffer.handle, source._offset * spec.itemsize, flat)
    return True


@handler("aten::_copy_from")
def copy_from(self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """What torch's own copy_ calls on the device: dst[...] = self."""
    return copy_(dst, self, non_blocking)  # type: ignore[no-any-return]


def write(target: Tensor, source: torch.Tensor, non_blocking: bool = False) -> None:
    """Copy a tensor from the host (or another chip) into a row-major tensor of the same shape and dtype."""
    if type(source) is Tensor and _from_peer(target, contiguous(source)):
        return
    cpu = download(source) if type(source) is Tensor else source
    dense = cpu.detach().resolve_conj().resolve_neg().contiguous()
    if dense.numel():
        flat = dense.as_strided((dense.numel(),), (1,))  # a view keeps the stride of a single element, even 0
        send(flat, target._buffer, target._offset * target._spec.itemsize, non_blocking)


_COPY = op_of(_ATEN.copy_.default)


@kernel("aten::_to_copy", "aten::clone", elementwise=True)
def to_copy_kernel(b: Builder, self: Ref) -> None:
    """A copy on the same chip in the dtype and strides torch infers."""
    emit_copy(b, b.out(), self)


@handler("aten::_to_copy")
def to_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """A copy in another dtype, on another device, or in another memory format."""
    if layout not in _STRIDED:
        return _ATEN._to_copy.default(download(self), layout=layout, dtype=dtype)  # type: ignore[no-any-return, arg-type]
    # Only C++ names a layout: these are its own options of a tensor (backward of a cast), in which every index is 0.
    options = layout is not None and device == NPU0
    if type(self) is Tensor and (options or _same_device(self, device)):
        return planned(_TO_COPY, (self,), {"dtype": dtype, "memory_format": memory_format})  # type: ignore[no-any-return]
    if device is not None and names.is_ours(device):
        where = home(device)
        if type(self) is Tensor and dtype in (None, self.dtype) and memory_format in (None, torch.preserve_format):
            return to_device(self, where)
        plain = download(self) if type(self) is Tensor else self
        if dtype not in (None, plain.dtype) or memory_format not in (None, torch.preserve_format):
            plain = _ATEN._to_copy.default(plain, dtype=dtype, memory_format=memory_format)
        return upload(plain, where, non_blocking=non_blocking)
    if type(self) is not Tensor:
        raise NotOurs
    at_once = dtype in (None, self.dtype) and memory_format in (None, torch.preserve_format) and device == _CPU
    plain = download(self, non_blocking and at_once)
    if at_once:
        return plain
    return _ATEN._to_copy.default(plain, dtype=dtype, device=device, memory_format=memory_format)  # type: ignore[no-any-return]


_TO_COPY = op_of(_ATEN._to_copy.default)


@kernel("aten::fill.Scalar", "aten::fill.Tensor", elementwise=True)
def fill(b: Builder, self: Ref, value: Any) -> None:
    """Every element becomes `value`."""
    if isinstance(value, Ref):
        b.copy(b.out(), value)
    else:
        b.fill(b.out(), value)


@kernel("aten::zero", elementwise=True)
def zero(b: Builder, self: Ref) -> None:
    """Every element becomes 0."""
    b.fill(b.out(), 0)


@handler("aten::_local_scalar_dense")
def local_scalar_dense(self: Tensor) -> Any:
    """The one element as a Python number; waits for the device."""
    return download(self).item()


@handler("aten::as_strided")
def as_strided(self: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Tensor:
    """Any layout over the same buffer; `storage_offset` counts from the start of the buffer."""
    spec, offset = _strided_spec(self, size, stride, storage_offset)
    return wrap_view(self, spec, offset)


@handler("aten::_unsafe_view")
def unsafe_view(self: Tensor, size: list[int]) -> Tensor:
    """view without autograd's bookkeeping; torch's own kernel would make a plain tensor without our buffer."""
    return _ATEN.view.default(self, size)  # type: ignore[no-any-return]


@handler("aten::as_strided_")
def as_strided_(self: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Tensor:
    """The same in place: the tensor itself changes its layout."""
    spec, offset = _strided_spec(self, size, stride, storage_offset)
    set_content(self, wrap(self._buffer, spec, offset))
    return self


def _strided_spec(self: Tensor, size: list[int], stride: list[int], storage_offset: int | None) -> tuple[Spec, int]:
    spec = spec_of(tuple(size), tuple(stride), self._spec.dtype, self._spec.device)
    offset = self._offset if storage_offset is None else storage_offset
    if offset < 0 or any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if spec.numel and (offset + spec.extent) * spec.itemsize > self._buffer.nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize "
            f"{spec.itemsize} requiring a storage size of {(offset + spec.extent) * spec.itemsize} are out of bounds "
            f"for storage of size {self._buffer.nbytes}"
        )
    return spec, offset


@handler("aten::resize_")
def resize_(self: Tensor, size: list[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """`size` in place, row-major unless it is the present one or `memory_format` is another; elements keep their place
    in the buffer, which grows where it must.
    """
    spec, shape = self._spec, tuple(size)
    if memory_format not in (None, torch.preserve_format):
        strides = torch.empty(shape, device="meta", memory_format=memory_format).stride()
        give_layout(self, spec_of(shape, strides, spec.dtype, spec.device))
    elif spec.shape != shape:
        give_layout(self, contiguous_spec(shape, spec.dtype, spec.device))
    return self


@handler("aten::set_.source_Tensor")
def set_source_tensor(self: Tensor, source: Tensor) -> Tensor:
    """self becomes the same view of the same buffer as `source`."""
    set_content(self, wrap(source._buffer, source._spec, source._offset))
    return self


@handler("aten::_conj")
def conj(self: Tensor) -> Tensor:
    """A conjugated copy: there is no lazy conjugate bit on these devices."""
    return _ATEN.conj_physical.default(self) if self.dtype.is_complex else _ATEN.alias.default(self)  # type: ignore[no-any-return]


@handler("aten::_neg_view")
def neg_view(self: Tensor) -> Tensor:
    """A negated copy: there is no lazy negative bit on these devices."""
    return _ATEN.neg.default(self)  # type: ignore[no-any-return]


@handler("aten::is_pinned")
def is_pinned(self: Tensor, device: torch.device | None = None) -> bool:
    """Device memory is never pinned host memory."""
    return False


@handler("aten::record_stream")
def record_stream(self: Tensor, s: Any) -> None:
    """Keep the memory from other streams until what `s` has when the tensor is freed is done."""
    lane = lane_of(s)
    lane.device.streams.record(lane, self._buffer.handle)


@handler("aten::_has_compatible_shallow_copy_type")
def has_compatible_shallow_copy_type(self: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether `.data` of one can be set to the other; inference mode sends this C++ question here whole."""
    func: Any = _ATEN._has_compatible_shallow_copy_type.default
    return bool(func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, self, other))
