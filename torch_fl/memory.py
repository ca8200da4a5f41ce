"""Who holds device memory, how much of it, and how to get it back.

Holders are found by asking Python's garbage collector for the tensors that exist, so nothing is paid until somebody
looks. The line that made a buffer is known only for those made under `record_lines(True)`.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import torch

from .compat.which import device_of
from .errors import dtype_name
from .runtime import devices as _devices
from .runtime.buffers import Buffer
from .runtime.device import Device
from .runtime.memory import Memory, rounded

BIGGEST = 5
"""Holders that an out-of-memory error names."""


@dataclass(frozen=True)
class Holder:
    """One buffer and the tensors over it. `shapes` and `dtypes` are those of the tensors, views included."""

    device: str
    nbytes: int
    block_bytes: int
    """Bytes of the block that serves it."""
    tensors: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    is_parameter: bool
    line: str
    """The user's "file:line" that made it; "" where lines were not recorded."""

    def __str__(self) -> str:
        kinds = [f"{d}{list(s)}" for d, s in zip(self.dtypes, self.shapes)]
        what = kinds[0] if kinds else "no tensor (a kernel's own, or held by C++)"
        more = "" if self.tensors < 2 else " and 1 view" if self.tensors == 2 else f" and {self.tensors - 1} views"
        where = f" from {self.line}" if self.line else ""
        return f"{self.nbytes} bytes: {'parameter ' if self.is_parameter else ''}{what}{more}{where}"


@dataclass(frozen=True)
class Stats:
    """Counters of one device; bytes unless the name says otherwise.

    `allocated` is in live tensors, `active` in the blocks that serve them, `cached` in free blocks, `reserved` taken
    from the driver. Counts: `live` buffers, `allocations` and `frees` since the start, `driver_allocations`, `retries`
    (caches were freed to serve a request) and `refused` (out-of-memory errors).
    """

    allocated: int
    active: int
    cached: int
    reserved: int
    peak_allocated: int
    peak_reserved: int
    live: int
    allocations: int
    frees: int
    driver_allocations: int
    driver_frees: int
    retries: int
    refused: int

    @property
    def fragmentation(self) -> float:
        """Part of what was taken from the driver that no tensor uses, from 0 to 1."""
        return 1 - self.allocated / self.reserved if self.reserved else 0.0


@dataclass(frozen=True)
class Defragmented:
    """What `defragment` did to one device."""

    device: str
    before: Stats
    after: Stats

    @property
    def freed(self) -> int:
        """Bytes that went back to the driver."""
        return self.before.reserved - self.after.reserved


def _chosen(device: torch.device | str | int | None) -> Device:
    return device_of(device)  # type: ignore[no-any-return]


def stats(device: torch.device | str | int | None = None) -> Stats:
    """Counters of a device (default: the current one)."""
    return stats_of(_chosen(device).memory)


def stats_of(memory: Memory) -> Stats:
    """The same for the memory of an opened chip."""
    reserved, cached = memory.reserved(), memory.cached()
    return Stats(
        allocated=memory.active,
        active=max(reserved - cached, memory.active),
        cached=cached,
        reserved=reserved,
        peak_allocated=memory.peak,
        peak_reserved=memory.peak_reserved(),
        live=memory.made - memory.freed,
        allocations=memory.made,
        frees=memory.freed,
        driver_allocations=memory.driver_allocs,
        driver_frees=memory.driver_frees,
        retries=memory.retries,
        refused=memory.refused,
    )


def record_lines(on: bool = True) -> None:
    """Note the user's line that makes each buffer from now on, on all devices; or stop and forget them."""
    for device in _devices.devices():
        device.memory.watch(lines=on)


def snapshot(device: torch.device | str | int | None = None) -> list[Holder]:
    """Who holds memory of a device (default: the current one), biggest first."""
    return holders(_chosen(device))


def holders(device: Device) -> list[Holder]:
    """The same for an opened chip."""
    from .tensor import Tensor

    over: dict[int, list[Tensor]] = {}
    objects = gc.get_objects()
    for found in objects:
        if type(found) is Tensor and hasattr(found, "_buffer"):
            over.setdefault(id(found._buffer), []).append(found)
    buffers = [b for b in objects if type(b) is Buffer and b.device is device]
    made = [_holder(device, b, over.get(id(b), [])) for b in buffers]
    return sorted(made, key=lambda h: -h.nbytes)


def _holder(device: Device, buffer: Buffer, tensors: list[Any]) -> Holder:
    lines = device.memory.lines
    tensors = sorted(tensors, key=lambda t: -t._spec.numel)
    return Holder(
        f"npu:{device.index}",
        buffer.nbytes,
        rounded(buffer.nbytes),
        len(tensors),
        tuple(tuple(t._spec.shape) for t in tensors),
        tuple(dtype_name(t._spec.dtype) for t in tensors),
        any(isinstance(t, torch.nn.Parameter) for t in tensors),
        lines.get(buffer, "") if lines is not None else "",
    )


def describe_holders(device: Device) -> str:
    """The biggest holders of a chip's memory, for an out-of-memory error; "" where there are none."""
    biggest = [h for h in holders(device) if h.nbytes][:BIGGEST]
    return f"; the biggest holders are {' | '.join(map(str, biggest))}" if biggest else ""


def defragment(device: torch.device | str | int | None = None) -> list[Defragmented]:
    """Collect tensors that only cycles hold and give all free blocks back to the driver; waits for the device.

    Blocks are whole driver allocations, so what stays reserved is what tensors use, rounded up to block sizes: at
    most a quarter more, and 512 bytes at least. Without a device: all of them.
    """
    chosen = _devices.devices() if device is None else [_chosen(device)]
    done = []
    for chip in chosen:
        before = stats_of(chip.memory)
        gc.collect()
        chip.empty_cache()
        done.append(Defragmented(f"npu:{chip.index}", before, stats_of(chip.memory)))
    return done
