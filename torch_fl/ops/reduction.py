"""Reductions: sums, products, extremes, their indices, moments and vector norms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from ..builder import Builder
from ..kernels.reduce import (
    ALL,
    ANY,
    COUNT,
    FIND,
    MAX,
    MEAN,
    MIN,
    NANSUM,
    PROD,
    SUM,
    Reduction,
    accumulator,
    emit_reduce,
    reduced_dims,
)
from ..kernels.types import HALVES, ctype
from ..refs import Ref, Value
from ..registry import kernel


def _accumulate(b: Builder, self: Ref, dim: Any, how: Reduction) -> None:
    """A sum or product in the wide dtype of the result; elements are rounded to a narrower result dtype first."""
    out = b.out()
    if out.dtype in HALVES:
        self = b.cast(self, out.dtype)
    if out.dtype == torch.bool:
        how = ALL if how is PROD else ANY
    emit_reduce(b, out, self, reduced_dims(self.ndim, dim), how, accumulator(out.dtype))


@kernel("aten::sum")
def sum_all(b: Builder, self: Ref) -> None:
    """Sum of all elements."""
    _accumulate(b, self, None, SUM)


@kernel("aten::sum.dim_IntList")
def sum_dims(b: Builder, self: Ref, dim: Any) -> None:
    """Sum over dimensions."""
    _accumulate(b, self, dim, SUM)


@kernel("aten::nansum")
def nansum(b: Builder, self: Ref, dim: Any) -> None:
    """Sum over dimensions with NaN counted as 0."""
    _accumulate(b, self, dim, NANSUM)


@kernel("aten::mean")
def mean_all(b: Builder, self: Ref) -> None:
    """Mean of all elements."""
    _accumulate(b, self, None, MEAN)


@kernel("aten::mean.dim")
def mean_dims(b: Builder, self: Ref, dim: Any) -> None:
    """Mean over dimensions."""
    _accumulate(b, self, dim, MEAN)


@kernel("aten::prod")
def prod_all(b: Builder, self: Ref) -> None:
    """Product of all elements."""
    _accumulate(b, self, None, PROD)


@kernel("aten::prod.dim_int")
def prod_dim(b: Builder, self: Ref, dim: int) -> None:
    """Product over a dimension."""
    _accumulate(b, self, dim, PROD)


@kernel("aten::any")
def any_all(b: Builder, self: Ref) -> None:
    """Whether any element is not zero; NaN is not zero."""
    emit_reduce(b, b.out(), self, reduced_dims(self.ndim, None), ANY, torch.int32)


@kernel("aten::all")
def all_all(b: Builder, self: Ref) -> None:
    """Whether no element is zero."""
    emit_reduce(b, b.out(), self, reduced_dims(self.ndim, None), ALL, torch.int32)


def _logical_dims(self: Ref, dim: Any) -> tuple[int, ...]:
    # here, unlike in sums, an empty list means no dimension
    return () if isinstance(dim, (list, tuple)) and not dim else reduced_dims(self.ndim, dim)


@kernel("aten::any.dim", "aten::any.dims")
def any_dims(b: Builder, self: Ref, dim: Any) -> None:
    """Whether any element along dimensions is not zero."""
    emit_reduce(b, b.out(), self, _logical_dims(self, dim), ANY, torch.int32)


@kernel("aten::all.dim", "aten::all.dims")
def all_dims(b: Builder, self: Ref, dim: Any) -> None:
    """Whether no element along dimensions is zero."""
    emit_reduce(b, b.out(), self, _logical_dims(self, dim), ALL, torch.int32)


@kernel("aten::count_nonzero", "aten::count_nonzero.dim_IntList")
def count_nonzero(b: Builder, self: Ref, dim: Any) -> None:
    """How many elements along a dimension, several or all are not zero."""
    emit_reduce(b, b.out(), self, reduced_dims(self.ndim, dim), COUNT, torch.int64)


# -- extremes and where they are ---------------------------------------------------------------------------------
def extreme(b: Builder, out: Ref, self: Ref, dims: tuple[int, ...], how: Reduction) -> None:
    """out = MAX or MIN over dims, in the compute type of the dtype: nothing can overflow.

    Raises IndexError for a dimension without elements: there is no largest one.
    """
    for d in dims:
        if self.shape and self.shape[d] == 0:
            raise IndexError(f"Expected reduction dim {d} to have non-zero size.")
    wide = {"float": torch.float32, "int": torch.int32}
    emit_reduce(b, out, self, dims, how, wide.get(ctype(self.dtype).compute, self.dtype))


def _not_empty(self: Ref, name: str) -> None:
    if self.numel == 0:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )


@kernel("aten::max")
def max_all(b: Builder, self: Ref) -> None:
    """The largest element; NaN where there is one."""
    _not_empty(self, "max")
    extreme(b, b.out(), self, reduced_dims(self.ndim, None), MAX)


@kernel("aten::min")
def min_all(b: Builder, self: Ref) -> None:
    """The smallest element; NaN where there is one."""
    _not_empty(self, "min")
    extreme(b, b.out(), self, reduced_dims(self.ndim, None), MIN)


@kernel("aten::amax")
def amax(b: Builder, self: Ref, dim: Any) -> None:
    """The largest elements along dimensions."""
    extreme(b, b.out(), self, reduced_dims(self.ndim, dim), MAX)


@kernel("aten::amin")
def amin(b: Builder, self: Ref, dim: Any) -> None:
    """The smallest elements along dimensions."""
    extreme(b, b.out(), self, reduced_dims(self.ndim, dim), MIN)


@kernel("aten::aminmax")
def aminmax(b: Builder, self: Ref, dim: int | None) -> None:
    """Smallest and largest elements along a dimension, or of all."""
    dims = reduced_dims(self.ndim, dim)
    extreme(b, b.out(0), self, dims, MIN)
    extreme(b, b.out(1), self, dims, MAX)


def _extreme_and_index(b: Builder, self: Ref, dim: int, how: Reduction) -> None:
    dims = reduced_dims(self.ndim, dim)
    extreme(b, b.out(0), self, dims, how)
    emit_reduce(b, b.out(1), self, dims, FIND, torch.int64, b.out(0))


@kernel("aten::max.dim")
def max_dim(b: Builder, self: Ref, dim: int) -> None:
    """The largest elements along a dimension and the first index of each; NaN is the largest."""
    _extreme_and_index(b, self, dim, MAX)


@kernel("aten::min.dim")
def min_dim(b: Builder, self: Ref, dim: int) -> None:
    """The smallest elements along a dimension and the first index of each; NaN is the smallest."""
    _extreme_and_index(b, self, dim, MIN)


def _index(b: Builder, self: Ref, dim: int | None, how: Reduction) -> None:
    out = b.out()
    if dim is None:  # the index counts in row-major order
        self, out, dim = b.contiguous(self).view(self.numel), out.as_strided((), ()), 0
    dims = reduced_dims(self.ndim, dim)
    best = b.temp([n for d, n in enumerate(self.shape) if d not in dims], self.dtype)
    extreme(b, best, self, dims, how)
    emit_reduce(b, out, self, dims, FIND, torch.int64, best)


@kernel("aten::argmax")
def argmax(b: Builder, self: Ref, dim: int | None) -> None:
    """The first index of the largest element along a dimension, or of all in row-major order."""
    _index(b, self, dim, MAX)


@kernel("aten::argmin")
def argmin(b: Builder, self: Ref, dim: int | None) -> None:
    """The first index of the smallest element along a dimension, or of all in row-major order."""
    _index(b, self, dim, MIN)


# -- moments -----------------------------------------------------------------------------------------------------
def _moments(b: Builder, self: Ref, dim: Any, correction: Any, end: str, out: Ref, mean: Ref | None = None) -> None:
    """Two passes: the mean, then the squared distances to it, divided by max(0, count - correction)."""
    dims, acc = reduced_dims(self.ndim, dim), accumulator(self.dtype)
    center = b.temp([n for d, n in enumerate(self.shape) if d not in dims], acc)
    emit_reduce(b, center, self, dims, MEAN, acc)
    if mean is not None:
        b.copy(mean, center.view(*mean.shape))

    how = Reduction(map="(v - s) * (v - s)", end=end)
    emit_reduce(b, out, self, dims, how, acc, center, degrees_of_freedom(self, dims, correction))


def degrees_of_freedom(self: Ref, dims: Sequence[int], correction: Value | None) -> Any:
    """max(0, count - correction) for the elements of `dims`; the correction is a launch-time number, 1 by default."""
    count = prod(self.shape[d] for d in dims)

    def divisor(c: float) -> float:
        return max(0.0, count - float(c))

    return correction.map(divisor, float) if isinstance(correction, Value) else divisor(1)


@kernel("aten::var.correction")
def var(b: Builder, self: Ref, dim: Any, correction: Any) -> None:
    """Variance over dimensions, with `count - correction` degrees of freedom (correction: default 1)."""
    _moments(b, self, dim, correction, "a / e", b.out())


@kernel("aten::std.correction")
def std(b: Builder, self: Ref, dim: Any, correction: Any) -> None:
    """Standard deviation over dimensions."""
    _moments(b, self, dim, correction, "sqrt(a / e)", b.out())


@kernel("aten::var_mean.correction")
def var_mean(b: Builder, self: Ref, dim: Any, correction: Any) -> None:
    """Variance and mean over dimensions."""
    _moments(b, self, dim, correction, "a / e", b.out(0), b.out(1))


@kernel("aten::std_mean.correction")
def std_mean(b: Builder, self: Ref, dim: Any, correction: Any) -> None:
    """Standard deviation and mean over dimensions."""
    _moments(b, self, dim, correction, "sqrt(a / e)", b.out(0), b.out(1))


_SIZE = "fabs((ACC)v)"
_NORMS = {
    0.0: COUNT,
    1.0: Reduction(map=_SIZE),
    2.0: Reduction(map="(ACC)v * (ACC)v", end="sqrt(a)"),
    float("inf"): Reduction(map=_SIZE, join=MAX.join),
    float("-inf"): Reduction(map=_SIZE, join=MIN.join, init=MIN.init),
}
_POWER = Reduction(map=f"pow({_SIZE}, (ACC)e)", end="pow(a, 1 / (ACC)e)")


@kernel("aten::linalg_vector_norm", static=("ord",))
def linalg_vector_norm(b: Builder, self: Ref, ord: float, dim: Any) -> None:
    """(sum |x|^ord)^(1/ord) over dimensions; the count of nonzeros for 0, the extremes of |x| for +-inf."""
    how = _NORMS.get(float(ord), _POWER)
    emit_reduce(b, b.out(), self, reduced_dims(self.ndim, dim), how, accumulator(b.out().dtype), None, float(ord))


_FINITE = "(s == INFINITY || s == -INFINITY ? (SVAL)0 : s)"
_LOGSUMEXP = Reduction(map=f"EXP((ACC)v - {_FINITE})", end=f"log(a) + {_FINITE}")


@kernel("aten::logsumexp")
def logsumexp(b: Builder, self: Ref, dim: Any) -> None:
    """log(sum(exp(x))) over dimensions, with the largest element taken out first."""
    acc = accumulator(b.out().dtype)
    dims = reduced_dims(self.ndim, dim)
    top = b.temp([n for d, n in enumerate(self.shape) if d not in dims], acc)
    emit_reduce(b, top, self, dims, MAX, acc)
    emit_reduce(b, b.out(), self, dims, _LOGSUMEXP, acc, top)
