"""The wrapper subclass: torch sees an `npu:0` tensor without storage, we keep metadata (Spec) and a Buffer.

To C++ every such tensor lives on index 0: the Python device guard knows one device, and backward on another index
would hit an assert in the autograd engine. The real index is in the Spec and shown by the Python property `device`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import names, register
from .runtime.devices import Buffer, Device
from .spec import Spec, contiguous_spec

_make: Callable[..., Any] = torch.Tensor._make_wrapper_subclass
inference_on: Callable[[], bool] = torch.is_inference_mode_enabled
register.ensure()  # raises DeviceError with the reason where torch does not know the device type
NPU0 = torch.device("npu", 0)


class Tensor(torch.Tensor):
    """A tensor on a virtual device. Users never name this class: torch functions return it."""

    _buffer: Buffer
    _spec: Spec
    _offset: int

    # Without this every torch function on the tensor takes the slow __torch_function__ route.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """`type(p)(data, requires_grad=...)`, which libraries write to make another parameter; else as torch.Tensor."""
        made: type[torch.Tensor] = torch.nn.Parameter if "requires_grad" in kwargs else torch.Tensor
        return made(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError  # replaced by dispatch.install(): the route needs this module first


WRAPPER = (_make, Tensor, NPU0)
"""What the compiled hit path makes tensors with."""


def layout_of(spec: Spec) -> tuple[Any, ...]:
    """A tensor's metadata as the compiled hit path takes it."""
    return spec.shape, spec.strides, spec.dtype, spec.row_major


def wrap(buffer: Buffer, spec: Spec, offset: int = 0) -> Tensor:
    """A tensor over `buffer`: no copy. `offset` in elements."""
    tensor = (
        _make(Tensor, spec.shape, dtype=spec.dtype, device=NPU0)
        if spec.row_major and not offset
        else _make(Tensor, spec.shape, spec.strides, offset, dtype=spec.dtype, device=NPU0)
    )
    tensor._buffer = buffer
    tensor._spec = spec
    tensor._offset = offset
    return tensor  # type: ignore[no-any-return]


def wrap_view(base: Tensor, spec: Spec, offset: int) -> Tensor:
    """A view of `base`: shares its buffer. Under inference mode a view of a normal tensor must be a normal tensor."""
    if inference_on() and not base.is_inference():
        with torch.inference_mode(False):
            return wrap(base._buffer, spec, offset)
    return wrap(base._buffer, spec, offset)


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: Device) -> Tensor:
    """A row-major tensor with undefined contents."""
    spec = contiguous_spec(shape, dtype, device)
    return wrap(device.allocate(spec.numel * spec.itemsize), spec)


def empty_spec(spec: Spec) -> Tensor:
    """A tensor with the given layout and undefined contents."""
    return wrap(spec.device.allocate(spec.extent * spec.itemsize), spec)


def give_layout(tensor: Tensor, spec: Spec) -> None:
    """Change a tensor's shape and strides in place; a buffer that is too small is replaced, its contents kept."""
    buffer, nbytes = tensor._buffer, (tensor._offset + spec.extent) * spec.itemsize
    if nbytes > buffer.nbytes:
        grown = spec.device.allocate(nbytes)
        if buffer.nbytes:
            spec.device.backend.copy_d2d(grown.handle, 0, buffer.handle, 0, buffer.nbytes)
        buffer = grown
    set_content(tensor, wrap(buffer, spec, tensor._offset))


def set_content(tensor: Tensor, source: Tensor) -> None:
    """Make `tensor` the same view of the same buffer as `source`, for C++ and for us; identity is kept."""
    with torch.no_grad():
        torch.Tensor.data.__set__(tensor, source)  # type: ignore[attr-defined]
    tensor._buffer, tensor._spec, tensor._offset = source._buffer, source._spec, source._offset


def torch_device(device: Device) -> torch.device:
    """The torch.device users see."""
    return names.shown(device.index)
