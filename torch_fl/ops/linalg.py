"""Dense linear algebra: what its families share. Matrices are worked on column-major, as LAPACK and torch return them.

An algorithm takes flat Refs [batch, rows, columns] (`flat`). Panels of `BLOCK` columns are factored by one work-item
per matrix, the rest of the matrix is updated by as many as there are columns or tiles, launch after launch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from ..builder import Builder
from ..errors import Unsupported, dtype_name
from ..fallback import tensor_bytes
from ..kernels import source as sources
from ..refs import Ref
from ..spec import contiguous_strides

BLOCK = 32
"""Columns of a panel."""
ROWS = 256
"""Rows of a tile on a CPU."""


def launch(b: Builder, file: str, name: str, grid: int | tuple[int, ...], args: list[Any], dtype: torch.dtype) -> None:
    """Launch a kernel of native/`file` for numbers of `dtype`. Raises Unsupported for all but float32 and float64."""
    if dtype not in (torch.float32, torch.float64):
        raise Unsupported(f"linear algebra in {dtype_name(dtype)}")
    if any(isinstance(a, Ref) and a.dtype.is_floating_point and a.dtype != dtype for a in args):
        raise Unsupported("linear algebra of several dtypes")
    defines = {
        **b.types(T=dtype),
        "ACC": "double" if b.fp64 else "float",
        "LANES": 64 // dtype.itemsize if b.is_cpu else 1,
        "EPSILON": f"((T){torch.finfo(dtype).eps!r})",
    }
    b.launch(sources.read_native("linalg.h") + sources.read_native(file), name, grid, args, defines)


def flat(ref: Ref) -> Ref:
    """Dense column-major matrices as [batch, rows, columns]."""
    m, n = ref.shape[-2:]
    return ref.as_strided((prod(ref.shape[:-2]), m, n), (m * n, 1, m))


def column_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of dense column-major matrices."""
    *batch, rows, cols = contiguous_strides((*shape[:-2], shape[-1], shape[-2]))
    return (*batch, cols, rows)


def new_columns(b: Builder, shape: tuple[int, ...], dtype: torch.dtype) -> Ref:
    """A temporary of column-major matrices."""
    return b.temp((*shape[:-2], shape[-1], shape[-2]), dtype).transpose(-1, -2)


def columns(b: Builder, out: Ref) -> Ref:
    """Where matrices that end up in `out` are worked on: itself if it is dense and column-major, else a temporary."""
    return out if out.transpose(-1, -2).is_contiguous else new_columns(b, out.shape, out.dtype)


def on_the_left(b: Builder, out: Ref, other: Ref, left: bool, work: Callable[[Ref], None]) -> None:
    """`work` turns `other`, flat, into `out`; not `left`: on the transposed problem, which stands on the left."""
    if not left:
        out, other = out.transpose(-1, -2), other.transpose(-1, -2)
    x = columns(b, out)
    b.copy(x, other)
    work(flat(x))
    b.deliver(out, x)


def in_columns(b: Builder, ref: Ref, shape: tuple[int, ...] | None = None) -> Ref:
    """Matrices, broadcast to `shape`, as dense column-major ones to read: themselves where they are."""
    ref = ref if shape is None else ref.expand(shape)
    if ref.transpose(-1, -2).is_contiguous:
        return ref
    copy = new_columns(b, ref.shape, ref.dtype)
    b.copy(copy, ref)
    return copy


def diagonal(ref: Ref) -> Ref:
    """The diagonals, as a view."""
    *batch, rows, cols = ref.strides
    return ref.as_strided((*ref.shape[:-2], min(ref.shape[-2:])), (*batch, rows + cols))


def identity(b: Builder, ref: Ref) -> None:
    """Fill `ref` with ones on the diagonal and zeros elsewhere."""
    b.fill(ref, 0)
    b.fill(diagonal(ref), 1)


def triangle(b: Builder, out: Ref, source: Ref, lower: bool, unit: bool = False) -> None:
    """Write one triangle of `source`, the rest 0; unit: with ones on the diagonal."""
    b.call("aten::tril" if lower else "aten::triu", source, 0, out=out)
    if unit:
        b.fill(diagonal(out), 1)


def subtract_product(b: Builder, c: Ref, a: Ref, x: Ref, lower: bool = False) -> None:
    """c -= a @ x for flat Refs, rows of c and a dense; `lower`: the upper triangle of c is not wanted."""
    batch, m, n = c.shape
    rows = ROWS if b.is_cpu else 1
    steps = [a.strides[2], x.strides[1], x.strides[2], c.strides[2], a.strides[0], x.strides[0], c.strides[0]]
    args = [a, x, c, m, n, a.shape[2], rows, *steps, int(lower)]
    launch(b, "linalg.c", "update", (-(-m // rows), -(-n // 4), batch), args, c.dtype)


def raise_errors(b: Builder, info: Ref, api: str) -> None:
    """At every call, wait for `info` and raise torch's LinAlgError where one of them is not 0."""
    backend = b.device.backend

    def check(place: tuple[Any, int, Ref]) -> None:
        handle, offset, ref = place
        found = torch.empty(ref.shape, dtype=ref.dtype, device="cpu")
        if found.numel():
            backend.copy_d2h(tensor_bytes(found), handle, offset * ref.dtype.itemsize)
        torch._linalg_check_errors(found, api, is_matrix=found.dim() == 0)

    b.function(check, b.contiguous(info))
