"""Fused attention on chips with local memory (native/attention_tiles.c). Refs are as in kernels/attention.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..refs import Layout, Ref, Value
from .row_groups import GROUP
from .source import read_native
from .tiles import tile_source, wide
from .types import ctype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..builder import Builder

BLOCK = 64
"""Queries, or keys for their gradients, of a group."""
MAX_DIM = 128
"""Larger heads do not fit registers and 32 KiB of local memory; nor do doubles."""


def fits(dtype: torch.dtype, dims: int) -> bool:
    """Whether the kernels take heads of so many dimensions."""
    return dtype in (torch.float32, torch.float16, torch.bfloat16) and dims <= MAX_DIM


def emit_forward(
    b: Builder, q: Ref, k: Ref, v: Ref, mask: Ref | None, scale: Value, causal: bool, out: Ref, lse: Ref
) -> None:
    """out = softmax(scale * q k^T + mask) v; 0 where a query sees no key, where lse is +inf."""
    call = _Call(b, q, k, v, mask, scale, causal)
    call.launch("attention_forward", q, [out, lse], _layout(q, k, v, out, call.mask))


def emit_backward(
    b: Builder,
    q: Ref,
    k: Ref,
    v: Ref,
    mask: Ref | None,
    scale: Value,
    causal: bool,
    grad: Ref,
    out: Ref,
    lse: Ref,
    grads: tuple[Ref, Ref, Ref],
) -> None:
    """Gradients of q, k and v, from that of out; the scores are computed again from lse, once for each side."""
    call = _Call(b, q, k, v, mask, scale, causal)
    delta = b.temp(lse.shape, lse.dtype)
    gq, gk, gv = grads
    layout = _layout(q, k, v, call.mask, out, grad, gq)
    call.launch("attention_grad_q", q, [out, grad, lse, gq, delta], layout)
    layout = _layout(q, k, v, call.mask, grad, gk, gv)
    call.launch("attention_grad_kv", k, [grad, lse, delta, gk, gv], layout)


class _Call:
    """What the three kernels have in common: operands, numbers and defines."""

    def __init__(self, b: Builder, q: Ref, k: Ref, v: Ref, mask: Ref | None, scale: Value, causal: bool) -> None:
        batch, heads, lq, e = q.shape
        lk, ev = v.shape[2:]
        if not fits(q.dtype, max(e, ev)):
            raise Unsupported("fused attention of doubles or of large heads")
        self.b = b
        self.mask = q if mask is None else mask.expand((batch, heads, lq, lk))
        self.tensors = [q, k, v, self.mask]
        self.numbers: list[Any] = [scale, int(causal), lq, lk, e, ev, heads // k.shape[1]]
        self.defines = b.types(T=q.dtype, T_m=self.mask.dtype) | {
            "ACC": ctype(torch.float32).compute, "EXP": "fast_exp", "GROUP": GROUP,
            "DIM": 64 if max(e, ev) <= 64 else MAX_DIM,
            "MASK": 0 if mask is None else 1 if mask.dtype == torch.bool else 2,
        }  # fmt: skip

    def launch(self, name: str, rows: Ref, others: Sequence[Ref], layout: Layout) -> None:
        """One group per block of `rows` [b, h, l, ...] and head."""
        grid = (-(-rows.shape[2] // BLOCK), rows.shape[1], rows.shape[0])
        read = [*self.tensors[:3], *(r for r in others if r.ndim == 4)]
        aligned = {"WIDE_IN": int(all(wide(r, 3) for r in read))}
        text = read_native("fastmath.h") + tile_source("attention_tiles.c")
        self.b.launch(text, name, grid, [*self.tensors, *others, *self.numbers, layout], self.defines | aligned)


def _layout(first: Ref, *others: Ref) -> Layout:
    """Sizes of `first` and strides of all, (dim, length, head, batch)."""
    return Layout(first.shape[::-1], tuple(r.strides[::-1] for r in (first, *others)))
