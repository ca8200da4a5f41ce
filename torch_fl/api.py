"""The few functions users call first: init, device, device_count, devices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import register
from .runtime import devices as _devices
from .runtime.devices import Device
from .tensor import torch_device


def init(backends: str | Sequence[str] | None = None) -> None:
    """Open the devices now instead of at first use.

    `backends`: adapter names in order of preference ("opencl", "host", ...); default TORCH_FL_BACKENDS, else every
    adapter, best first. Raises DeviceError where the device type could not be registered, a name is unknown, no
    device was found, or devices were already opened with another choice.
    """
    register.ensure()
    names = [backends] if isinstance(backends, str) else list(backends) if backends is not None else None
    _devices.initialize(names)


def device(index: int | None = None) -> torch.device:
    """torch.device("npu:index"); without an index this thread's current device. Raises DeviceError if there is none."""
    register.ensure()
    return torch_device(_devices.device_at(index))


def device_count() -> int:
    """Number of opened devices. Raises DeviceError where there is none."""
    return len(devices())


def devices() -> list[Device]:
    """The opened devices in index order, each with `properties`, `backend` and memory counters."""
    register.ensure()
    return list(_devices.devices())
