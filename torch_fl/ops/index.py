"""Elements by index: gather, index_select, take, and x[...] with index tensors and boolean masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..builder import Builder
from ..dispatch import op_of, planned
from ..kernels.indexed import ANY_SIZE, Index, along, check_index, emit_gather, emit_linear, row_index
from ..refs import Ref
from ..registry import handler, kernel
from ..schema import NotOurs
from ..tensor import Tensor
from .nonzero import flat_places, nonzero

_ATEN = torch.ops.aten
MASKS = (torch.bool, torch.uint8)


@kernel("aten::gather")
def gather(b: Builder, self: Ref, dim: int, index: Ref) -> None:
    """out[i][j] = self[index[i][j]][j] (for dim 0)."""
    check_index(index)
    out = b.out()
    if out.numel:
        emit_gather(b, out, self, along("gather", self, dim % max(self.ndim, 1), index))


@kernel("aten::index_select")
def index_select(b: Builder, self: Ref, dim: int, index: Ref) -> None:
    """The slices of `self` along `dim` that the list `index` names."""
    check_index(index)
    out = b.out()
    if out.numel:
        emit_gather(b, out, self, row_index("index_select", self, dim % max(self.ndim, 1), index))


@kernel("aten::take")
def take(b: Builder, self: Ref, index: Ref) -> None:
    """Elements of the flattened tensor."""
    check_index(index)
    flat = b.contiguous(self)
    emit_gather(b, b.out(), flat, Index(index, (0,) * index.ndim, flat.numel, 1, True, "take"))


def advanced(b: Builder, op: str, self: Ref, indices: Sequence[Ref | None]) -> tuple[Index, list[int]]:
    """self[indices] as an Index over the result's shape, and the dimensions of it that the indices span.

    The index tensors broadcast together; their dimensions stand where the first of them stood if they were
    neighbours, else in front (NumPy's rule).
    """
    dims = [d for d, ref in enumerate(indices) if ref is not None]
    refs = [ref for ref in indices if ref is not None]
    for ref in refs:
        check_index(ref)
    shape = tuple(torch.broadcast_shapes(*[r.shape for r in refs]))
    sizes, strides = [self.shape[d] for d in dims], [self.strides[d] for d in dims]
    if len(refs) == 1:
        found = Index(refs[0], (), sizes[0], strides[0], True, op)
    else:
        at = emit_linear(b, op, [r.expand(shape) for r in refs], sizes, strides)
        found = Index(at, (), ANY_SIZE, 1, False, op)
    place = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    kept = [d for d in range(self.ndim) if d not in dims]
    before, after = kept[:place], kept[place:]
    full = (*(self.shape[d] for d in before), *shape, *(self.shape[d] for d in after))
    spanned = list(range(len(before), len(before) + len(shape)))
    ref_strides = [0] * len(full)
    ref_strides[len(before) : len(before) + len(shape)] = found.ref.expand(shape).strides
    loop = tuple([self.strides[d] for d in before] + [0] * len(shape) + [self.strides[d] for d in after])
    ref = found.ref.as_strided(full, ref_strides)
    return Index(ref, loop, found.size, found.stride, found.wrap, op), spanned


@kernel("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def index(b: Builder, self: Ref, indices: list[Ref | None]) -> None:
    """self[indices] for integer tensors, with None for whole dimensions."""
    if all(i is None for i in indices):
        b.copy(b.out(), self)
        return
    emit_gather(b, b.out(), self, advanced(b, "index", self, indices)[0])


def expand_masks(self: torch.Tensor, indices: Sequence[Any]) -> list[Any]:
    """Boolean masks among the indices as the integer indices of their true elements; waits for the device.

    Raises IndexError where a mask does not have the shape of the dimensions it stands for.
    """
    found: list[Any] = []
    for mask in indices:
        if mask is None or mask.dtype not in MASKS:
            found.append(mask)
            continue
        at = len(found)
        for k, n in enumerate(mask.shape):
            if at + k >= self.dim() or self.shape[at + k] != n:
                raise IndexError(
                    f"The shape of the mask {list(mask.shape)} at index {k} does not match the shape of the indexed "
                    f"tensor {list(self.shape)} at index {at + k}"
                )
        if mask.dim() == 0:
            raise NotImplementedError
        found += places_of(self, mask)
    return found


def places_of(self: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    """Per dimension of `mask`, the indices of its true elements, where `self` is."""
    there = mask.to(self.device) if type(self) is Tensor and mask.device != self.device else mask
    if type(there) is not Tensor:
        return list(there.nonzero().unbind(1))
    return list(_ATEN.unbind.int(nonzero(there), 1))


def check_home(self: torch.Tensor, indices: Sequence[Any]) -> None:
    """A CPU tensor is not indexed with device tensors (the other way round is fine)."""
    if type(self) is Tensor:
        return
    if any(type(i) is Tensor for i in indices):
        raise RuntimeError(
            "indices should be either on cpu or on the same device as the indexed tensor (cpu). try: indices.cpu()"
        )
    raise NotOurs


def has_mask(indices: Sequence[Any]) -> bool:
    """Whether there is a boolean mask among the indices."""
    return any(i is not None and i.dtype in MASKS for i in indices)


@handler("aten::index.Tensor")
def index_handler(self: torch.Tensor, indices: list[Any]) -> Any:
    """self[indices]: masks become integers here, everything else is a plan."""
    check_home(self, indices)
    if has_mask(indices):
        indices = expand_masks(self, indices)
    return planned(_INDEX, (self, indices), {})


@handler("aten::masked_select")
def masked_select(self: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The elements of `self` where `mask` (both broadcast) is true, as a list; waits for the device."""
    if mask.dtype != torch.bool:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    if type(self) is not Tensor or type(mask) is not Tensor:
        raise RuntimeError("masked_select: expected self and mask to be on the same device")
    shape = torch.broadcast_shapes(self.shape, mask.shape)
    places = flat_places(_ATEN.expand.default(mask, shape))
    return _ATEN.take.default(_ATEN.expand.default(self, shape), places)  # type: ignore[no-any-return]


@handler("aten::masked_scatter_")
def masked_scatter_(self: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """The true places of `mask` take the elements of `source` in order; waits for the device."""
    if type(self) is not Tensor or type(mask) is not Tensor or type(source) is not Tensor:
        raise RuntimeError("masked_scatter_: expected self, mask and source to be on the same device")
    if self.dtype != source.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {self.dtype} and {source.dtype}"
        )
    if mask.dtype != torch.bool:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    places = flat_places(_ATEN.expand.default(mask, self.shape))
    n = places.numel()
    if n > source.numel():
        raise RuntimeError("Number of elements of source < number of ones in mask")
    taken = _ATEN.slice.Tensor(_ATEN.reshape.default(source, (-1,)), 0, 0, n)
    return _ATEN.put_.default(self, places, taken)  # type: ignore[no-any-return]


_INDEX = op_of(_ATEN.index.Tensor)
