"""Matrix products: mm, bmm, their `add` forms, matrix-vector products, dot and outer products."""

from __future__ import annotations

import string
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.gemm import emit_gemm
from ..kernels.pointwise import emit
from ..refs import Ref
from ..registry import handler, kernel
from .linear import check_dtypes
from .rows import compute_dtype


@kernel("aten::mm", "aten::bmm")
def mm(b: Builder, self: Ref, mat2: Ref) -> None:
    """[m, k] @ [k, n], or the same for every batch."""
    check_dtypes(self, mat2)
    emit_gemm(b, b.out(), self, mat2)


@kernel("aten::addmm")
def addmm(b: Builder, self: Ref, mat1: Ref, mat2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * mat1 @ mat2; self broadcasts and is not read where beta is 0."""
    check_dtypes(mat1, mat2, self)
    _check_numbers(self, alpha, beta)
    emit_gemm(b, b.out(), mat1, mat2, c=self, alpha=alpha, beta=beta)


@kernel("aten::baddbmm")
def baddbmm(b: Builder, self: Ref, batch1: Ref, batch2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * batch1 @ batch2 for every batch."""
    check_dtypes(batch1, batch2, self)
    _check_numbers(self, alpha, beta)
    emit_gemm(b, b.out(), batch1, batch2, c=self, alpha=alpha, beta=beta)


@kernel("aten::addbmm")
def addbmm(b: Builder, self: Ref, batch1: Ref, batch2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * (batch1 @ batch2 summed over the batch)."""
    check_dtypes(batch1, batch2, self)
    _check_numbers(self, alpha, beta)
    emit_gemm(b, b.out(), batch1, batch2, c=self, alpha=alpha, beta=beta, sum_batch=True)


@kernel("aten::_addmm_activation", static=("use_gelu",))
def addmm_activation(b: Builder, self: Ref, mat1: Ref, mat2: Ref, beta: Any, alpha: Any, use_gelu: bool) -> None:
    """relu or gelu of addmm."""
    out = b.out()
    product = b.temp(out.shape, out.dtype)
    emit_gemm(b, product, mat1, mat2, c=self, alpha=alpha, beta=beta)
    b.call("aten::gelu" if use_gelu else "aten::relu", product, out=out)


@kernel("aten::mv")
def mv(b: Builder, self: Ref, vec: Ref) -> None:
    """[m, k] @ [k]."""
    check_dtypes(self, vec)
    emit_gemm(b, b.out().unsqueeze(1), self, vec.unsqueeze(1))


@kernel("aten::addmv")
def addmv(b: Builder, self: Ref, mat: Ref, vec: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * mat @ vec."""
    check_dtypes(mat, vec, self)
    _check_numbers(self, alpha, beta)
    out = b.out()
    emit_gemm(b, out.unsqueeze(1), mat, vec.unsqueeze(1), c=self.expand(out.shape).unsqueeze(1), alpha=alpha, beta=beta)


@kernel("aten::dot")
def dot(b: Builder, self: Ref, tensor: Ref) -> None:
    """Sum of products of two vectors."""
    check_dtypes(self, tensor)
    emit_gemm(b, b.out().view(1, 1), self.unsqueeze(0), tensor.unsqueeze(1))


@kernel("aten::vdot")
def vdot(b: Builder, self: Ref, other: Ref) -> None:
    """The same; complex vectors, where they would differ, go to the next route."""
    dot(b, self, other)


@kernel("aten::addr")
def addr(b: Builder, self: Ref, vec1: Ref, vec2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * outer(vec1, vec2); self is not read where beta is 0."""
    compute = compute_dtype([self, vec1, vec2], KIND.DEFAULT)
    expression = "alpha * vec1 * vec2 + (beta == 0 ? 0 : beta * self)"
    tensors = {"self": self, "vec1": vec1.unsqueeze(1), "vec2": vec2}
    emit(b, {"o": (b.out(), expression)}, tensors, {"alpha": alpha, "beta": beta}, compute)


@handler("aten::_trilinear")
def trilinear(
    i1: torch.Tensor,
    i2: torch.Tensor,
    i3: torch.Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    """Sum over `sumdim` of i1 * i2 * i3, each given new dimensions at its `expand`: two batched products."""
    names = string.ascii_letters[: i1.dim() + len(expand1)]
    terms = ["".join(c for d, c in enumerate(names) if d not in e) for e in (expand1, expand2, expand3, sumdim)]
    return torch.einsum(f"{terms[0]},{terms[1]},{terms[2]}->{terms[3]}", i1, i2, i3)


def _check_numbers(self: Ref, *numbers: Any) -> None:
    """Integer products take integer factors; the error is torch's own, raised by the CPU."""
    if not self.dtype.is_floating_point and any(n.kind is float for n in numbers):
        raise Unsupported("a float factor of an integer product")
