"""Random complex numbers: real and imaginary parts are drawn one after the other, as torch's CPU kernels do."""

from __future__ import annotations

from math import sqrt
from typing import Any

from ..builder import Builder
from ..errors import unsupported_dtype
from ..kernels.pointwise import complex_parts
from ..refs import Ref, Value
from ..registry import COMPLEX, kernel
from .random import checked_std, draw_normal, draw_uniform, number


def _parts(out: Ref) -> Ref:
    if not out.dtype.is_complex:
        raise unsupported_dtype(out.dtype)
    return complex_parts(out)


@kernel("aten::uniform_", backend=COMPLEX)
def uniform_(b: Builder, self: Ref, from_: Value, to: Value, generator: Any) -> None:
    """Both parts uniform in [from, to)."""
    draw_uniform(b, _parts(b.out()), from_, to, generator)


@kernel("aten::normal_", backend=COMPLEX)
def normal_(b: Builder, self: Ref, mean: Value, std: Value, generator: Any) -> None:
    """Normal numbers of variance std^2, of which each part has half."""
    part = checked_std("normal", std).map(lambda value: value / sqrt(2))
    draw_normal(b, _parts(b.out()), number(mean), part, generator)
