"""Matrix products: mm, bmm, their `add` forms, matrix-vector products, dot and outer products."""

from __future__ import annotations

from typing import Any

from ..kernels.gemm import emit_gemm
from ..plan import Builder, Ref
from ..registry import kernel


@kernel("aten::mm")
def mm(b: Builder, self: Ref, mat2: Ref) -> None:
    """[m, k] @ [k, n]."""
    emit_gemm(b, b.out(), self, mat2)


@kernel("aten::bmm")
def bmm(b: Builder, self: Ref, mat2: Ref) -> None:
    """[b, m, k] @ [b, k, n]."""
    emit_gemm(b, b.out(), self, mat2)


@kernel("aten::addmm")
def addmm(b: Builder, self: Ref, mat1: Ref, mat2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * mat1 @ mat2; self broadcasts and is not read where beta is 0."""
    emit_gemm(b, b.out(), mat1, mat2, c=self, alpha=alpha, beta=beta)
