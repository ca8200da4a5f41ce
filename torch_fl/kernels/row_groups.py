"""Rows on chips with local memory: how many work-items of a group share a row, and how much of it they keep.

The kernels (native/*_groups.c) do what their namesakes for independent work-items do. Rows of up to `LONGEST` elements
are read once and stay in registers; few sizes are compiled in, so that few programs are built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .source import read_native

if TYPE_CHECKING:
    from ..builder import Builder
    from ..refs import Ref

GROUP = 256
"""Work-items of a group, a define of native/row_groups.h."""
LONGEST = 4096
SHORT = 8
"""Rows of up to so many elements are better one to a work-item."""
_SHAPES = ((64, 16, 4), (512, 64, 8), (1024, 256, 4), (LONGEST, 256, 16))
"""(row length up to, work-items of a row, elements each keeps)."""


def shape_of(n: int) -> dict[str, Any]:
    """The defines of row_groups.h for rows of n elements."""
    lanes, keep = next(((lanes, keep) for most, lanes, keep in _SHAPES if n <= most), (GROUP, 0))
    return {"GROUP": GROUP, "LPR": lanes, "KEEP": keep}


def groups_for(rows: int, lanes: int) -> int:
    """Groups that `rows` rows of `lanes` work-items each take."""
    return -(-rows * lanes // GROUP)


def row_source(*names: str) -> str:
    """The text of row_groups.h and of files in native/."""
    return "".join(read_native(name) for name in ("row_groups.h", *names))


def launch_rows(
    b: Builder, file: str, name: str, rows: int, n: int, args: Sequence[Any], defines: dict[str, Any]
) -> None:
    """Launch kernel `name` of `file` on `rows` rows of n elements."""
    shape = shape_of(n)
    text = read_native("fastmath.h") + row_source(file) if "EXP" in defines else row_source(file)
    b.launch(text, name, groups_for(rows, shape["LPR"]), args, defines | shape)


def emit_norm_grads(
    b: Builder,
    g: Ref,
    x: Ref,
    stats: tuple[Ref, Ref],
    weight: Ref | None,
    target: Ref | None,
    parts: Sequence[Ref | None],
    rows: int,
    n: int,
    defines: dict[str, Any],
) -> None:
    """Gradients of a norm over [rows, n]: of x into `target`, of weight and bias into `parts` [parts, n]."""
    if target is not None:
        launch_rows(
            b, "norm_groups.c", "norm_grad_groups", rows, n, [g, x, *stats, weight or x, target, rows, n], defines
        )
    wanted = next((p for p in parts if p is not None), None)
    if wanted is None:
        return
    defines = defines | {"SUM_W": int(parts[0] is not None), "SUM_B": int(parts[1] is not None)}
    dw, db = (p or wanted for p in parts)
    count = wanted.shape[0]
    args: list[Any] = [g, x, *stats, dw, db, rows, -(-rows // count), n]
    b.launch("norm_weights.c", "norm_grad_weights", (n, count), args, defines)


def grad_parts(rows: int, n: int) -> int:
    """Into how many parts the rows are split for the gradient of a weight of n elements."""
    return max(1, min(rows // 16, 65536 // max(n, 1)))


def reduction_parts(b: Builder, outs: int, count: int) -> int:
    """Into how many parts each output's `count` elements are split, so that there are groups for the whole chip."""
    groups = groups_for(outs, shape_of(count)["LPR"])
    wanted = 8 * b.device.properties.compute_units
    return max(1, min(-(-wanted // max(groups, 1)), count // (16 * GROUP)))
