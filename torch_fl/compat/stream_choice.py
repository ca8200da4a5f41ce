"""`torch.Stream` and `torch.Event` for this device type: classes that make ours or torch's, by the device.

isinstance, issubclass and all other devices are unchanged.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import names
from .streams import TYPE, Event, Stream
from .which import index_of

_BaseStream: Any = torch._C.Stream
_BaseEvent: Any = torch._C.Event


def _is_ours(device: Any) -> bool:
    """Whether a device argument of torch.Stream or torch.Event means our device type."""
    if device is None or isinstance(device, int):
        found = torch._C._accelerator_getAccelerator()
        return found is not None and found.type == "npu"
    return names.is_ours(torch.device(device))


class _Chooser(type(_BaseStream)):  # type: ignore[misc]
    """Makes `torch.Stream(...)` choose the class, and keeps isinstance and issubclass as they were."""

    _base: Any
    _make: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        make = cls.__dict__.get("_make")
        if make is None:  # somebody's subclass
            return super().__call__(*args, **kwargs)
        return make(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        base = cls.__dict__.get("_base")
        return super().__instancecheck__(instance) if base is None else isinstance(instance, base)

    def __subclasscheck__(cls, subclass: type) -> bool:
        base = cls.__dict__.get("_base")
        return super().__subclasscheck__(subclass) if base is None else issubclass(subclass, base)


def _make_stream(*args: Any, **kwargs: Any) -> Any:
    ids = dict(zip(("stream_id", "device_index", "device_type"), args)) if len(args) == 3 else kwargs
    if "device_type" in ids:
        return Stream(**ids) if ids["device_type"] == TYPE else _BaseStream(*args, **kwargs)
    device = args[0] if args else kwargs.get("device")
    if not _is_ours(device):
        return _BaseStream(*args, **kwargs)
    return Stream(index_of(device), kwargs.get("priority", 0))


def _make_event(*args: Any, **kwargs: Any) -> Any:
    device = args[0] if args else kwargs.pop("device", None)
    if not _is_ours(device):
        return _BaseEvent(*(args or (device,)), **kwargs)
    return Event(*args[1:], **kwargs)


def install() -> None:
    """Put the choosing classes in the place of `torch.Stream` and `torch.Event`; once."""
    if torch.Stream is not _BaseStream:
        return
    for name, base, make in (("Stream", _BaseStream, _make_stream), ("Event", _BaseEvent, _make_event)):
        about = {"__doc__": base.__doc__, "__module__": "torch", "__qualname__": name, "_base": base}
        setattr(torch, name, _Chooser(name, (base,), {**about, "_make": staticmethod(make)}))
