"""The module `torch.npu`: what users know from `torch.cuda`, under the same names.

Importing it opens nothing; every function opens the devices when it needs them.
"""

from __future__ import annotations


def is_initialized() -> bool:
    """Whether devices have been opened in this process."""
    from ..runtime import devices

    return devices.is_initialized()


def is_available() -> bool:
    """Whether there is at least one device."""
    return device_count() > 0


def device_count() -> int:
    """Number of devices; 0 where none can be opened."""
    from ..errors import DeviceError
    from ..runtime import devices

    try:
        return len(devices.devices())
    except DeviceError:
        return 0


def current_device() -> int:
    """Index of this thread's current device."""
    from ..runtime import devices

    return devices.current_index()


def _is_in_bad_fork() -> bool:
    from ..runtime import devices

    return devices.in_forked_child()


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; called by torch.manual_seed."""
