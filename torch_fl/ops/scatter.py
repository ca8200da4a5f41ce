"""Elements put at places given by index tensors: scatter and its reductions, index_add and its kin, index_put, put.

Where two entries name one place they are combined in row-major order on a CPU: the same result on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..builder import Builder
from ..dispatch import op_of, planned
from ..errors import Unsupported
from ..kernels.indexed import Index, along, check_index, emit_scatter, row_index
from ..kernels.pointwise import emit
from ..refs import Ref, Value
from ..registry import handler, kernel
from ..tensor import Tensor
from .index import MASKS, advanced, check_home, expand_masks, has_mask

_ATEN = torch.ops.aten
_NAMES = {"add": "sum", "multiply": "prod", "sum": "sum", "prod": "prod", "amax": "amax", "amin": "amin"}


def start_from(b: Builder, self: Ref) -> Ref:
    """The result with the contents of `self`; in place that is `self`."""
    out = b.out()
    if out.slot != self.slot:
        b.copy(out, self)
    return out


def apart(b: Builder, out: Ref, ref: Ref) -> Ref:
    """`ref`, or a copy of it where it lies in the buffer that is written."""
    if not b.shares_buffer(ref, out):
        return ref
    copy = b.temp(ref.shape, ref.dtype)
    b.copy(copy, ref)
    return copy


def scalar(b: Builder, value: Any, dtype: torch.dtype) -> Ref:
    """A number as a 0-dim tensor."""
    if isinstance(value, Ref):
        return b.cast(value, dtype)
    ref = b.temp((), dtype)
    b.fill(ref, value)
    return ref


def _sized(source: Ref, index: Ref) -> Ref:
    """The part of `source` that `index` covers."""
    if source.ndim != index.ndim:
        return source.view(*index.shape)
    return source.as_strided(index.shape, source.strides)


def _scatter(b: Builder, op: str, self: Ref, dim: int, index: Ref, source: Ref, reduce: str) -> None:
    if index.numel and self.numel == 0:
        raise Unsupported("an index into an empty tensor")
    out = start_from(b, self)
    if index.numel == 0:
        return
    check_index(index)
    dim %= max(self.ndim, 1)
    source, index = apart(b, out, source), apart(b, out, index)
    place = along(op, out, dim, index)
    emit_scatter(b, out, source.expand(place.ref.shape), place, [dim], reduce)


@kernel("aten::scatter.src", elementwise=True)
def scatter_src(b: Builder, self: Ref, dim: int, index: Ref, src: Ref) -> None:
    """out[index[i][j]][j] = src[i][j] (for dim 0)."""
    _scatter(b, "scatter", self, dim, index, _sized(src, index), "assign")


@kernel("aten::scatter.value", elementwise=True)
def scatter_value(b: Builder, self: Ref, dim: int, index: Ref, value: Value) -> None:
    """The same with one number."""
    _scatter(b, "scatter", self, dim, index, scalar(b, value, self.dtype), "assign")


@kernel("aten::scatter.reduce", static=("reduce",), elementwise=True)
def scatter_reduce_old(b: Builder, self: Ref, dim: int, index: Ref, src: Ref, reduce: str) -> None:
    """The same, added or multiplied to what is there."""
    _scatter(b, "scatter", self, dim, index, _sized(src, index), _NAMES[reduce])


@kernel("aten::scatter.value_reduce", static=("reduce",), elementwise=True)
def scatter_value_reduce(b: Builder, self: Ref, dim: int, index: Ref, value: Value, reduce: str) -> None:
    """The same with one number."""
    _scatter(b, "scatter", self, dim, index, scalar(b, value, self.dtype), _NAMES[reduce])


@kernel("aten::scatter_add", elementwise=True)
def scatter_add(b: Builder, self: Ref, dim: int, index: Ref, src: Ref) -> None:
    """out[index[i][j]][j] += src[i][j] (for dim 0)."""
    _scatter(b, "scatter_add", self, dim, index, _sized(src, index), "sum")


@kernel("aten::scatter_reduce.two", elementwise=True)
def scatter_reduce(b: Builder, self: Ref, dim: int, index: Ref, src: Ref, reduce: str, include_self: bool) -> None:
    """out = reduction of what is there (unless not `include_self`) and of the entries of `src` that land there."""
    source = _sized(src, index)
    out = start_from(b, self)
    if index.numel == 0:
        return
    check_index(index)
    dim %= max(self.ndim, 1)
    place = along("scatter_reduce", out, dim, apart(b, out, index))
    _reduce(b, out, apart(b, out, source).expand(place.ref.shape), place, dim, reduce, include_self)


def _reduce(b: Builder, out: Ref, source: Ref, place: Index, dim: int, reduce: str, include_self: bool) -> None:
    """`emit_scatter` with torch's two additions: the mean, and a start from nothing."""
    name = _NAMES.get(reduce, "sum")
    if not include_self:
        emit_scatter(b, out, scalar(b, _identity(name, out.dtype), out.dtype), place, [dim])
    emit_scatter(b, out, source, place, [dim], name)
    if reduce == "mean":
        _divide_by_count(b, out, place, dim, include_self)


def _divide_by_count(b: Builder, out: Ref, place: Index, dim: int, include_self: bool) -> None:
    counts = b.temp(out.shape, torch.int32)
    b.fill(counts, int(include_self))
    strides = tuple(0 if d == dim or not out.ndim else s for d, s in enumerate(counts.strides or (0,)))
    into = Index(place.ref, strides, place.size, counts.strides[dim] if out.ndim else 1, False, place.op, place.dim)
    emit_scatter(b, counts, scalar(b, 1, torch.int32), into, [dim], "sum")
    floats = out.dtype.is_floating_point
    compute = torch.float64 if out.dtype == torch.float64 else torch.float32 if floats else torch.int64
    # Integer means round down; C's division rounds towards 0.
    quotient = "x / c" if floats else "x / c - (x % c != 0 && x < 0)"
    emit(b, {"o": (out, f"c > 1 ? {quotient} : x")}, {"x": out, "c": counts}, {}, compute)


def _identity(name: str, dtype: torch.dtype) -> float | int:
    if name in ("sum", "prod"):
        return int(name == "prod")
    if dtype.is_floating_point:
        return float("-inf") if name == "amax" else float("inf")
    if dtype == torch.bool:
        return int(name == "amin")
    limits = torch.iinfo(dtype)
    return limits.min if name == "amax" else limits.max


# -- rows named by a list ----------------------------------------------------------------------------------------


def _rows(b: Builder, op: str, self: Ref, dim: int, index: Ref) -> tuple[Ref, Index, int]:
    check_index(index)
    out = start_from(b, self)
    dim %= max(self.ndim, 1)
    return out, row_index(op, out, dim, apart(b, out, index)), dim


def _source_rows(b: Builder, out: Ref, source: Ref, place: Index) -> Ref:
    source = apart(b, out, source)
    return source if source.ndim == place.ref.ndim else source.view(*place.ref.shape)


@kernel("aten::index_add", elementwise=True)
def index_add(b: Builder, self: Ref, dim: int, index: Ref, source: Ref, alpha: Value) -> None:
    """out[index[i]] += alpha * source[i] along `dim`."""
    out, place, dim = _rows(b, "index_add", self, dim, index)
    if place.ref.numel == 0:
        return
    rows = _source_rows(b, out, source, place)
    if out.dtype.is_complex:
        scaled = b.temp(rows.shape, out.dtype)
        b.call("aten::mul.Tensor", rows, alpha, out=scaled)
        emit_scatter(b, out, scaled, place, [dim], "sum")
    else:
        emit_scatter(b, out, rows, place, [dim], "sum", alpha=alpha)


@kernel("aten::index_copy", elementwise=True)
def index_copy(b: Builder, self: Ref, dim: int, index: Ref, source: Ref) -> None:
    """out[index[i]] = source[i] along `dim`."""
    out, place, dim = _rows(b, "index_copy", self, dim, index)
    emit_scatter(b, out, _source_rows(b, out, source, place), place, [dim])


@kernel("aten::index_fill.int_Scalar", "aten::index_fill.int_Tensor", elementwise=True)
def index_fill(b: Builder, self: Ref, dim: int, index: Ref, value: Any) -> None:
    """out[index[i]] = value along `dim`; negative indices count from the end."""
    out, place, dim = _rows(b, "index_fill", self, dim, index)
    emit_scatter(b, out, scalar(b, value, out.dtype), _wrapped(place), [dim])


def _wrapped(place: Index) -> Index:
    return Index(place.ref, place.strides, place.size, place.stride, True, place.op, place.dim)


@kernel("aten::index_reduce", elementwise=True)
def index_reduce(b: Builder, self: Ref, dim: int, index: Ref, source: Ref, reduce: str, include_self: bool) -> None:
    """out[index[i]] = reduction of it and source[i] along `dim`."""
    out, place, dim = _rows(b, "index_reduce", self, dim, index)
    _reduce(b, out, _source_rows(b, out, source, place), place, dim, reduce, include_self)


# -- x[indices] = values ------------------------------------------------------------------------------------------


@kernel("aten::index_put", "aten::_unsafe_index_put", elementwise=True)
def index_put(b: Builder, self: Ref, indices: list[Ref | None], values: Any, accumulate: bool) -> None:
    """out[indices] = values (or += with `accumulate`), values broadcast."""
    out = start_from(b, self)
    source = apart(b, out, scalar(b, values, out.dtype)) if isinstance(values, Ref) else scalar(b, values, out.dtype)
    place, spanned = advanced(b, "index_put_", out, [i if i is None else apart(b, out, i) for i in indices])
    emit_scatter(b, out, source, place, spanned, "sum" if accumulate else "assign")


@kernel("aten::_index_put_impl", elementwise=True)
def index_put_impl(b: Builder, self: Ref, indices: list[Ref | None], values: Any, accumulate: bool) -> None:
    """The same (what the autograd engine calls)."""
    index_put(b, self, indices, values, accumulate)


def _put_handler(name: str, inplace: bool) -> None:
    """Handlers that turn boolean masks into integers, or a lone mask with one value into masked_fill."""
    overload = getattr(_ATEN, name).default

    def put_at(self: torch.Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False, *rest: Any) -> Any:
        check_home(self, indices)
        if type(values) is Tensor and type(self) is not Tensor:
            raise RuntimeError("index_put_: expected self and values to be on the same device")
        if has_mask(indices):
            if not accumulate and _fills(self, indices, values):
                return fill(self, _one_mask(self, indices[0]), values)
            indices = expand_masks(self, indices)
        return planned(op, (self, indices, values, accumulate, *rest), {})

    def put_named(self: torch.Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False,
                  unsafe: bool = False) -> Any:  # fmt: skip
        return put_at(self, indices, values, accumulate, *([unsafe] if "impl" in name else []))

    fill = _ATEN.masked_fill_.Tensor if inplace else _ATEN.masked_fill.Tensor
    handler(f"aten::{name}")(put_named)
    op = op_of(overload)


def _fills(self: torch.Tensor, indices: Sequence[Any], values: Any) -> bool:
    mask = indices[0]
    return (
        len(indices) == 1
        and mask is not None
        and mask.dtype in MASKS
        and values.dim() == 0
        and values.dtype == self.dtype
        and mask.shape == self.shape[: mask.dim()]
    )


def _one_mask(self: torch.Tensor, mask: torch.Tensor) -> Any:
    mask = mask.to(self.device).to(torch.bool)
    return _ATEN.view.default(mask.contiguous(), [*mask.shape, *[1] * (self.dim() - mask.dim())])


@kernel("aten::put", elementwise=True)
def put(b: Builder, self: Ref, index: Ref, source: Ref, accumulate: bool) -> None:
    """Elements of the flattened tensor."""
    check_index(index)
    out = start_from(b, self)
    index = apart(b, out, index)
    values = b.reshape(apart(b, out, source), *index.shape)
    flat = b.contiguous(out)
    place = Index(index, (0,) * index.ndim, flat.numel, 1, True, "put_")
    emit_scatter(b, flat, values, place, range(index.ndim), "sum" if accumulate else "assign")
    b.deliver(out, flat)


for _name in ("index_put", "_unsafe_index_put", "index_put_", "_index_put_impl_", "_index_put_impl"):
    _put_handler(_name, _name.endswith("_"))
