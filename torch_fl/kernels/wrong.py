"""Values that an op may not take, looked for on the device (native/wrong.c) and raised at the next read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..refs import Layout, Ref, Value
from ..runtime.guard import code_of
from .pointwise import merge

if TYPE_CHECKING:
    from ..builder import Builder


def note_wrong(b: Builder, ref: Ref, wrong: str, op: str, limit: int | Value = 0) -> None:
    """Let integers `v` of `ref` for which the C expression `wrong` holds be the error of `op` in `guard.TEXTS`.

    The expression may use `limit`, a number of the call.
    """
    if not ref.numel:
        return
    sizes, strides = merge(ref.shape, [ref.strides])
    items, chunk = b.split(ref.numel)
    layout = Layout.of(sizes, strides[:1])
    defines = {**b.types(T=ref.dtype), "WRONG(v, limit)": f"({wrong})"}
    b.launch("wrong.c", "wrong", items, [ref, b.guard(), ref.numel, chunk, limit, code_of(op), layout], defines)
