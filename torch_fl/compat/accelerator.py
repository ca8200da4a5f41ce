"""`torch.accelerator` while the current accelerator is ours: its functions ask `torch.npu`.

torch answers them in C++ from an allocator and a device guard that a backend written in Python does not have; some
raise internal asserts, others know index 0 only. Under any other accelerator torch's own functions run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import npu
from .which import DeviceLike


def supported(device: DeviceLike = None, /) -> dict[str, Any]:
    """{"supported_dtypes": dtypes that tensors on a device can have}: every one that torch computes with."""
    properties = npu.get_device_properties(device)
    doubles = {torch.float64, torch.complex128} if properties.fp64 else set()
    return {"supported_dtypes": {*_DTYPES, *doubles}}


_DTYPES = (
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32,
    torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64,
)  # fmt: skip

MEMORY: dict[str, Callable[..., Any]] = {
    "empty_cache": npu.empty_cache,
    "empty_host_cache": lambda: None,  # there is no cache of pinned memory
    "get_memory_info": npu.mem_get_info,
    "max_memory_allocated": npu.max_memory_allocated,
    "max_memory_reserved": npu.max_memory_reserved,
    "memory_allocated": npu.memory_allocated,
    "memory_reserved": npu.memory_reserved,
    "memory_stats": npu.memory_stats,
    "reset_accumulated_memory_stats": npu.reset_accumulated_memory_stats,
    "reset_peak_memory_stats": npu.reset_peak_memory_stats,
}
"""Functions of torch.accelerator.memory, which torch.accelerator has too."""

DEVICE: dict[str, Callable[..., Any]] = {
    "current_device_idx": npu.current_device,
    "current_device_index": npu.current_device,
    "get_device_capability": supported,
    "current_stream": npu.current_stream,
    "set_device_idx": npu.set_device,
    "set_device_index": npu.set_device,
    "set_stream": npu.set_stream,
    "synchronize": npu.synchronize,
}
"""Functions of torch.accelerator alone."""


def _ours() -> bool:
    found = torch._C._accelerator_getAccelerator()
    return found is not None and found.type == "npu"


def _either(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return (ours if _ours() else original)(*args, **kwargs)

    return function


def _enter(self: Any) -> None:
    if self.idx is not None:
        self.prev_idx = npu.current_device()
        npu.set_device(self.idx)


def _exit(self: Any, *_: object) -> None:
    if self.idx is not None:
        npu.set_device(self.prev_idx)


def install() -> None:
    """Wrap the functions; done once, at registration."""
    where = torch.accelerator
    for name, ours in (MEMORY | DEVICE).items():
        original = getattr(where, name, None)  # torch 2.11 has not all of them
        if original is None:
            continue
        wrapped = _either(original, ours)
        setattr(where, name, wrapped)
        if name in MEMORY:
            setattr(where.memory, name, wrapped)
    context: Any = where.device_index
    context.__enter__ = _either(context.__enter__, _enter)
    context.__exit__ = _either(context.__exit__, _exit)
