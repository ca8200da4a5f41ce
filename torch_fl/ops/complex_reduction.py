"""Sums, products, moments, norms and running results of complex numbers.

What is linear runs on the real and imaginary parts as on real numbers with one more dimension; what only asks for
sizes, or whether a number is zero, runs on those; products are made in pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..builder import Builder
from ..errors import unsupported_dtype
from ..kernels.pointwise import complex_parts
from ..kernels.reduce import MEAN, SUM, Reduction, emit_reduce, reduced_dims
from ..refs import Ref
from ..registry import COMPLEX, Kernel, add_kernel, find_overload, kernel
from ..schema import params_of
from .complex import run_complex
from .reduction import degrees_of_freedom


def _check(*refs: Ref) -> None:
    for ref in refs:
        if not ref.dtype.is_complex:
            raise unsupported_dtype(ref.dtype)


def _sum(b: Builder, self: Ref, dim: Any, how: Reduction) -> None:
    out = b.out()
    _check(out)
    parts = complex_parts(b.cast(self, out.dtype))
    acc = torch.float64 if b.fp64 else parts.dtype
    emit_reduce(b, complex_parts(out), parts, reduced_dims(self.ndim, dim), how, acc)


@kernel("aten::sum", backend=COMPLEX)
def sum_all(b: Builder, self: Ref) -> None:
    """Sum of all elements."""
    _sum(b, self, None, SUM)


@kernel("aten::sum.dim_IntList", backend=COMPLEX)
def sum_dims(b: Builder, self: Ref, dim: Any) -> None:
    """Sum over dimensions."""
    _sum(b, self, dim, SUM)


@kernel("aten::mean", backend=COMPLEX)
def mean_all(b: Builder, self: Ref) -> None:
    """Mean of all elements."""
    _sum(b, self, None, MEAN)


@kernel("aten::mean.dim", backend=COMPLEX)
def mean_dims(b: Builder, self: Ref, dim: Any) -> None:
    """Mean over dimensions."""
    _sum(b, self, dim, MEAN)


@kernel("aten::cumsum", backend=COMPLEX)
def cumsum(b: Builder, self: Ref, dim: int) -> None:
    """out[i] = self[0] + ... + self[i] along `dim`."""
    out = b.out()
    _check(out)
    if self.ndim == 0:
        b.copy(out, self)
        return
    parts = complex_parts(b.cast(self, out.dtype))
    b.call("aten::cumsum", parts, dim % self.ndim, out=complex_parts(out))


# -- products ----------------------------------------------------------------------------------------------------
def _times(b: Builder, out: Ref, self: Ref, other: Ref) -> None:
    run_complex(b, "c_mul(self, other)", {"self": self, "other": other}, out=out)


def _product(b: Builder, out: Ref, work: Ref) -> None:
    """out = the product of `work`, which is overwritten, over its first dimension: half is multiplied into half."""
    n = work.shape[0]
    if n == 0:
        b.fill(out, 1)
        return
    while n > 1:
        half = (n + 1) // 2
        _times(b, work.narrow(0, 0, n - half), work.narrow(0, 0, n - half), work.narrow(0, half, n - half))
        n = half
    b.copy(out, work.select(0, 0))


@kernel("aten::prod", backend=COMPLEX)
def prod_all(b: Builder, self: Ref) -> None:
    """Product of all elements."""
    out = b.out()
    _check(out)
    work = b.temp(self.shape, out.dtype)
    b.copy(work, self)
    _product(b, out, work.view(work.numel))


@kernel("aten::prod.dim_int", backend=COMPLEX)
def prod_dim(b: Builder, self: Ref, dim: int) -> None:
    """Product over a dimension."""
    out = b.out()
    _check(out)
    self = self if self.ndim else self.unsqueeze(0)
    dim %= self.ndim
    order = [dim, *(d for d in range(self.ndim) if d != dim)]
    work = b.temp([self.shape[d] for d in order], out.dtype)
    b.copy(work, self.permute(*order))
    _product(b, out.select(dim, 0) if out.ndim == self.ndim and out.ndim else out, work)


@kernel("aten::cumprod", backend=COMPLEX)
def cumprod(b: Builder, self: Ref, dim: int) -> None:
    """out[i] = self[0] * ... * self[i] along `dim`.

    Source of the method: Hillis and Steele, Data Parallel Algorithms (1986): log2(n) passes, each element times the one
    1, 2, 4 ... places before it.
    """
    out = b.out()
    _check(out)
    if self.ndim == 0 or self.numel == 0:
        b.copy(out, self)
        return
    dim %= self.ndim
    n, source, step = self.shape[dim], self, 1
    while step < n:
        target = out if 2 * step >= n else b.temp(out.shape, out.dtype)
        b.copy(target.narrow(dim, 0, step), source.narrow(dim, 0, step))
        later, before = source.narrow(dim, step, n - step), source.narrow(dim, 0, n - step)
        _times(b, target.narrow(dim, step, n - step), later, before)
        source, step = target, 2 * step
    if n == 1:
        b.copy(out, self)


# -- sizes and zeros ---------------------------------------------------------------------------------------------
def _variance(b: Builder, self: Ref, dim: Any, correction: Any, end: str, mean: Ref | None = None) -> None:
    """Squared distances to the mean, which go to `mean` where it is wanted, over max(0, count - correction)."""
    _check(self)
    dims = reduced_dims(self.ndim, dim)
    kept = [1 if d in dims else n for d, n in enumerate(self.shape)]
    center = b.temp(kept, self.dtype)
    parts = complex_parts(self)
    emit_reduce(b, complex_parts(center), parts, dims, MEAN, parts.dtype)
    if mean is not None:
        b.copy(mean, center.view(*mean.shape))
    squares = b.temp(self.shape, parts.dtype)
    run_complex(b, "c_square(c_sub(self, center))", {"self": self, "center": center}, out=squares)

    freedom = degrees_of_freedom(self, dims, correction)
    emit_reduce(b, b.out(0), squares, dims, Reduction(end=end), parts.dtype, None, freedom)


@kernel("aten::var.correction", backend=COMPLEX)
def var(b: Builder, self: Ref, dim: Any, correction: Any) -> None:
    """Variance of real and imaginary parts together."""
    _variance(b, self, dim, correction, "a / e")


@kernel("aten::std.correction", backend=COMPLEX)
def std(b: Builder, self: Ref, dim: Any, correction: Any) -> None:
    """Square root of the variance."""
    _variance(b, self, dim, correction, "sqrt(a / e)")


@kernel("aten::var_mean.correction", backend=COMPLEX)
def var_mean(b: Builder, self: Ref, dim: Any, correction: Any) -> None:
    """Variance and mean."""
    _variance(b, self, dim, correction, "a / e", b.out(1))


@kernel("aten::std_mean.correction", backend=COMPLEX)
def std_mean(b: Builder, self: Ref, dim: Any, correction: Any) -> None:
    """Standard deviation and mean."""
    _variance(b, self, dim, correction, "sqrt(a / e)", b.out(1))


@kernel("aten::linalg_vector_norm", backend=COMPLEX, static=("ord",))
def linalg_vector_norm(b: Builder, self: Ref, ord: float, dim: Any, keepdim: bool) -> None:
    """The norm of the absolute values."""
    _check(self)
    sizes = b.temp(self.shape, self.dtype.to_real())
    run_complex(b, "c_abs(self)", {"self": self}, out=sizes)
    b.call("aten::linalg_vector_norm", b.cast(sizes, b.out().dtype), ord, dim, keepdim, out=b.out())


def _of_truth(name: str) -> Callable[..., None]:
    def run(b: Builder, /, *, self: Ref, **arguments: Any) -> None:
        _check(self)
        true = b.temp(self.shape, torch.bool)
        run_complex(b, "c_true(self)", {"self": self}, out=true)
        b.call(name, true, out=b.out(), **arguments)

    return run


for _name in ("any", "any.dim", "any.dims", "all", "all.dim", "all.dims", "count_nonzero", "count_nonzero.dim_IntList"):
    _full = f"aten::{_name}"
    _names = tuple(p.name for p in params_of(find_overload(_full)))
    add_kernel(find_overload(_full), Kernel(_full, _of_truth(_full), COMPLEX, names=_names))
