"""Singular values: a Householder QR of the tall form, then one-sided Jacobi on R by one work-item per matrix.

The reflections give the rest of an orthogonal basis for `full_matrices`; R of rank r < n is completed in the kernel.
"""

from __future__ import annotations

from math import prod

import torch

from ..builder import Builder
from ..errors import Unsupported
from ..refs import Ref
from ..registry import kernel
from .linalg import column_strides, flat, identity, launch, new_columns, raise_errors, triangle
from .linalg_qr import factored, multiply

LARGEST = 512
"""Smaller side up to which one work-item finds the singular values in a sensible time."""


@kernel("aten::_linalg_svd")
def linalg_svd(b: Builder, A: Ref, full_matrices: bool, compute_uv: bool, driver: str | None) -> None:
    """(U, singular values in descending order, V^T) with A = U @ diag(S) @ V^T. Waits for the device."""
    n = min(A.shape[-2:])
    u, s, vh = b.out(0), b.out(1), _as_on_cpu(b, 2)
    values, info = b.row_major(s), b.temp(A.shape[:-2], torch.int32)
    wide = A.shape[-2] < A.shape[-1]
    a, tau = factored(b, A.transpose(-1, -2) if wide else A)
    w, v = (new_columns(b, (*A.shape[:-2], n, n), A.dtype) for _ in range(2))
    if n:
        triangle(b, w, a.narrow(-2, 0, n), lower=False)
        v = _decompose(b, w, v, values, info, compute_uv)
        raise_errors(b, info, "linalg.svd")
    b.deliver(s, values)
    if compute_uv:
        left, right = (vh.transpose(-1, -2), u.transpose(-1, -2)) if wide else (u, vh)
        _left_vectors(b, left, w, a, tau)
        if n:
            b.copy(right, v.transpose(-1, -2))


def _decompose(b: Builder, w: Ref, v: Ref, values: Ref, info: Ref, vectors: bool) -> Ref:
    """w becomes its left vectors; gives the right ones, which are in v."""
    n = w.shape[-1]
    if b.device.backend.routine(b, "gesvd", flat(w), flat(v), values, info, vectors):
        return v.transpose(-1, -2)
    if n > LARGEST:
        raise Unsupported(f"singular values of more than {LARGEST} rows and columns")
    identity(b, v)
    launch(b, "linalg_svd.c", "svd", prod(w.shape[:-2]), [w, v, values, info, n, int(vectors)], w.dtype)
    return v


def _as_on_cpu(b: Builder, index: int) -> Ref:
    """Result `index` column-major where it is new: torch infers the strides that its GPU kernels give."""
    out = b.outs[index]
    if out.arg is not None or len(out.spec.shape) < 2:
        return b.out(index)
    return b.new_out(index, out.spec.shape, out.spec.dtype, column_strides(out.spec.shape))


def _left_vectors(b: Builder, out: Ref, w: Ref, a: Ref, tau: Ref) -> None:
    """out = Q @ [w, 0; 0, 1]."""
    n, cols = w.shape[-1], out.shape[-1]
    u = new_columns(b, out.shape, out.dtype)
    identity(b, u)
    if n:
        b.copy(u.narrow(-2, 0, n).narrow(-1, 0, n), w)
        if cols:
            multiply(b, flat(a), tau, flat(u))
    b.copy(out, u)
