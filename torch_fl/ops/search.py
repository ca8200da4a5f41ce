"""Places among sorted bounds, and counting into bins: searchsorted, bucketize, bincount, histc."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..builder import Builder
from ..dispatch import op_of, planned
from ..kernels.types import ctype
from ..kernels.wrong import note_wrong
from ..refs import Ref, Value
from ..registry import handler, kernel
from ..runtime.guard import code_of
from ..tensor import Tensor
from .scatter import scalar

_ATEN = torch.ops.aten


@kernel("aten::searchsorted.Tensor", "aten::searchsorted.Scalar", static=("self",))
def searchsorted(
    b: Builder, sorted_sequence: Ref, self: Any, right: bool, side: str | None, sorter: Ref | None
) -> None:
    """First (`right`: last) place where each element keeps the sequence sorted; lines of the last dimension pair up."""
    _search(b, sorted_sequence, self, right or side == "right", sorter)


@kernel("aten::bucketize.Tensor", "aten::bucketize.Scalar", static=("self",))
def bucketize(b: Builder, self: Any, boundaries: Ref, right: bool) -> None:
    """The bucket of each element between sorted boundaries."""
    _search(b, boundaries, self, right, None)


def _search(b: Builder, bounds: Ref, values: Any, right: bool, sorter: Ref | None) -> None:
    out = b.out()
    if out.numel == 0:
        return
    x = b.contiguous(values if isinstance(values, Ref) else scalar(b, values, bounds.dtype))
    target = b.row_major(out)
    compute = torch.promote_types(bounds.dtype, x.dtype)
    n, rows = bounds.shape[-1], bounds.ndim > 1
    width = x.shape[-1] if x.ndim else 1
    items, chunk = b.split(out.numel, 512)
    defines = {
        **b.types(B=bounds.dtype, X=x.dtype, Y=out.dtype),
        "ACC": ctype(compute).compute,
        "SORTED": int(sorter is None),
        "BEFORE(b, v)": "(!((b) > (v)))" if right else "(!((b) >= (v)))",
    }
    order = target if sorter is None else b.contiguous(sorter)
    arguments: list[Any] = [
        b.contiguous(bounds), x, order, target, b.guard(), out.numel, chunk, n, width, int(rows),
        code_of("searchsorted"),
    ]  # fmt: skip
    b.launch("search.c", "search", items, arguments, defines)
    b.deliver(out, target)


@handler("aten::bincount")
def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    """How often each number occurs in a list (or the sum of its weights); waits for the device."""
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if self.dim() != 1 or self.dtype.is_floating_point or self.dtype.is_complex or self.dtype == torch.bool:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != self.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if self.numel() == 0:
        return _ATEN.new_zeros.default(self, [minlength], dtype=torch.int64)  # type: ignore[no-any-return]
    if int(_ATEN.min.default(self).item()) < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    n = max(int(_ATEN.max.default(self).item()) + 1, minlength)
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype == torch.float32 else torch.float64
    source = _ATEN.ones_like.default(self, dtype=dtype) if weights is None else weights.to(dtype)
    return _counted(self.to(torch.int64), source, n, dtype)


def _counted(bins: torch.Tensor, source: torch.Tensor, n: int, dtype: torch.dtype) -> torch.Tensor:
    zeros = _ATEN.new_zeros.default(bins, [n], dtype=dtype)
    return _ATEN.scatter_add.default(zeros, 0, bins, source)  # type: ignore[no-any-return]


@handler("aten::histc")
def histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """Counts of the elements in equal bins from `min` to `max` (both 0: the data's own); others are left out.

    Integers too, as on CUDA, in integer arithmetic: libraries ask that of every device but the CPU.
    """
    if self.dtype.is_complex or self.dtype == torch.bool:
        raise NotImplementedError(f'"histc" not implemented for {self.dtype}')
    if bins <= 0:
        raise RuntimeError(f"torch.histc(): bins must be > 0, but got {bins} for dimension 0")
    number = float if self.dtype.is_floating_point else int
    low, high = number(min), number(max)
    if low == high and self.numel():
        low, high = (number(f(self).item()) for f in (_ATEN.min.default, _ATEN.max.default))
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    flat = _ATEN.reshape.default(self, (-1,))
    if number is float:
        place = ((flat - low) / (high - low) * bins).to(torch.int64).clamp(max=bins - 1)
    else:
        place = ((flat.to(torch.int64) - low) * bins).div(high - low, rounding_mode="floor").clamp(max=bins - 1)
    inside = (flat >= low) & (flat <= high)
    place = _ATEN.where.ScalarOther(inside, place, bins)
    counts = _counted(place, _ATEN.ones_like.default(flat), bins + 1, self.dtype)
    return counts[:bins].clone()


_LIBRARY = torch.library.Library("torch_fl_impl", "FRAGMENT")
_LIBRARY.define("repeats_make(Tensor repeats, Tensor ends, Scalar total) -> ()")
_OPS = torch.ops.torch_fl_impl


@kernel("torch_fl_impl::repeats_make", infer=False)
def repeats_make(b: Builder, repeats: Ref, ends: Ref, total: Value) -> None:
    """Repeats below zero, or that do not make `total` elements, are an error at the next read."""
    note_wrong(b, repeats, "v < 0", "repeats")
    note_wrong(b, ends.narrow(0, ends.numel - 1, 1), "v != limit", "repeat_interleave", total)


@handler("aten::repeat_interleave.Tensor")
def repeat_interleave(repeats: Tensor, output_size: int | None = None) -> torch.Tensor:
    """Each index i, repeats[i] times; waits for the device unless `output_size` is given."""
    if repeats.dim() != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("repeats has to be Long or Int tensor")
    if repeats.numel() == 0:
        return _ATEN.new_empty.default(repeats, [0])  # type: ignore[no-any-return]
    if output_size is None and int(_ATEN.min.default(repeats).item()) < 0:
        raise RuntimeError("repeats can not be negative")
    ends = _ATEN.cumsum.default(repeats, 0)
    total = int(ends[-1].item()) if output_size is None else output_size
    numbers = torch.arange(total, dtype=ends.dtype, device=repeats.device)
    if output_size is not None:
        planned(op_of(_OPS.repeats_make.default), (repeats, ends, total), {})
    found = _ATEN.searchsorted.Tensor(ends, numbers, right=True)
    return found.to(repeats.dtype)  # type: ignore[no-any-return]
