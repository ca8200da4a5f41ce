"""Fused attention for CPU-type devices: which kernel of native/attention.c runs, and with what.

Refs are q [b, h, lq, e], k [b, hk, lk, e], v [b, hk, lk, ev] of any strides; h is a multiple of hk. mask broadcasts to
[b, h, lq, lk]: bool (False is masked out) or a number that is added to the score. lse is [b, h, lq], row-major.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..refs import Layout, Ref, Value
from .types import ctype
from .vectors import registers, vector_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..builder import Builder

MAX_DIM = 256
"""Head dimensions above this do not fit the private panels."""

FEW = 4
"""Up to so many queries (decoding), vectors run over the head's dimensions instead of over queries."""


def emit_forward(
    b: Builder, q: Ref, k: Ref, v: Ref, mask: Ref | None, scale: Value, causal: bool, out: Ref, lse: Ref
) -> None:
    """out = softmax(scale * q k^T + mask) v [b, h, lq, ev]; 0 where a query sees no key, where lse is +inf."""
    call = _Call(b, q, k, v, mask, scale, causal)
    layout = _layout(q, k, v, out, call.mask)
    if q.shape[2] <= FEW and all(r.strides[3] == 1 for r in (q, k, v, out)):
        call.launch("attention_row", q, [out, lse], layout, lanes=1)
    else:
        call.launch("attention_forward", q, [out, lse], layout)


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
    """Gradients of q, k and v, from that of out; the scores are computed again from lse."""
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
        if not b.is_cpu or not q.dtype.is_floating_point or max(e, ev) > MAX_DIM:
            raise Unsupported("fused attention: only on CPU-type devices, for floats and small heads")
        self.b = b
        self.mask = (q if mask is None else mask).expand((batch, heads, lq, lk)) if mask is not None else q
        self.tensors = [q, k, v, self.mask]
        self.numbers: list[Any] = [scale, int(causal), lq, lk, e, ev, heads // k.shape[1]]
        acc = torch.float64 if q.dtype == torch.float64 else torch.float32
        self.lanes = 2 * registers(acc)["VL"]
        self.defines = b.types(T=q.dtype, T_m=self.mask.dtype) | registers(acc)
        self.defines |= {
            "ACC": ctype(acc).compute,
            "HALF": {acc: 0, torch.bfloat16: 1, torch.float16: 2}[q.dtype],
            "VEXP": int(acc == torch.float32),
            "DIM": 128 if max(e, ev) <= 128 else MAX_DIM,
            "MASK": 0 if mask is None else 1 if mask.dtype == torch.bool else 2,
        }

    def launch(self, name: str, rows: Ref, others: Sequence[Ref], layout: Layout, lanes: int = 0) -> None:
        """One work-item per block of lanes of `rows` [b, h, l, ...] and head."""
        grid = (-(-rows.shape[2] // (lanes or self.lanes)), rows.shape[1], rows.shape[0])
        args = [*self.tensors, *others, *self.numbers, layout]
        self.b.launch(vector_source("attention.c"), name, grid, args, self.defines)


def _layout(first: Ref, *others: Ref) -> Layout:
    """Sizes of `first` and strides of all, (dim, length, head, batch)."""
    return Layout(first.shape[::-1], tuple(r.strides[::-1] for r in (first, *others)))
