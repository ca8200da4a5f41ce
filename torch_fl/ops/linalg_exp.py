"""The exponential of matrices: scaling, a Taylor polynomial, squaring. All by matrix products; waits for the device.

Source of the method: Higham, Functions of Matrices; the polynomial is evaluated as Paterson and Stockmeyer 1973 do.
"""

from __future__ import annotations

from math import factorial, isfinite
from typing import Any

import torch

from ..errors import Unsupported, dtype_name
from ..fallback import download
from ..registry import handler
from ..tensor import Tensor

_ATEN = torch.ops.aten
_POWERS = {torch.float32: 4, torch.float64: 5}
"""How many powers are made: the polynomial has the square of that as its degree."""
LARGEST_NORM = 2.0
"""The remainder is then below a rounding: 2**17 / 17! in float32, 2**26 / 26! in float64."""


@handler("aten::linalg_matrix_exp")
def linalg_matrix_exp(self: Tensor) -> Any:
    """exp of every matrix of [..., n, n]; row-major."""
    if self.dtype not in _POWERS:
        raise Unsupported(f"matrix_exp in {dtype_name(self.dtype)}")
    n = self.shape[-1]
    if self.numel() == 0:
        return _ATEN.empty_like.default(self, memory_format=torch.contiguous_format)
    a = _ATEN.reshape.default(self, (-1, n, n))
    halvings, most = _halvings(a)
    result = _polynomial(a * _ATEN.exp2.default(-halvings), _POWERS[self.dtype])
    for i in range(most):
        squared = _ATEN.bmm.default(result, result)
        result = _ATEN.where.self(halvings > i, squared, result)
    return _ATEN.reshape.default(result, self.shape)


def _halvings(a: Any) -> tuple[Any, int]:
    """How often each matrix is halved: [batch, 1, 1], and the largest number."""
    norms = _ATEN.amax.default(_ATEN.sum.dim_IntList(_ATEN.abs.default(a), [-2], True), [-1], True)
    count = _ATEN.clamp.default(_ATEN.ceil.default(_ATEN.log2.default(norms / LARGEST_NORM)), 0)
    most = float(download(_ATEN.amax.default(count)))
    return count, int(most) if isfinite(most) else 0


def _polynomial(a: Any, q: int) -> Any:
    """The Taylor polynomial of degree q * q: q sums over powers below q, combined by Horner in a**q."""
    powers = [_eye_like(a), a]
    while len(powers) <= q:
        powers.append(_ATEN.bmm.default(powers[-1], a))
    sums = [_terms(powers[:q], q * k) for k in range(q)]
    result = powers[q] * (1 / factorial(q * q))
    result = result + sums[-1]
    for lower in reversed(sums[:-1]):
        result = _ATEN.baddbmm.default(lower, powers[q], result)
    return result


def _terms(powers: list[Any], first: int) -> Any:
    found = powers[0] * (1 / factorial(first))
    for i, power in enumerate(powers[1:], 1):
        found = _ATEN.add.Tensor(found, power, alpha=1 / factorial(first + i))
    return found


def _eye_like(a: Any) -> Any:
    batch, n, _ = a.shape
    eye = _ATEN.eye.default(n, dtype=a.dtype, device=a.device)
    return _ATEN.expand.default(eye, (batch, n, n))
