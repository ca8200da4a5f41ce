"""The module `torch.npu`: what users know from `torch.cuda`, under the same names.

Importing it opens nothing; every function opens the devices when it needs them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, cast

import torch

from ..runtime import random as _random

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..runtime.adapter import Properties

DeviceLike = torch.device | str | int | None


def _devices() -> Any:
    from ..runtime import devices

    return devices


def _index(device: DeviceLike) -> int:
    """The index that a device argument names; None means the current one. Raises ValueError for other types."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    wanted = torch.device(device)
    if wanted.type != "npu":
        raise ValueError(f"Expected an npu device, but got: {device}")
    return current_device() if wanted.index is None else wanted.index


def _device(device: DeviceLike) -> Any:
    return _devices().device_at(_index(device))


def init() -> None:
    """Open the devices now instead of at first use."""
    _devices().devices()


def is_initialized() -> bool:
    """Whether devices have been opened in this process."""
    return bool(_devices().is_initialized())


def is_available() -> bool:
    """Whether there is at least one device."""
    return device_count() > 0


def device_count() -> int:
    """Number of devices; 0 where none can be opened."""
    from ..errors import DeviceError

    try:
        return len(_devices().devices())
    except DeviceError:
        return 0


def current_device() -> int:
    """Index of this thread's current device."""
    return int(_devices().current_index())


def set_device(device: DeviceLike) -> None:
    """Make a device this thread's current one; a negative index does nothing, as in torch.cuda."""
    index = _index(device)
    if index >= 0:
        _devices().set_current_index(index)


class device:
    """Context manager that makes a device the current one; prints as the device it names."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = _index(device)
        self._before = -1

    def __enter__(self) -> device:
        self._before = current_device()
        set_device(self.idx)
        return self

    def __exit__(self, *_: object) -> None:
        set_device(self._before)

    def __repr__(self) -> str:
        return f"npu:{self.idx}"


class device_of(device):
    """Context manager that makes the device of a tensor the current one; does nothing for other tensors."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(obj.get_device() if obj.device.type == "npu" else -1)


def get_device_properties(device: DeviceLike = None) -> Properties:
    """Name, vendor, driver, memory, compute units and capabilities of a chip."""
    return cast("Properties", _device(device).properties)


def get_device_name(device: DeviceLike = None) -> str:
    """The chip's name as its driver gives it."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """(0, 0): compute capabilities are NVIDIA's; ask get_device_properties for what a chip can do."""
    _device(device)
    return (0, 0)


def synchronize(device: DeviceLike = None) -> None:
    """Wait until everything launched on a device is done."""
    where = _device(device)
    where.backend.synchronize()
    where.check()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of a device's memory."""
    free, total = _device(device).backend.memory_info()
    return free, total


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes in live tensors on a device."""
    return int(_device(device).allocated_bytes())


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes that were in live tensors since the start or reset_peak_memory_stats."""
    return int(_device(device).peak_bytes)


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes taken from the driver, cached ones included."""
    return int(_device(device).reserved_bytes())


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes that were taken from the driver since the start or reset_peak_memory_stats."""
    return int(_device(device).memory.peak_reserved())


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """The statistics that are kept here, under torch.cuda's names: bytes, current and peak, of all pools together."""
    allocated = {"current": memory_allocated(device), "peak": max_memory_allocated(device)}
    reserved = {"current": memory_reserved(device), "peak": max_memory_reserved(device)}
    kinds = {"active_bytes": allocated, "allocated_bytes": allocated, "reserved_bytes": reserved}
    return OrderedDict((f"{kind}.all.{k}", v) for kind, values in kinds.items() for k, v in values.items())


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Start max_memory_allocated and max_memory_reserved anew."""
    _device(device).reset_peak()


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Does nothing: memory_stats has no accumulated counts."""
    _device(device)


def empty_cache() -> None:
    """Give cached memory of all devices back to their drivers."""
    for where in _devices().devices():
        where.empty_cache()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 works: always, stored in 16 bits and computed in float32 where the chip has no bf16 units."""
    return including_emulation or get_device_properties().bf16


def get_amp_supported_dtype() -> list[torch.dtype]:
    """dtypes torch.autocast("npu") accepts."""
    return [torch.float16, torch.bfloat16]


def _is_in_bad_fork() -> bool:
    return bool(_devices().in_forked_child())


# -- random numbers (state in runtime/random.py) ------------------------------------------------------------------
default_generators = _random.DefaultGenerators()
"""One generator per device: the ones ops use when none is given."""


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; called by torch.manual_seed."""
    _random.manual_seed_all(seed)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    _random.default_generator(current_device()).manual_seed(seed)


def seed() -> None:
    """Seed the current device's generator with an unpredictable number."""
    _random.default_generator(current_device()).seed()


def seed_all() -> None:
    """Seed the generators of all devices with one unpredictable number."""
    _random.manual_seed_all(torch.Generator("cpu").seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _random.default_generator(current_device()).initial_seed()


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    """Random state of a device (default: the current one) as a CPU ByteTensor."""
    return _random.default_generator(_index(device)).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = None) -> None:
    """Restore what get_rng_state returned."""
    _random.default_generator(_index(device)).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Random states of all devices."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restore what get_rng_state_all returned."""
    for generator, state in zip(default_generators, new_states):
        generator.set_state(state)


def __getattr__(name: str) -> Any:
    # torch.utils.checkpoint saves random states only where the module says that devices are open.
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
