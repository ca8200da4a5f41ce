"""What a kernel function sees in place of tensors and numbers: Ref, Value, and the Layout it passes to a launch."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch

from .errors import Unsupported, dtype_name
from .spec import Ints, contiguous_strides, extent_of, is_row_major

MAX_RANK = 8
"""Dimensions a Layout holds; as in native/prelude.h."""


@dataclass(frozen=True)
class Ref:
    """A tensor inside a plan: a slot (argument or allocation) with shape, strides, dtype and a fixed extra offset.

    Strides and offset are in elements of `dtype`. The methods are views: pure metadata, as on torch tensors.
    """

    slot: int
    shape: Ints
    strides: Ints
    dtype: torch.dtype
    offset: int = 0

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def extent(self) -> int:
        """Elements from the first to one past the last that the layout reaches; 0 if empty."""
        return extent_of(self.shape, self.strides)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Row-major, ignoring strides of dimensions of size 1."""
        return is_row_major(self.shape, self.strides)

    def as_strided(self, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Ref:
        """Any layout over the same buffer; `offset` is relative to this Ref's."""
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=self.offset + offset)

    def permute(self, *dims: int) -> Ref:
        """Dimensions reordered."""
        return self.as_strided([self.shape[d] for d in dims], [self.strides[d] for d in dims])

    def transpose(self, a: int, b: int) -> Ref:
        """Two dimensions exchanged (negative ones count from the end)."""
        dims = list(range(self.ndim))
        dims[a], dims[b] = dims[b], dims[a]
        return self.permute(*dims)

    def expand(self, shape: Sequence[int]) -> Ref:
        """Broadcast to `shape`: new and size-1 dimensions get stride 0. Raises Unsupported where that is impossible."""
        lead = len(shape) - self.ndim
        if lead < 0 or any(n not in (1, want) for n, want in zip(self.shape, shape[lead:])):
            raise Unsupported(f"shape {list(self.shape)} does not broadcast to {list(shape)}")
        strides = [0] * lead
        for n, s, want in zip(self.shape, self.strides, shape[lead:]):
            strides.append(0 if n == 1 and want != 1 else s)
        return self.as_strided(shape, strides)

    def unsqueeze(self, dim: int) -> Ref:
        """A dimension of size 1 inserted before `dim` (negative: counted in the result)."""
        dim = dim + self.ndim + 1 if dim < 0 else dim
        return self.as_strided((*self.shape[:dim], 1, *self.shape[dim:]), (*self.strides[:dim], 1, *self.strides[dim:]))

    def select(self, dim: int, index: int) -> Ref:
        """One index of a dimension, which disappears."""
        dim = dim % self.ndim
        return self.as_strided(
            (*self.shape[:dim], *self.shape[dim + 1 :]),
            (*self.strides[:dim], *self.strides[dim + 1 :]),
            index * self.strides[dim],
        )

    def narrow(self, dim: int, start: int, length: int) -> Ref:
        """`length` indices of a dimension from `start`."""
        dim = dim % self.ndim
        shape = (*self.shape[:dim], length, *self.shape[dim + 1 :])
        return self.as_strided(shape, self.strides, start * self.strides[dim])

    def view(self, *shape: int) -> Ref:
        """A new shape without a copy. Raises Unsupported where the strides do not allow it."""
        numel, known = self.numel, 1
        for n in shape:
            known *= n if n != -1 else 1
        wanted = tuple(n if n != -1 else numel // max(known, 1) for n in shape)
        strides = _view_strides(self.shape, self.strides, wanted)
        if strides is None:
            raise Unsupported(f"no view of {list(self.shape)} as {list(wanted)}")
        return self.as_strided(wanted, strides)


def _view_strides(shape: Ints, strides: Ints, wanted: Ints) -> Ints | None:
    """Strides of a view as `wanted`, or None (torch's computeStride: merge runs of dimensions, then split)."""
    if 0 in shape:
        return contiguous_strides(wanted)
    merged: list[tuple[int, int]] = []
    for n, s in zip(shape, strides):
        if n == 1:
            continue
        if merged and merged[-1][1] == n * s:
            merged[-1] = (merged[-1][0] * n, s)
        else:
            merged.append((n, s))
    out: list[int] = []
    left, step = merged.pop() if merged else (1, 1)
    for n in reversed(wanted):
        if left == 1 and n != 1 and merged:
            left, step = merged.pop()
        if left % n:
            return None
        out.append(step)
        left, step = left // n, step * n
    return tuple(reversed(out)) if left == 1 and not merged else None


@dataclass(frozen=True)
class Value:
    """A number that changes without a new plan (alpha, lr, eps): its kind is fixed, its value comes at launch.

    `steady`: equal launch-time values give an equal number (not so of seeds).
    """

    kind: type
    get: Callable[[Sequence[Any]], Any]
    steady: bool = False

    def map(self, fn: Callable[[Any], Any], kind: type | None = None) -> Value:
        """A number computed from this one at each launch."""
        get = self.get
        return Value(kind or self.kind, lambda values: fn(get(values)), self.steady)


@dataclass(frozen=True)
class Layout:
    """The argument of a `LayoutK` parameter: sizes, and strides of K tensors, innermost dimension first."""

    sizes: Ints
    strides: tuple[Ints, ...]

    @staticmethod
    def of(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Layout:
        """From any sequences, as `merge` returns them."""
        return Layout(tuple(sizes), tuple(tuple(s) for s in strides))

    def pack(self, wide: bool) -> bytes:
        """The bytes of the C struct."""
        if len(self.sizes) > MAX_RANK:
            raise Unsupported(f"more than {MAX_RANK} dimensions that cannot be merged")
        form = "q" if wide else "i"
        pad = [0] * (MAX_RANK - len(self.sizes))
        numbers = [len(self.sizes), *self.sizes, *pad]
        for strides in self.strides:
            numbers += [*strides, *pad]
        return struct.pack(f"<{len(numbers)}{form}", *numbers)

    @property
    def largest(self) -> int:
        """The largest number an index computation over this layout can reach."""
        reach = [sum((n - 1) * abs(s) for n, s in zip(self.sizes, st)) for st in self.strides]
        return max([prod(self.sizes), *reach])


@dataclass(frozen=True)
class Addresses:
    """The argument of a struct parameter that holds the addresses of Refs: for chips whose `addresses` is true.

    The Refs have the dtypes of the tensors that they stand for.
    """

    refs: tuple[Ref, ...]


@dataclass(frozen=True)
class Numbers:
    """The argument of a struct parameter that holds numbers of one C type (a define, or a name in C)."""

    ctype: str
    values: tuple[Value | float | int | bool, ...]


def numpy_view(array: np.ndarray[Any, Any], ref: Ref, offset: int) -> np.ndarray[Any, Any]:
    """A NumPy view of raw bytes as `ref` describes them; for chips whose library is NumPy-like."""
    kind = np.dtype(dtype_name(ref.dtype).replace("bool", "bool_"))
    strides = [s * kind.itemsize for s in ref.strides]
    return np.ndarray(ref.shape, kind, array.data, offset * kind.itemsize, strides)
