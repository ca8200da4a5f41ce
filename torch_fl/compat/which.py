"""What a device argument of `torch.npu` names: an index, a string, a torch.device, or None for the current device."""

from __future__ import annotations

from typing import Any

import torch

from .. import names

DeviceLike = torch.device | str | int | None


def opened() -> Any:
    """The module that knows the opened devices; imported at first use, because registration must stay light."""
    from ..runtime import devices

    return devices


def index_of(device: DeviceLike) -> int:
    """The index that a device argument names. Raises ValueError for other types."""
    if device is None:
        return int(opened().current_index())
    if isinstance(device, int):
        return device
    wanted = torch.device(device)
    if not names.is_ours(wanted):
        raise ValueError(f"Expected a {names.name()} device, but got: {device}")
    return int(opened().current_index()) if wanted.index is None else wanted.index


def device_of(device: DeviceLike) -> Any:
    """The opened chip that a device argument names. Raises DeviceError for an index that does not exist."""
    return opened().device_at(index_of(device))
