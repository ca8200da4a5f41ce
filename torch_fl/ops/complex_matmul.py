"""Matrix products of complex numbers, as one real product of twice the depth.

out.re = a.re @ x.re + a.im @ -x.im and out.im = a.re @ x.im + a.im @ x.re: real and imaginary parts of the result are a
batch of two, those of `a` a dimension that is summed over, and `x` is written out in the four ways.
"""

from __future__ import annotations

from typing import Any

from ..builder import Builder
from ..errors import unsupported_dtype
from ..kernels.gemm import emit_gemm
from ..kernels.pointwise import complex_parts, emit
from ..refs import Ref
from ..registry import COMPLEX, kernel
from .complex import run_complex, times

_WAYS = {False: (("re", "-im"), ("im", "re")), True: (("re", "im"), ("im", "-re"))}
"""What the parts of `a` are multiplied with for each part of the result, by whether `a` is conjugated."""


def product(b: Builder, out: Ref, a: Ref, x: Ref, conjugate: bool = False) -> None:
    """out = a @ x: [..., m, k] @ [..., k, n] with up to one batch dimension, all of one complex dtype.

    `conjugate`: of `a`. out must share no memory with the operands. Raises Unsupported for other dtypes.
    """
    if not out.dtype == a.dtype == x.dtype or not out.dtype.is_complex:
        raise unsupported_dtype(x.dtype)
    if out.ndim == 2:
        out, a, x = out.unsqueeze(0), a.unsqueeze(0), x.unsqueeze(0)
    left, right, result = complex_parts(a), complex_parts(x), complex_parts(out)
    batch, k, n = x.shape
    four = b.temp((2, batch, 2, k, n), right.dtype)
    ways = {f"w{p}{s}": (four.select(0, p).select(1, s), _WAYS[conjugate][p][s]) for p in (0, 1) for s in (0, 1)}
    halves = {"re": right.select(-1, 0), "im": right.select(-1, 1)}
    emit(b, ways, halves, {}, right.dtype)
    rows = left.permute(0, 3, 1, 2).unsqueeze(0)
    emit_gemm(b, result.permute(3, 0, 1, 2), rows.expand((2, *rows.shape[1:])), four, sum_batch=True)


def _add_product(b: Builder, self: Ref, made: Ref, beta: Any, alpha: Any) -> None:
    """out = beta * self + alpha * made; self is not read where beta is 0."""
    scaled = times(alpha, "alpha", "made")
    text = f"c_true(beta) ? c_add({times(beta, 'beta', 'self')}, {scaled}) : {scaled}"
    run_complex(b, text, {"self": self, "made": made, "beta": beta, "alpha": alpha}, ("self", "made"))


def _made(b: Builder, a: Ref, x: Ref, conjugate: bool = False) -> Ref:
    made = b.temp((*a.shape[:-1], x.shape[-1]), a.dtype)
    product(b, made, a, x, conjugate)
    return made


@kernel("aten::mm", "aten::bmm", backend=COMPLEX)
def mm(b: Builder, self: Ref, mat2: Ref) -> None:
    """[m, k] @ [k, n], or the same for every batch."""
    product(b, b.out(), self, mat2)


@kernel("aten::addmm", backend=COMPLEX)
def addmm(b: Builder, self: Ref, mat1: Ref, mat2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * mat1 @ mat2."""
    _add_product(b, self, _made(b, mat1, mat2), beta, alpha)


@kernel("aten::baddbmm", backend=COMPLEX)
def baddbmm(b: Builder, self: Ref, batch1: Ref, batch2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * batch1 @ batch2 for every batch."""
    _add_product(b, self, _made(b, batch1, batch2), beta, alpha)


@kernel("aten::addbmm", backend=COMPLEX)
def addbmm(b: Builder, self: Ref, batch1: Ref, batch2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * (batch1 @ batch2 summed over the batch): the batch is a part of the depth."""
    s, m, k = batch1.shape
    a = b.reshape(batch1.permute(1, 0, 2), m, s * k)
    _add_product(b, self, _made(b, a, b.reshape(batch2, s * k, batch2.shape[2])), beta, alpha)


@kernel("aten::mv", backend=COMPLEX)
def mv(b: Builder, self: Ref, vec: Ref) -> None:
    """[m, k] @ [k]."""
    product(b, b.out().unsqueeze(1), self, vec.unsqueeze(1))


@kernel("aten::addmv", backend=COMPLEX)
def addmv(b: Builder, self: Ref, mat: Ref, vec: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * mat @ vec."""
    _add_product(b, self, _made(b, mat, vec.unsqueeze(1)).select(1, 0), beta, alpha)


@kernel("aten::dot", backend=COMPLEX)
def dot(b: Builder, self: Ref, tensor: Ref) -> None:
    """Sum of products of two vectors."""
    product(b, b.out().view(1, 1), self.unsqueeze(0), tensor.unsqueeze(1))


@kernel("aten::vdot", backend=COMPLEX)
def vdot(b: Builder, self: Ref, other: Ref) -> None:
    """Sum of products of two vectors, the first one conjugated."""
    product(b, b.out().view(1, 1), self.unsqueeze(0), other.unsqueeze(1), conjugate=True)


@kernel("aten::addr", backend=COMPLEX)
def addr(b: Builder, self: Ref, vec1: Ref, vec2: Ref, beta: Any, alpha: Any) -> None:
    """beta * self + alpha * outer(vec1, vec2); self is not read where beta is 0."""
    term = times(alpha, "alpha", "c_mul(vec1, vec2)")
    text = f"c_true(beta) ? c_add({times(beta, 'beta', 'self')}, {term}) : {term}"
    operands = {"self": self, "vec1": vec1.unsqueeze(1), "vec2": vec2, "beta": beta, "alpha": alpha}
    run_complex(b, text, operands, ("self", "vec1", "vec2"))


@kernel("aten::linear", backend=COMPLEX)
def linear(b: Builder, input: Ref, weight: Ref, bias: Ref | None) -> None:
    """input @ weight.T + bias over the last dimension."""
    out, weight = b.out(), weight if weight.ndim == 2 else weight.unsqueeze(0)
    n, k = weight.shape
    rows = input.numel // max(1, k) if input.numel else out.numel // max(1, n)
    a, x, flat = b.reshape(input, rows, k), weight.transpose(0, 1), out.view(rows, n)
    if bias is None:
        product(b, flat, a, x)
    else:
        run_complex(b, "c_add(made, bias)", {"made": _made(b, a, x), "bias": bias}, out=flat)
