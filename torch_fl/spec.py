"""Interned tensor metadata: two tensors of equal shape, strides, dtype and device share one Spec object.

Because Specs are interned, plan-cache keys compare by identity. The storage offset is not part of a Spec: it is
passed at launch, so that slices of one buffer share a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod

import torch

from .runtime.devices import Device

Ints = tuple[int, ...]


def contiguous_strides(shape: Ints) -> Ints:
    """Row-major strides in elements, as torch computes them (dimensions of size 0 count as 1)."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def extent_of(shape: Ints, strides: Ints) -> int:
    """Elements from the first to one past the last that a layout reaches; 0 if empty."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))


def is_row_major(shape: Ints, strides: Ints) -> bool:
    """Whether elements lie in row-major order without gaps; strides of dimensions of size 1 do not matter."""
    step = 1
    for n, s in zip(reversed(shape), reversed(strides)):
        if n != 1 and s != step:
            return 0 in shape
        step *= n
    return True


class Spec:
    """Shape and strides (elements), dtype, device. Make one with `spec_of` only: equality is identity."""

    def __init__(self, shape: Ints, strides: Ints, dtype: torch.dtype, device: Device) -> None:
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.device = device
        self.numel = prod(shape)
        self.itemsize = dtype.itemsize
        self.row_major = strides == contiguous_strides(shape)

    def __repr__(self) -> str:
        return f"Spec({self.dtype}, {list(self.shape)}, strides={list(self.strides)}, npu:{self.device.index})"

    @cached_property
    def extent(self) -> int:
        """Elements from the first to one past the last that the layout reaches; 0 if empty."""
        return extent_of(self.shape, self.strides)

    @cached_property
    def is_contiguous(self) -> bool:
        """torch's contiguous(): strides of dimensions of size 1 do not matter."""
        return is_row_major(self.shape, self.strides)

    @cached_property
    def is_dense(self) -> bool:
        """Every element of the extent is used exactly once (contiguous in some order of dimensions)."""
        return self.extent == self.numel and not self.overlaps_itself

    @cached_property
    def overlaps_itself(self) -> bool:
        """Two indices reach one element (an expanded tensor); exact for layouts torch's ops make."""
        if self.numel == 0:
            return False
        step = 1
        for s, n in sorted((s, n) for n, s in zip(self.shape, self.strides) if n > 1):
            if s < step:
                return True
            step = s * (n - 1) + step
        return False


_interned: dict[tuple[Ints, Ints, torch.dtype, int], Spec] = {}


def spec_of(shape: Ints, strides: Ints, dtype: torch.dtype, device: Device) -> Spec:
    """The one Spec of this metadata. `shape` and `strides` must be tuples of Python ints."""
    key = (shape, strides, dtype, device.index)
    found = _interned.get(key)
    if found is None:
        if len(_interned) > 1 << 16:
            _interned.clear()
        found = _interned.setdefault(key, Spec(shape, strides, dtype, device))
        if dtype.is_complex and _told:
            _told.pop()()
    return found


_told: list[Callable[[], None]] = []


def on_complex(tell: Callable[[], None]) -> None:
    """Have `tell` called before there is a complex tensor on any device, or now if there was one."""
    _told.append(tell)
    if any(s.dtype.is_complex for s in _interned.values()):
        _told.pop()()


def contiguous_spec(shape: Ints, dtype: torch.dtype, device: Device) -> Spec:
    """The Spec of a row-major tensor."""
    return spec_of(shape, contiguous_strides(shape), dtype, device)
