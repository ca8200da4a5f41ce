"""Matrix products by the vendor's library, through cupy.matmul; the portable kernels do what it does not take."""

from __future__ import annotations

from typing import Any

import torch

from torch_fl.builder import Builder
from torch_fl.errors import Unsupported
from torch_fl.kernels.pointwise import emit
from torch_fl.refs import Ref
from torch_fl.registry import kernel
from torch_fl.runtime.adapter import Handle

_DTYPES = {torch.float32: "f4", torch.float64: "f8", torch.float16: "f2"}  # CuPy has no bfloat16


def _array(cupy: Any, argument: tuple[Handle, int, Ref]) -> Any:
    handle, offset, ref = argument
    size = ref.dtype.itemsize
    strides = [s * size for s in ref.strides]
    return cupy.ndarray(ref.shape, _DTYPES[ref.dtype], handle + offset * size, strides)


def _multiply(b: Builder, out: Ref, a: Ref, x: Ref) -> None:
    """out = a @ x on this thread's stream."""
    if a.dtype not in _DTYPES or {a.dtype, x.dtype, out.dtype} != {a.dtype}:
        raise Unsupported(f"dtype {str(a.dtype).removeprefix('torch.')}")
    if 0 in (*a.shape, *x.shape):
        raise Unsupported("an empty product")
    backend: Any = b.device.backend

    def run(*arguments: tuple[Handle, int, Ref]) -> None:
        cupy, streams = backend._cupy, backend.streams
        stream = None if streams is None else streams.current()
        with backend.card, backend.main if stream is None else stream.queue:
            target, left, right = (_array(cupy, each) for each in arguments)
            cupy.matmul(left, right, out=target)
        if stream is not None:
            streams.used(stream, [handle for handle, _, _ in arguments])

    b.function(run, out, a, x)


@kernel("aten::mm", "aten::bmm", backend="cupy")
def mm(b: Builder, self: Ref, mat2: Ref) -> None:
    """[m, k] @ [k, n], or the same for every batch."""
    _multiply(b, b.out(), self, mat2)


@kernel("aten::addmm", backend="cupy")
def addmm(b: Builder, self: Ref, mat1: Ref, mat2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * mat1 @ mat2: the library's product, then one pointwise kernel."""
    _add_product(b, self, mat1, mat2, beta, alpha)


@kernel("aten::baddbmm", backend="cupy")
def baddbmm(b: Builder, self: Ref, batch1: Ref, batch2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * batch1 @ batch2 for every batch."""
    _add_product(b, self, batch1, batch2, beta, alpha)


def _add_product(b: Builder, self: Ref, a: Ref, x: Ref, beta: Any, alpha: Any) -> None:
    if self.dtype != a.dtype or a.dtype not in (torch.float32, torch.float64):
        raise Unsupported("a sum of halves, which would be rounded twice")
    out = b.out()
    product = b.temp(out.shape, out.dtype)
    _multiply(b, product, a, x)
    expression = "alpha * product + (beta == 0 ? 0 : beta * self)"
    emit(b, {"o": (out, expression)}, {"product": product, "self": self}, {"alpha": alpha, "beta": beta}, out.dtype)
