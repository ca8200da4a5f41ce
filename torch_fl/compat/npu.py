"""The module `torch.npu`: what users know from `torch.cuda`, under the same names.

Importing it opens nothing; every function opens the devices when it needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

from .. import names
from . import npu_memory, npu_random
from . import streams as streams
from .npu_memory import empty_cache as empty_cache
from .npu_memory import get_allocator_backend as get_allocator_backend
from .npu_memory import get_per_process_memory_fraction as get_per_process_memory_fraction
from .npu_memory import max_memory_allocated as max_memory_allocated
from .npu_memory import max_memory_cached as max_memory_cached
from .npu_memory import max_memory_reserved as max_memory_reserved
from .npu_memory import mem_get_info as mem_get_info
from .npu_memory import memory_allocated as memory_allocated
from .npu_memory import memory_cached as memory_cached
from .npu_memory import memory_reserved as memory_reserved
from .npu_memory import memory_snapshot as memory_snapshot
from .npu_memory import memory_stats as memory_stats
from .npu_memory import memory_stats_as_nested_dict as memory_stats_as_nested_dict
from .npu_memory import memory_summary as memory_summary
from .npu_memory import reset_accumulated_memory_stats as reset_accumulated_memory_stats
from .npu_memory import reset_max_memory_allocated as reset_max_memory_allocated
from .npu_memory import reset_max_memory_cached as reset_max_memory_cached
from .npu_memory import reset_peak_memory_stats as reset_peak_memory_stats
from .npu_memory import set_per_process_memory_fraction as set_per_process_memory_fraction
from .npu_random import default_generators as default_generators
from .npu_random import get_rng_state as get_rng_state
from .npu_random import get_rng_state_all as get_rng_state_all
from .npu_random import initial_seed as initial_seed
from .npu_random import manual_seed as manual_seed
from .npu_random import manual_seed_all as manual_seed_all
from .npu_random import seed as seed
from .npu_random import seed_all as seed_all
from .npu_random import set_rng_state as set_rng_state
from .npu_random import set_rng_state_all as set_rng_state_all
from .streams import Event as Event
from .streams import Stream as Stream
from .streams import StreamContext as StreamContext
from .streams import current_stream as current_stream
from .streams import default_stream as default_stream
from .streams import set_stream as set_stream
from .streams import stream as stream
from .which import DeviceLike as DeviceLike
from .which import device_of as _device
from .which import index_of as _index
from .which import opened

if TYPE_CHECKING:
    from ..runtime.adapter import Properties

memory = npu_memory
random = npu_random
OutOfMemoryError = torch.OutOfMemoryError


def init() -> None:
    """Open the devices now instead of at first use."""
    opened().devices()


def is_initialized() -> bool:
    """Whether devices have been opened in this process."""
    return bool(opened().is_initialized())


def is_available() -> bool:
    """Whether there is at least one device."""
    return device_count() > 0


def device_count() -> int:
    """Number of devices; 0 where none can be opened."""
    from ..errors import DeviceError

    try:
        return len(opened().devices())
    except DeviceError:
        return 0


def current_device() -> int:
    """Index of this thread's current device."""
    return int(opened().current_index())


def set_device(device: DeviceLike) -> None:
    """Make a device this thread's current one; a negative index does nothing, as in torch.cuda."""
    index = _index(device)
    if index >= 0:
        opened().set_current_index(index)


class device:
    """Context manager that makes a device the current one; prints as the device it names. None changes nothing."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = _index(device)
        self.prev_idx = -1

    def __enter__(self) -> device:
        self.prev_idx = current_device()
        set_device(self.idx)
        return self

    def __exit__(self, *_: object) -> None:
        set_device(self.prev_idx)

    def __repr__(self) -> str:
        return f"npu:{self.idx}"


class device_of(device):
    """Context manager that makes the device of a tensor the current one; does nothing for other tensors."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(obj.get_device() if names.is_ours(obj.device) else -1)


def get_device_properties(device: DeviceLike = None) -> Properties:
    """Name, vendor, driver, memory, compute units and capabilities of a chip. Raises AssertionError for no chip."""
    index = _index(device)
    if not 0 <= index < len(opened().devices()):
        raise AssertionError("Invalid device id")
    return cast("Properties", opened().device_at(index).properties)


def get_device_name(device: DeviceLike = None) -> str:
    """The chip's name as its driver gives it."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Version of the chip's instruction set as its vendor counts it; (0, 0) where the driver does not tell."""
    return get_device_properties(device).capability


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether one chip reads another's memory itself: never, copies go through the host."""
    get_device_properties(device)
    get_device_properties(peer_device)
    return False


def synchronize(device: DeviceLike = None) -> None:
    """Wait until everything launched on all streams of a device is done."""
    _device(device).synchronize()


def utilization(device: DeviceLike = None) -> int:
    """Percent of the recent past in which the chip was busy. Raises NotImplementedError where no driver tells."""
    where = _device(device)
    found = where.backend.utilization()
    if found is None:
        raise NotImplementedError(f"the driver of {where!r} does not tell how busy the chip is")
    return int(found)


def ipc_collect() -> None:
    """Does nothing: memory is not shared with other processes."""


def is_current_stream_capturing() -> bool:
    """False: streams are not captured."""
    return False


def get_arch_list() -> list[str]:
    """[]: kernels are compiled for the chip that is there."""
    return []


def is_tf32_supported() -> bool:
    """False: float32 is computed in float32."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 works: always, stored in 16 bits and computed in float32 where the chip has no bf16 units."""
    return including_emulation or get_device_properties().bf16


def get_amp_supported_dtype() -> list[torch.dtype]:
    """dtypes torch.autocast("npu") accepts."""
    return [torch.float16, torch.bfloat16]


def _is_in_bad_fork() -> bool:
    return bool(opened().in_forked_child())


def __getattr__(name: str) -> Any:
    if name == "amp":  # torch.amp is loaded later than the device types
        from . import npu_amp

        return npu_amp
    # torch.utils.checkpoint saves random states only where the module says that devices are open.
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [name for name in dict(globals()) if not name.startswith("_") and name not in ("annotations", "cast")]
