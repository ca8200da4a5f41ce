"""Least squares: by QR for the driver "gels", else by singular values, with which LAPACK's other drivers agree."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from ..errors import Unsupported
from ..registry import handler
from ..spec import spec_of
from ..tensor import Tensor, empty_spec
from .linalg import column_strides

_ATEN = torch.ops.aten
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@handler("aten::linalg_lstsq")
def linalg_lstsq(
    self: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Any, Any, Any, Any]:
    """(X with the least |self @ X - B|, squared residuals, rank, singular values); what a driver lacks is empty."""
    driver = driver or "gelsy"
    right = _checked(self, B, driver)
    m, n = self.shape[-2:]
    nothing = _ATEN.new_empty.default(self, [0])
    rank, values = _ATEN.new_empty.default(self, [0], dtype=torch.int64), nothing
    if driver == "gels":
        solution = _by_qr(self, right)
    else:
        cutoff = torch.finfo(self.dtype).eps * max(m, n) if rcond is None else rcond
        solution, rank, values = _by_singular_values(self, right, cutoff)
    residuals = nothing
    if m > n and (driver == "gels" or (driver != "gelsy" and bool((rank == n).all()))):
        residuals = _ATEN.sum.dim_IntList(_ATEN.square.default(_ATEN.matmul.default(self, solution) - right), [-2])
    solution = _placed(solution, max(m, n))
    if right is not B:
        solution = _ATEN.squeeze.dim(solution, -1)
    return solution, residuals, rank, values if driver in ("gelsd", "gelss") else nothing


def _checked(a: Tensor, right: Tensor, driver: str) -> Any:
    """The right side as matrices. What is not served, or wrong, goes to the CPU, which says so in torch's words."""
    if a.dtype not in (torch.float32, torch.float64) or right.dtype != a.dtype or driver not in _DRIVERS:
        raise Unsupported("lstsq of these arguments")
    vectors = right.dim() == 1 or (right.dim() == a.dim() - 1 and right.shape == a.shape[:-1])
    found: Any = _ATEN.unsqueeze.default(right, -1) if vectors else right
    if a.dim() < 2 or found.shape[:-1] != a.shape[:-1] or prod(a.shape) == 0 or prod(found.shape) == 0:
        raise Unsupported("lstsq of empty, broadcast or unfit shapes")
    return found


def _by_qr(a: Any, right: Any) -> Any:
    """For matrices of full rank."""
    if a.shape[-2] >= a.shape[-1]:
        q, r = _ATEN.linalg_qr.default(a)
        return _ATEN.linalg_solve_triangular.default(r, _ATEN.matmul.default(q.mT, right), upper=True)
    q, r = _ATEN.linalg_qr.default(a.mT)
    return _ATEN.matmul.default(q, _ATEN.linalg_solve_triangular.default(r.mT, right, upper=False))


def _by_singular_values(a: Any, right: Any, cutoff: float) -> tuple[Any, Any, Any]:
    """The shortest solution, the rank, and the singular values; those up to cutoff times the largest count as 0."""
    u, s, vh = _ATEN._linalg_svd.default(a)
    kept = s > s[..., :1] * cutoff
    inverse = _ATEN.where.ScalarOther(kept, _ATEN.reciprocal.default(s), 0.0)
    found = _ATEN.matmul.default(vh.mT, _ATEN.matmul.default(u.mT, right) * _ATEN.unsqueeze.default(inverse, -1))
    return found, _ATEN.sum.dim_IntList(kept, [-1]), s


def _placed(solution: Any, rows: int) -> Any:
    """Column-major in columns of `rows` numbers, as LAPACK leaves it."""
    *batch, n, cols = solution.shape
    shape = (*batch, rows, cols)
    room: Any = empty_spec(spec_of(shape, column_strides(shape), solution.dtype, solution._spec.device))
    found = _ATEN.slice.Tensor(room, -2, 0, n)
    found.copy_(solution)
    return found
