"""Orthogonal polynomials of torch.special: Chebyshev, Hermite, Laguerre, Legendre (native/polynomials.h).

Degrees are tensors or numbers, and broadcast; as torch, a degree that is no whole number is cut to one.
"""

from __future__ import annotations

from ..kernels.source import read_native
from .rows import pointwise

_HELPERS = read_native("polynomials.h")

# Names of x and of the degree are the schema's. Chebyshev: the degree from which on torch computes with angles.
_POLYNOMIALS = {
    "chebyshev_polynomial_t": "poly_chebyshev_t(x, n, 7)",
    "chebyshev_polynomial_u": "poly_chebyshev_u(x, n, 9)",
    "chebyshev_polynomial_v": "poly_chebyshev_v(x, n, 9)",
    "chebyshev_polynomial_w": "poly_chebyshev_w(x, n, 9)",
    "shifted_chebyshev_polynomial_t": "poly_chebyshev_t(2 * x - 1, n, 7)",
    "shifted_chebyshev_polynomial_u": "poly_chebyshev_u(2 * x - 1, n, 7)",
    "shifted_chebyshev_polynomial_v": "poly_chebyshev_v(2 * x - 1, n, 7)",
    "shifted_chebyshev_polynomial_w": "poly_chebyshev_w(2 * x - 1, n, 5)",
    "hermite_polynomial_h": "poly_hermite(x, n, 2)",
    "hermite_polynomial_he": "poly_hermite(x, n, 1)",
    "laguerre_polynomial_l": "poly_laguerre(x, n)",
    "legendre_polynomial_p": "poly_legendre(x, n)",
}

for _name, _expression in _POLYNOMIALS.items():
    _forms = [f"aten::special_{_name}{form}" for form in ("", ".x_scalar", ".n_scalar")]
    pointwise(_forms, {"float": _expression}, "int_to_float", _HELPERS, promote=("x", "n"))
