"""Reading and writing elements at places given by index tensors: what every indexing op is made of.

An `Index` says how a loop over some shape finds its place in a tensor: along every dimension of the loop the tensor
has a stride (0 where the index decides), and an index tensor, broadcast over the loop, adds place * stride.
Indices out of bounds are skipped and noted for the next read (`Builder.guard`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..refs import Layout, Ref, Value
from ..runtime.guard import code_of
from .pointwise import complex_parts, merge
from .source import read_native
from .types import HALVES, raw_dtype

if TYPE_CHECKING:
    from ..builder import Builder

NO_SKIP = -(2**63)
ANY_SIZE = 2**62
"""Size of a dimension that was checked before."""

REDUCTIONS = {
    "assign": "(v)",
    "sum": "((a) + (v))",
    "prod": "((a) * (v))",
    "amax": "((v) > (a) || (v) != (v) ? (v) : (a))",
    "amin": "((v) < (a) || (v) != (v) ? (v) : (a))",
}


@dataclass(frozen=True)
class Index:
    """Places along one dimension of a tensor, for a loop.

    `ref`: integers, expanded to the loop's shape. `strides`: the tensor's strides along the loop, 0 where `ref`
    decides. `size`, `stride`: of the indexed dimension `dim`. `wrap`: negative integers count from the end.
    """

    ref: Ref
    strides: tuple[int, ...]
    size: int
    stride: int
    wrap: bool
    op: str
    dim: int = 0


def along(op: str, tensor: Ref, dim: int, index: Ref, wrap: bool = False) -> Index:
    """The Index of a loop over `index.shape` that replaces the coordinate of `dim`, as gather and scatter do."""
    if index.ndim == 0:
        index = index.unsqueeze(0)
    if tensor.ndim == 0:
        return Index(index, (0,) * index.ndim, 1, 1, wrap, op)
    strides = tuple(0 if d == dim else s for d, s in enumerate(tensor.strides))
    return Index(index, strides, tensor.shape[dim], tensor.strides[dim], wrap, op, dim)


def row_index(op: str, tensor: Ref, dim: int, index: Ref, wrap: bool = False) -> Index:
    """The Index of a loop over `tensor` with `dim` replaced by a list of places, as index_select and index_add do."""
    if tensor.ndim == 0:
        return along(op, tensor, 0, index, wrap)
    flat = index if index.ndim else index.unsqueeze(0)
    shape = (*tensor.shape[:dim], flat.shape[0], *tensor.shape[dim + 1 :])
    strides = tuple(flat.strides[0] if d == dim else 0 for d in range(tensor.ndim))
    return along(op, tensor, dim, flat.as_strided(shape, strides), wrap)


def emit_gather(b: Builder, out: Ref, source: Ref, index: Index) -> None:
    """out[...] = source at the places of `index`; `out` has the loop's shape and the dtype of `source`."""
    _check_sizes(out, source)
    if out.shape != index.ref.shape:  # torch lets 0-dim and 1-element tensors stand for each other
        out = out.view(*index.ref.shape)
    out, looped, index = _raw(out, source.as_strided(out.shape, index.strides), index)
    sizes, strides = merge(out.shape, [out.strides, looped.strides, index.ref.strides])
    defines = {**b.types(T=out.dtype, TI=index.ref.dtype), **_inner(strides, "m")}
    items, chunk = b.split(out.numel)
    layout = Layout.of(sizes, strides)
    whole = replace(source, dtype=looped.dtype, offset=looped.offset)
    arguments: list[Any] = [out, whole, index.ref, b.guard(), out.numel, chunk, layout, *_numbers(index)]
    b.launch(read_native("inside.h") + read_native("index.c"), "gather", items, arguments, defines)


def emit_scatter(
    b: Builder,
    target: Ref,
    source: Ref,
    index: Index,
    serial: Sequence[int],
    reduce: str = "assign",
    skip: int = NO_SKIP,
    alpha: Value | int = 1,
) -> None:
    """target at the places of `index` = OP(target there, alpha * source), for OP in REDUCTIONS.

    `source` broadcasts over the loop and has the dtype of `target`. `serial`: dimensions of the loop in which two
    steps may reach one place. Order along them is row-major on a CPU and undefined elsewhere. Entries equal to
    `skip` are passed over.
    """
    _check_sizes(source, target)
    if target.dtype.is_complex and reduce == "sum":
        half = replace(index, strides=tuple(2 * s for s in index.strides), stride=2 * index.stride)
        for part in (0, 1):
            to, of = (complex_parts(r).select(-1, part) for r in (target, source))
            emit_scatter(b, to, of, half, serial, reduce, skip, alpha)
        return
    source = source.expand(index.ref.shape)
    if target.dtype in HALVES and reduce in ("sum", "prod") and _crowded(source, target):
        room = b.temp((target.extent,), torch.float32).as_strided(target.shape, target.strides)
        b.copy(room, target)
        emit_scatter(b, room, b.cast(source, torch.float32), index, serial, reduce, skip, alpha)
        b.copy(target, room)
        return
    looped = target.as_strided(index.ref.shape, index.strides)
    if reduce == "assign":
        source, looped, index = _raw(source, looped, index)
    dtype = looped.dtype
    defines: dict[str, object] = {
        **b.types(T=dtype, TI=index.ref.dtype),
        "OP(a, v)": REDUCTIONS[reduce],
        "SCALE(v)": "(v)" if alpha == 1 and not isinstance(alpha, Value) else "(alpha * (v))",
    }
    if not b.is_cpu and reduce == "assign":
        serial = ()
    elif not b.is_cpu and dtype in _ATOMIC:
        serial = ()
        defines |= {"ATOMIC": 1, **_ATOMIC[dtype]}
    whole = replace(target, dtype=dtype, offset=looped.offset)
    _launch_scatter(b, (whole, looped), source, index, serial, defines, skip, alpha)


def _launch_scatter(
    b: Builder,
    target: tuple[Ref, Ref],
    source: Ref,
    index: Index,
    serial: Sequence[int],
    defines: dict[str, object],
    skip: int,
    alpha: Value | int,
) -> None:
    """Work-items over all dimensions but `serial`, which each walks; `target` is the tensor and its loop's strides."""
    whole, looped = target
    shape, refs = source.shape, (looped, source, index.ref)
    ser = [d for d in serial if shape[d] != 1]
    par = [d for d in range(len(shape)) if d not in serial]
    par_sizes, par_strides = merge([shape[d] for d in par], [[r.strides[d] for d in par] for r in refs])
    ser_sizes, ser_strides = _in_order([shape[d] for d in ser], [[r.strides[d] for d in ser] for r in refs[1:]])
    total, steps = prod(par_sizes), prod(ser_sizes)
    if total * steps == 0:
        return
    # Every work-item reads all indices of its serial dimensions: no more of them than cores need.
    share = total // b.device.properties.compute_units if b.is_cpu and steps > 1 and par_strides[2][0] == 0 else 0
    items, chunk = b.split(total, max(64, 4096 // steps, share))
    arguments: list[Any] = [
        whole, source, index.ref, b.guard(), total, chunk, steps,
        Layout.of(par_sizes, par_strides), Layout.of(ser_sizes, ser_strides), *_numbers(index), skip, alpha,
    ]  # fmt: skip
    text = read_native("inside.h") + read_native("scatter.c")
    b.launch(text, "scatter", items, arguments, {**defines, **_inner(par_strides, "par")})


def emit_linear(b: Builder, op: str, indices: Sequence[Ref], sizes: Sequence[int], strides: Sequence[int]) -> Ref:
    """Several index tensors of one shape as one tensor of offsets, -1 where an index is out of bounds."""
    shape = indices[0].shape
    at = b.temp(shape, torch.int64)
    items, chunk = b.split(at.numel)
    for k, (ref, size, stride) in enumerate(zip(indices, sizes, strides)):
        merged, steps = merge(shape, [at.strides, ref.strides])
        code = code_of(op, k)
        arguments: list[Any] = [
            at,
            ref,
            b.guard(),
            at.numel,
            chunk,
            Layout.of(merged, steps),
            size,
            stride,
            1,
            code,
            k == 0,
        ]
        b.launch("offsets.c", "linear", items, arguments, b.types(TI=ref.dtype))
    return at


def _crowded(source: Ref, target: Ref) -> bool:
    """Whether places may take so many entries that halves should be summed in float, worth two passes over them."""
    return 4 * source.numel >= target.numel


def _check_sizes(a: Ref, b: Ref) -> None:
    """Elements move as raw bits: a larger one would be written over its neighbours."""
    if a.dtype.itemsize != b.dtype.itemsize:
        raise Unsupported(f"elements of {a.dtype} moved into {b.dtype}")


_ATOMIC = {
    torch.float32: {"FROM_BITS(u)": "bits_to_f32(u)", "TO_BITS(v)": "f32_to_bits(v)"},
    torch.int32: {"FROM_BITS(u)": "((int)(u))", "TO_BITS(v)": "((uint)(v))"},
}


def _numbers(index: Index) -> list[int]:
    return [index.size, index.stride, int(index.wrap), code_of(index.op, index.dim)]


def _inner(strides: Sequence[Sequence[int]], layout: str) -> dict[str, object]:
    """Inner strides of the two data tensors: compiled in where both are 1, so that the loop vectorizes."""
    if strides[0][0] == strides[1][0] == 1:
        return {"SY": "1", "SX": "1"}
    return {"SY": f"{layout}.stride[0][0]", "SX": f"{layout}.stride[1][0]"}


def _in_order(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """merge() that keeps the row-major order of dimensions."""
    from ..spec import contiguous_strides

    sizes, merged = merge(shape, [contiguous_strides(tuple(shape)), *strides])
    return sizes, merged[1:]


def _raw(first: Ref, second: Ref, index: Index) -> tuple[Ref, Ref, Index]:
    """Both as unsigned bits, so that any dtype can be moved; 16-byte elements as pairs of 8 bytes."""
    if first.dtype.itemsize != 16:
        raw = raw_dtype(first.dtype.itemsize)
        return replace(first, dtype=raw), replace(second, dtype=raw), replace(index, strides=second.strides)
    first, second = _pairs(first), _pairs(second)
    ref = index.ref.as_strided((*index.ref.shape, 2), (*index.ref.strides, 0))
    return first, second, replace(index, ref=ref, strides=second.strides, stride=2 * index.stride)


def _pairs(ref: Ref) -> Ref:
    strides = (*(2 * s for s in ref.strides), 1)
    return replace(ref, shape=(*ref.shape, 2), strides=strides, dtype=torch.int64, offset=2 * ref.offset)


def check_index(ref: Any) -> None:
    """Raise Unsupported for what kernels do not take as an index."""
    if ref.dtype not in (torch.int64, torch.int32) and ref.numel:
        raise Unsupported("an index that is not int32 or int64")


def raw_bits(ref: Ref) -> Ref:
    """`ref` as unsigned bits of its element size, so that any dtype can be moved. Raises Unsupported for complex128."""
    return replace(ref, dtype=raw_dtype(ref.dtype.itemsize))
