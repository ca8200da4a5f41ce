"""Ops that move elements without computing: cat, stack, flip, roll, tril, triu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import fallback
from ..builder import Builder
from ..errors import Unsupported
from ..kernels.indexed import raw_bits
from ..kernels.runs import emit_join
from ..refs import Layout, Ref
from ..registry import handler, kernel
from ..spec import spec_of
from ..tensor import Tensor, empty_spec


@kernel("aten::cat")
def cat(b: Builder, tensors: Sequence[Ref], dim: int) -> None:
    """Tensors one after the other along `dim`; empty 1-D tensors are skipped, whatever the others' shape."""
    out = b.out()
    parts = [t for t in tensors if t.numel]
    if out.ndim and emit_join(b, out, parts, dim % out.ndim):
        return
    start = 0
    for part in parts:
        length = part.shape[dim]
        b.copy(out.narrow(dim, start, length), part)
        start += length


@kernel("aten::stack")
def stack(b: Builder, tensors: Sequence[Ref], dim: int) -> None:
    """Tensors of one shape along a new dimension."""
    out = b.out()
    if emit_join(b, out, tensors, dim % out.ndim):
        return
    for k, tensor in enumerate(tensors):
        b.copy(out.select(dim, k), tensor)


@kernel("aten::flip")
def flip(b: Builder, self: Ref, dims: Sequence[int]) -> None:
    """Dimensions backwards."""
    if self.numel == 0:
        return
    flipped = {d % max(self.ndim, 1) for d in dims} if self.ndim else set()
    strides = [-s if d in flipped else s for d, s in enumerate(self.strides)]
    last = sum((self.shape[d] - 1) * self.strides[d] for d in flipped)
    b.copy(b.out(), self.as_strided(self.shape, strides, last))


@kernel("aten::roll")
def roll(b: Builder, self: Ref, shifts: Sequence[int], dims: Sequence[int]) -> None:
    """Elements moved along dimensions, those that leave at the end come in at the start."""
    out = b.out()
    if self.numel == 0:
        return
    if not dims:
        if len(shifts) != 1:
            raise Unsupported("several shifts without dimensions")
        source, target = b.contiguous(self).view(self.numel), b.temp((self.numel,), self.dtype)
        _roll(b, target, source, [(0, shifts[0])])
        b.copy(out, target.view(*self.shape))
        return
    total: dict[int, int] = {}
    for dim, shift in zip(dims, shifts):
        total[dim % self.ndim] = total.get(dim % self.ndim, 0) + shift
    _roll(b, out, self, list(total.items()))


def _roll(b: Builder, target: Ref, source: Ref, moves: Sequence[tuple[int, int]]) -> None:
    """One copy for each combination of the two parts that every rolled dimension has."""
    if not moves:
        b.copy(target, source)
        return
    (dim, shift), rest = moves[0], moves[1:]
    n = source.shape[dim]
    at = shift % n
    for start_to, start_from, length in ((at, 0, n - at), (0, n - at, at)):
        if length:
            _roll(b, target.narrow(dim, start_to, length), source.narrow(dim, start_from, length), rest)


@kernel("aten::diagonal_scatter", elementwise=True)
def diagonal_scatter(b: Builder, self: Ref, src: Ref, offset: int, dim1: int, dim2: int) -> None:
    """A copy of `self` with one diagonal replaced."""
    out = b.out()
    if out.slot != self.slot:
        b.copy(out, self)
    if src.numel:
        b.copy(_diagonal(out, offset, dim1 % self.ndim, dim2 % self.ndim, src.shape[-1]), src)


@handler("aten::as_strided_scatter")
def as_strided_scatter(
    self: Tensor, src: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Any:
    """A copy of `self` with the elements of a strided view of it replaced."""
    start = 0 if storage_offset is None else storage_offset - self._offset
    spec = self._spec
    if start < 0 or start + spec_of(tuple(size), tuple(stride), spec.dtype, spec.device).extent > spec.extent:
        func, args = torch.ops.aten.as_strided_scatter.default, (self, src, size, stride, storage_offset)
        return fallback.run(func, args, {}, spec.device, "a view beyond the tensor")
    out = empty_spec(spec)
    out.copy_(self)
    out.as_strided(size, stride, start).copy_(src)
    return out


def _diagonal(ref: Ref, offset: int, dim1: int, dim2: int, length: int) -> Ref:
    keep = [d for d in range(ref.ndim) if d not in (dim1, dim2)]
    start = offset * ref.strides[dim2] if offset >= 0 else -offset * ref.strides[dim1]
    shape = [ref.shape[d] for d in keep] + [length]
    strides = [ref.strides[d] for d in keep] + [ref.strides[dim1] + ref.strides[dim2]]
    return ref.as_strided(shape, strides, start)


@kernel("aten::tril", elementwise=True)
def tril(b: Builder, self: Ref, diagonal: int) -> None:
    """The lower triangle; 0 above the diagonal."""
    _triangle(b, self, diagonal, "c <= r + diagonal")


@kernel("aten::triu", elementwise=True)
def triu(b: Builder, self: Ref, diagonal: int) -> None:
    """The upper triangle; 0 below the diagonal."""
    _triangle(b, self, diagonal, "c >= r + diagonal")


def _triangle(b: Builder, self: Ref, diagonal: int, keep: str) -> None:
    out = b.out()
    target, source = raw_bits(out), raw_bits(self)
    columns = target.shape[-1]
    total = target.numel
    if total == 0:
        return
    items, chunk = b.split(total // columns, max(1, 4096 // columns)) if b.is_cpu else (total // columns, 1)
    sizes = tuple(reversed(target.shape[:-1]))
    layout = Layout(sizes, tuple(tuple(reversed(r.strides[:-1])) for r in (target, source)))
    args: list[Any] = [
        target,
        source,
        total // columns,
        chunk,
        layout,
        columns,
        target.strides[-1],
        source.strides[-1],
        diagonal,
    ]
    b.launch("shape.c", "triangle", items, args, {**b.types(T=target.dtype), "KEEP": f"({keep})"})
