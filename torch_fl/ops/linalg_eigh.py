"""Eigenvalues and eigenvectors of symmetric matrices: one work-item per matrix, so large ones go to the CPU
where the chip has no library."""

from __future__ import annotations

from math import prod

import torch

from ..builder import Builder
from ..errors import Unsupported
from ..refs import Ref
from ..registry import kernel
from .linalg import columns, flat, launch, new_columns, raise_errors, triangle

LARGEST = 1024
"""Rows up to which one work-item finds the eigenvalues in a sensible time."""


@kernel("aten::_linalg_eigh")
def linalg_eigh(b: Builder, A: Ref, UPLO: str, compute_v: bool) -> None:
    """(eigenvalues in ascending order, eigenvectors as columns); one triangle of A is read. Waits for the device."""
    *batch, n, _ = A.shape
    values, info = b.row_major(b.out(0)), b.temp(batch, torch.int32)
    vectors = columns(b, b.out(1)) if compute_v else None
    if n == 0:
        return
    a = _symmetric(b, A, UPLO.upper() == "L")
    if b.device.backend.routine(b, "syevd", flat(a), values, info, compute_v):
        vectors = a if compute_v else None
    else:
        _by_rotations(b, a, values, vectors, info)
    b.deliver(b.out(0), values)
    if vectors is not None:
        b.deliver(b.out(1), vectors)
    raise_errors(b, info, "linalg.eigh")


def _by_rotations(b: Builder, a: Ref, values: Ref, vectors: Ref | None, info: Ref) -> None:
    *batch, n, _ = a.shape
    if n > LARGEST:
        raise Unsupported(f"eigenvalues of more than {LARGEST} rows")
    room = b.temp((*batch, 3 * n), a.dtype)
    q = flat(vectors) if vectors is not None else values
    args = [flat(a), values, q, room, info, n, int(vectors is not None)]
    launch(b, "linalg_eigh.c", "eigh", prod(batch), args, a.dtype)


def _symmetric(b: Builder, source: Ref, lower: bool) -> Ref:
    """The matrix that one triangle of `source` stands for, as a temporary."""
    half, a = (new_columns(b, source.shape, source.dtype) for _ in range(2))
    triangle(b, half, source, lower)
    strict = b.call("aten::tril", source, -1) if lower else b.call("aten::triu", source, 1)
    b.call("aten::add.Tensor", half, strict.transpose(-1, -2), out=a)
    return a
