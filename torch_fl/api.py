"""The few functions users call first: init, device, device_count, devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from . import register
from .runtime import devices as _devices
from .runtime.devices import Device
from .runtime.pool_options import PoolOptions


def init(
    backends: str | Sequence[str] | None = None,
    *,
    memory_pool: Mapping[str, Any] | None = None,
    cuda_compat: bool | Literal["force"] | None = None,
    tune: bool | None = None,
) -> None:
    """Open the devices now instead of at first use.

    `backends`: adapter names in order of preference ("opencl", "host", ...); default TORCH_FL_BACKENDS, else every
    adapter, best first. `memory_pool`: options of every device's pool, those of `torch_fl.runtime.pool_options`:
    dict(limit=bytes, fraction=0 to 1, cache_limit=bytes, record_lines=bool); may be changed by a later call.
    `cuda_compat`: True lets "cuda" mean the virtual device where the machine has no CUDA, "force" also where it has,
    False gives the name back; None changes nothing. `tune`: True measures which way of computing is the fastest for
    products and convolutions at their first use (about 0.2 s each) and keeps that on disk for later processes; False
    stops it, None changes nothing. Raises TypeError or ValueError for an option that makes no sense,
    DeviceError where the device type could not be registered, a name is unknown, no device was found, or devices were
    already opened with another choice.
    """
    register.ensure()
    names = [backends] if isinstance(backends, str) else list(backends) if backends is not None else None
    pool = None if memory_pool is None else PoolOptions.of(memory_pool)
    _devices.initialize(names)
    if pool is not None:
        _devices.set_pool(pool)
    if cuda_compat is not None:
        from .compat import cuda

        cuda.enable(cuda_compat) if cuda_compat else cuda.disable()
    if tune is not None:
        from .tuning import ways

        ways.switch(tune)


def device(index: int | None = None) -> torch.device:
    """torch.device("npu:index"); without an index this thread's current device. Raises DeviceError if there is none."""
    register.ensure()
    return torch.device("npu", _devices.device_at(index).index)


def device_count() -> int:
    """Number of opened devices. Raises DeviceError where there is none."""
    return len(devices())


def devices() -> list[Device]:
    """The opened devices in index order, each with `properties`, `backend` and memory counters."""
    register.ensure()
    return list(_devices.devices())
