"""What users see when a driver fails: the op, the call and the device, with the driver's own exception as the cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .. import names
from ..errors import DeviceError, Error, OutOfMemoryError, describe_call, message
from . import devices
from .devices import Device


def explain(error: Exception, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Error | None:
    """The error to raise instead of a driver's exception in a call of `func`; None for every other exception."""
    if isinstance(error, Error) or not devices.is_initialized():
        return None
    for device in [*_of(args, kwargs), *devices.devices()]:
        backend = device.backend
        for kinds, told, what in (
            (backend.memory_errors, OutOfMemoryError, "ran out of memory"),
            (backend.driver_errors, DeviceError, "failed"),
        ):
            if isinstance(error, kinds):
                call, because = describe_call(func.name(), args, kwargs), f"{type(error).__name__}: {error}"
                return told(message(f"{func.name()} {what} on {device!r}", call=call, because=because))
    return None


def _of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Device]:
    """The devices a call names, by its tensors and by `device=`."""
    yield from (a._spec.device for a in args if isinstance(a, torch.Tensor) and hasattr(a, "_spec"))
    wanted = kwargs.get("device")
    if isinstance(wanted, torch.device) and names.is_ours(wanted):
        yield devices.device_at(wanted.index)
