"""Matrix products on chips with local memory: the size of the tiles, and how many parts the depth is cut into.

Large products are made in tiles of 128 x 128, what leaves groups idle so in tiles of 64 x 64, and where those are still
too few the depth is cut: parts are summed by a reduction. One row is a reduction from the start. Where the chip has
matrix instructions for the operands (`Backend.matrix`), the same kernels make a tile by them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch

from ..refs import Ref, Value
from ..runtime.adapter import Matrix
from .pointwise import emit
from .reduce import SUM, Reduction, emit_reduce
from .row_groups import GROUP
from .source import read_native

if TYPE_CHECKING:
    from ..builder import Builder
    from .gemm import Problem

LARGE, SMALL = 128, 64
FEWEST_STEPS = 4
"""Steps that are worth a part."""
_PRODUCT = Reduction(map="(ACC)v * (ACC)z")
Number = Any
Emit = Callable[["Builder", "Problem", Number, Number], None]


@lru_cache(maxsize=16)
def tile_source(name: str, matrix: Matrix | None = None) -> str:
    """The text of tiles.h and `native/<name>`, behind that of matrix instructions."""
    return (matrix.text if matrix else "") + read_native("tiles.h") + read_native(name)


def matrix_for(b: Builder, a: torch.dtype, x: torch.dtype) -> Matrix | None:
    """The chip's matrix instructions, where they take operands of these dtypes."""
    matrix = b.device.backend.matrix
    return matrix if matrix and a == x and a in matrix.dtypes else None


def matrix_defines(matrix: Matrix | None, dtype: torch.dtype) -> dict[str, int]:
    """What the text of matrix instructions asks for besides the defines of a kernel of tiles."""
    return {"BFLOAT": int(dtype == torch.bfloat16), "TK": matrix.depth} if matrix else {}


def steps_of(depth: int, matrix: Matrix | None) -> int:
    """Steps of a depth: what is in local memory at once, TK in native/tiles.h, is one."""
    return -(-depth // (matrix.depth if matrix else 16))


def tile_ways(b: Builder, p: Problem) -> list[tuple[str, Emit]]:
    """Names and functions of the ways that may be the fastest, the one of the rules first."""
    size = tile_of(b, p.m, p.n, p.batch, p.acc.itemsize)
    cuts = [(size, _parts(b, p, size))]
    for other in (size, SMALL) if p.acc.itemsize > 4 or min(p.m, p.n) <= SMALL else (size, LARGE + SMALL - size):
        parts = _parts(b, p, other)
        cuts += [(other, n) for n in (parts, 1, whole_parts(_steps(b, p), 2 * parts))]
    tiled: list[tuple[str, Emit]] = [
        (f"tiles {size} in {parts}", partial(_emit_tiles, size, parts)) for size, parts in dict.fromkeys(cuts)
    ]
    return [("one row", _one_row), *tiled] if p.m == p.s == 1 else tiled


def _steps(b: Builder, p: Problem) -> int:
    return steps_of(p.k, matrix_for(b, p.a.dtype, p.x.dtype)) * p.s


def _parts(b: Builder, p: Problem, size: int) -> int:
    return parts_of(b, -(-p.m // size) * -(-p.n // size) * p.batch, _steps(b, p))


def _emit_tiles(size: int, parts: int, b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """One product (`Problem` of kernels/gemm.py): out = alpha * a x + beta * c."""
    steps = _steps(b, p)
    if parts == 1:
        _launch(b, p, p.out, alpha, beta, size, steps, 1)
        return
    made = b.temp((parts, *p.out.shape), p.acc)
    _launch(b, p, made.select(0, 0), 1, 0, size, -(-steps // parts), parts)
    product = b.temp(p.out.shape, p.acc)
    emit_reduce(b, product, made, (0,), SUM, p.acc)
    _finish(b, p, product, alpha, beta)


def tile_of(b: Builder, rows: int, cols: int, batch: int, itemsize: int) -> int:
    """Rows and columns of a tile."""
    groups = -(-rows // LARGE) * -(-cols // LARGE) * batch
    return LARGE if itemsize == 4 and min(rows, cols) > SMALL and groups >= b.device.properties.compute_units else SMALL


def parts_of(b: Builder, groups: int, steps: int) -> int:
    """Parts that `steps` are cut into, so that there is a group for each unit of the chip and one more."""
    wanted = -(-2 * b.device.properties.compute_units // max(1, groups))
    return whole_parts(steps, wanted)


def whole_parts(steps: int, wanted: int) -> int:
    """About `wanted` parts, none of them empty or too small."""
    parts = max(1, min(wanted, steps // FEWEST_STEPS))
    return -(-steps // -(-steps // parts)) if steps else 1


def _launch(b: Builder, p: Problem, out: Ref, alpha: Number, beta: Number, size: int, part: int, parts: int) -> None:
    a, x = p.a.strides, p.x.strides
    made, matrix = _elsewhere(p, out), matrix_for(b, p.a.dtype, p.x.dtype)
    defines = made.defines(b) | matrix_defines(matrix, p.a.dtype) | {
        "GROUP": GROUP, "TM": size, "TN": size, "A_ALONG_K": int(a[4] == 1), "X_ALONG_K": int(x[3] == 1),
        "WIDE_A": wide(p.a, 4 if a[4] == 1 else 3), "WIDE_X": wide(p.x, 3 if x[3] == 1 else 4), "WIDE_O": wide(out, 4),
    }  # fmt: skip
    grid = (-(-p.n // size) * -(-p.m // size), parts, p.batch)
    stride = out.numel if parts > 1 else 0
    args = [out, p.a, p.x, p.c, alpha, beta, part, stride, made.layout]
    b.launch(tile_source("gemm_tiles.c", matrix), "gemm_tiles", grid, args, defines)


def wide(ref: Ref, dense: int) -> int:
    """Whether four elements along dimension `dense` are aligned wherever the first one is and the buffer starts so."""
    others = [s for d, (n, s) in enumerate(zip(ref.shape, ref.strides)) if d != dense and n > 1]
    return int(ref.strides[dense] == 1 and all(s % 4 == 0 for s in others))


def _elsewhere(p: Problem, out: Ref) -> Problem:
    """The same product, made somewhere else."""
    if out is p.out:
        return p
    other = copy(p)
    other.out = out
    return other


def _one_row(b: Builder, p: Problem, alpha: Number, beta: Number) -> None:
    """One row: for every column the sum over k of a number of a by one of x."""
    x = p.x.select(2, 0)
    a = p.a.select(2, 0).transpose(2, 3).expand(x.shape)
    plain = _is(alpha, 1) and _is(beta, 0)
    product = p.out.select(2, 0).select(2, 0) if plain else b.temp((*p.out.shape[:2], p.n), p.acc)
    emit_reduce(b, product, x, (2,), _PRODUCT, p.acc, other=a)
    if not plain:
        _finish(b, p, product.view(*p.out.shape), alpha, beta)


def _is(number: Number, value: int) -> bool:
    return not isinstance(number, Value) and number == value


def _finish(b: Builder, p: Problem, product: Ref, alpha: Number, beta: Number) -> None:
    numbers = {"alpha": alpha, "beta": beta}
    tensors = {"product": product} if _is(beta, 0) else {"product": product, "c": p.c}
    text = "alpha * product" if _is(beta, 0) else "alpha * product + (beta == 0 ? 0 : beta * c)"
    emit(b, {"o": (p.out, text)}, tensors, numbers if not _is(beta, 0) else {"alpha": alpha}, p.acc)
