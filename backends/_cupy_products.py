"""Matrix products by the vendor's library; the portable kernels do what it does not take.

Floats and doubles go through cupy.matmul, which computes float32 in float32 unless CUPY_TF32 says otherwise: torch's
rule. CuPy's arrays have no bfloat16, and its sums of halves would be rounded twice: on CUDA both go to cuBLAS itself,
which adds up in float32, adds beta * c, and rounds once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torch_fl.builder import Builder
from torch_fl.errors import Unsupported, dtype_name
from torch_fl.kernels.pointwise import emit
from torch_fl.kernels.types import HALVES
from torch_fl.refs import Ref, Value
from torch_fl.registry import kernel
from torch_fl.runtime.adapter import Handle

from ._cupy_libraries import array, on_stream

_DTYPES: tuple[torch.dtype, ...] = (torch.float32, torch.float64, torch.float16)


def _multiply(b: Builder, out: Ref, a: Ref, x: Ref) -> None:
    """out = a @ x on this thread's stream."""
    if a.dtype == torch.bfloat16:
        _halves(b, out, a, x, None, 1, 0)
        return
    if a.dtype not in _DTYPES or {a.dtype, x.dtype, out.dtype} != {a.dtype}:
        raise Unsupported(f"dtype {dtype_name(a.dtype)}")
    if 0 in (*a.shape, *x.shape):
        raise Unsupported("an empty product")
    backend: Any = b.device.backend
    backend.libraries.need("cublas")

    def run(*arguments: tuple[Handle, int, Ref]) -> None:
        cupy = backend._cupy
        with on_stream(backend, [handle for handle, _, _ in arguments], in_turn=False):
            target, left, right = (array(cupy, each) for each in arguments)
            cupy.matmul(left, right, out=target)

    b.function(run, out, a, x)


@kernel("aten::mm", "aten::bmm", backend="cupy")
def mm(b: Builder, self: Ref, mat2: Ref) -> None:
    """[m, k] @ [k, n], or the same for every batch."""
    _multiply(b, b.out(), self, mat2)


@kernel("aten::addmm", backend="cupy")
def addmm(b: Builder, self: Ref, mat1: Ref, mat2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * mat1 @ mat2: the library's product, then one pointwise kernel."""
    _add_product(b, b.out(), self, mat1, mat2, beta, alpha)


@kernel("aten::baddbmm", backend="cupy")
def baddbmm(b: Builder, self: Ref, batch1: Ref, batch2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * batch1 @ batch2 for every batch."""
    _add_product(b, b.out(), self, batch1, batch2, beta, alpha)


def _add_product(b: Builder, out: Ref, self: Ref, a: Ref, x: Ref, beta: Any, alpha: Any) -> None:
    if self.dtype != a.dtype:
        raise Unsupported("a sum of several dtypes")
    if a.dtype in HALVES:
        _halves(b, out, a, x, self, alpha, beta)
        return
    if a.dtype not in (torch.float32, torch.float64):
        raise Unsupported(f"dtype {dtype_name(a.dtype)}")
    product = b.temp(out.shape, out.dtype)
    _multiply(b, product, a, x)
    expression = "alpha * product + (beta == 0 ? 0 : beta * self)"
    emit(b, {"o": (out, expression)}, {"product": product, "self": self}, {"alpha": alpha, "beta": beta}, out.dtype)


def product(b: Builder, out: Ref, a: Ref, x: Ref, c: Ref | None, alpha: Any, beta: Any) -> bool:
    """`Backend.product`: a matrix or a batch of them, where the library takes the dtype."""
    if out.strides[-2] == 1 != out.strides[-1]:
        c = c if c is None else c.expand(out.shape).transpose(-1, -2)
        out, a, x = out.transpose(-1, -2), x.transpose(-1, -2), a.transpose(-1, -2)
    try:
        if out.ndim == 4:
            batch = out.shape[0] * out.shape[1]
            c = c if c is None else c.expand(out.shape).view(batch, *out.shape[2:])
            out, a, x = (r.view(batch, *r.shape[2:]) for r in (out, a, x))
        if c is not None:
            _add_product(b, out, c, a, x, beta, alpha)
        elif isinstance(alpha, Value) or alpha != 1:
            return False
        else:
            _multiply(b, out, a, x)
    except Unsupported:
        return False
    return True


# -- cuBLAS itself ---------------------------------------------------------------------------------------------------
_DATA_TYPES = {torch.float16: 2, torch.bfloat16: 14}
"""cudaDataType of library_types.h."""
_SUM_IN_FLOAT32, _DEFAULT = 68, -1
"""CUBLAS_COMPUTE_32F and CUBLAS_GEMM_DEFAULT of cublas_api.h."""


def _halves(b: Builder, out: Ref, a: Ref, x: Ref, c: Ref | None, alpha: Any, beta: Any) -> None:
    """out = alpha * a @ x + beta * c in halves. cuBLAS takes columns first: it is asked for the transpose."""
    backend: Any = b.device.backend
    if (
        backend.name != "cuda"
        or out.dtype not in _DATA_TYPES
        or {a.dtype, x.dtype, out.dtype} != {a.dtype}
        or 0 in (*a.shape, *x.shape)
    ):
        raise Unsupported("halves that are not all of one kind on CUDA, or an empty product")
    cublas = backend.libraries.need("cublas")
    made = b.row_major(out)
    if c is not None:
        b.copy(made, c)
    (a, turned_a, step_a), (x, turned_x, step_x) = _by_rows(b, a), _by_rows(b, x)
    rows, inner, columns = *a.shape[-2:], x.shape[-1]
    kind, count = _DATA_TYPES[out.dtype], out.shape[0] if out.ndim == 3 else 1
    jumps = [r.strides[0] if r.ndim == 3 else 0 for r in (x, a, made)]

    def run(*arguments: Any) -> None:
        *operands, by, of = arguments
        numbers = np.array([by, of], np.float32)
        to, left, right = (handle.ptr + offset * 2 for handle, offset, _ in operands)
        with on_stream(backend, [handle for handle, _, _ in operands], in_turn=False):
            cublas.gemmStridedBatchedEx(
                backend.card.cublas_handle, turned_x, turned_a, columns, rows, inner, numbers.ctypes.data,
                right, kind, step_x, jumps[0], left, kind, step_a, jumps[1], numbers.ctypes.data + 4,
                to, kind, columns, jumps[2], count, _SUM_IN_FLOAT32, _DEFAULT,
            )  # fmt: skip

    b.function(run, made, a, x, alpha, beta)
    b.deliver(out, made)


def _by_rows(b: Builder, ref: Ref) -> tuple[Ref, int, int]:
    """A matrix or a batch as the library takes it, itself or a copy; whether columns are dense; the step between."""
    rows, columns = ref.shape[-2:]
    step, inner = ref.strides[-2:]
    if (inner == 1 or columns == 1) and step >= columns:
        return ref, 0, step
    if (step == 1 or rows == 1) and inner >= rows:
        return ref, 1, inner
    return b.contiguous(ref), 0, columns
