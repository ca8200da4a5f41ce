"""L D L^T factors of symmetric matrices that need not be positive, and solving with them."""

from __future__ import annotations

from math import prod

from ..builder import Builder
from ..refs import Ref
from ..registry import kernel
from .linalg import columns, flat, in_columns, launch, raise_errors, triangle


@kernel("aten::linalg_ldl_factor_ex")
def linalg_ldl_factor_ex(b: Builder, self: Ref, check_errors: bool) -> None:
    """(L and D in one lower triangle, pivots, info) of the matrices whose lower triangles are in `self`."""
    outs = [b.out(i) for i in range(3)]
    a, pivots, info = columns(b, outs[0]), b.row_major(outs[1]), b.row_major(outs[2])
    triangle(b, a, self, lower=True)
    launch(b, "linalg_ldl.c", "ldl", prod(self.shape[:-2]), [flat(a), pivots, info, self.shape[-1]], self.dtype)
    for out, found in zip(outs, (a, pivots, info)):
        b.deliver(out, found)
    if check_errors:
        raise_errors(b, info, "torch.linalg.ldl_factor_ex")


@kernel("aten::linalg_ldl_solve")
def linalg_ldl_solve(b: Builder, LD: Ref, pivots: Ref, B: Ref) -> None:
    """The solution of (L D L^T) @ out = B; leading dimensions broadcast."""
    out = b.out()
    *batch, n, cols = out.shape
    if out.numel == 0:
        return
    x = columns(b, out)
    b.copy(x, B)
    a = flat(in_columns(b, LD, (*batch, n, n)))
    swaps = b.contiguous(pivots.expand((*batch, n)))
    launch(b, "linalg_ldl.c", "ldl_solve", (cols, prod(batch)), [a, swaps, flat(x), n, cols], out.dtype)
    b.deliver(out, x)
