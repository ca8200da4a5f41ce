"""Fused attention for CPU-type devices: which kernel of native/attention*.c runs, and with what.

Refs are q [b, h, lq, e], k [b, hk, lk, e], v [b, hk, lk, ev] of any strides; h is a multiple of hk. mask broadcasts to
[b, h, lq, lk]: bool (False is masked out) or a number that is added to the score. lse is [b, h, lq], row-major.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..refs import Layout, Ref, Value
from . import attention_tiles
from .layer import layer
from .source import read_native
from .types import ctype
from .vectors import registers, vector_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..builder import Builder
    from ..runtime.device import Device

MAX_DIM = 256
"""Head dimensions above this do not fit the private panels."""

FEW = 4
"""Up to so many queries (decoding), vectors run over the head's dimensions instead of over queries."""

ROWS = 8
"""Rows of one work-item there, as in native/attention.c."""

MANY_KEYS = 512
"""From so many keys on, they are split where there are fewer heads than compute units; a part has at least half."""


def fused_on(device: Device, dtype: torch.dtype, dims: int) -> bool:
    """Whether there are kernels for heads of so many dimensions on a chip."""
    return attention_tiles.fits(dtype, dims) if device.groups else device.is_cpu and dims <= MAX_DIM


@layer("attention")
def emit_forward(
    b: Builder, q: Ref, k: Ref, v: Ref, mask: Ref | None, scale: Value, causal: bool, out: Ref, lse: Ref
) -> None:
    """out = softmax(scale * q k^T + mask) v [b, h, lq, ev]; 0 where a query sees no key, where lse is +inf."""
    if b.groups:
        attention_tiles.emit_forward(b, q, k, v, mask, scale, causal, out, lse)
        return
    call = _Call(b, q, k, v, mask, scale, causal)
    layout = _layout(q, k, v, out, call.mask)
    if q.shape[2] <= FEW and all(r.strides[3] == 1 for r in (q, k, v, out)):
        _emit_rows(call, out, lse, layout)
        return
    grid = (-(-q.shape[2] // call.lanes), q.shape[1], q.shape[0])
    call.launch("attention.c", "attention_forward", grid, [*call.tensors, out, lse, *call.numbers, layout])


def _emit_rows(call: _Call, out: Ref, lse: Ref, layout: Layout) -> None:
    """The same for few queries: one launch, or two where the keys are split to occupy the compute units."""
    batch, heads, lq, ev = out.shape
    keys, key_heads = call.k.shape[2], call.k.shape[1]
    blocks = -(-(heads // key_heads) * lq // ROWS)
    items, units = batch * key_heads * blocks, call.b.device.properties.compute_units
    parts = 1 if keys < MANY_KEYS or items >= 2 * units else min(-(-2 * units // items), keys * 2 // MANY_KEYS)
    partial = call.b.temp((parts, batch, heads, lq, ev + 2), lse.dtype) if parts > 1 else lse
    args = [*call.tensors, out, lse, partial, *call.numbers, blocks, layout]
    call.launch("attention.c", "attention_row", (parts, key_heads * blocks, batch), args)
    if parts > 1:
        call.launch(
            "attention.c", "attention_join", (lq, heads, batch), [partial, out, lse, parts, lq, ev, _layout(out)]
        )


@layer("attention gradients")
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
    """Gradients of q, k and v, from that of out; the scores are computed again from lse.

    A work-item has all queries of a key head and sums the gradient of q itself, so that nothing is computed twice; with
    few heads each has a part of the keys, and a second launch adds the parts.
    """
    if b.groups:
        attention_tiles.emit_backward(b, q, k, v, mask, scale, causal, grad, out, lse, grads)
        return
    call = _Call(b, q, k, v, mask, scale, causal)
    (batch, heads, lq, e), (_, key_heads, lk, _), gq = q.shape, k.shape, grads[0]
    items, units = batch * key_heads, b.device.properties.compute_units
    even = items >= 4 * units or (items >= units and items % units == 0)
    parts = 1 if even else min(-(-4 * units // items), -(-lk // call.lanes))
    width = -(-e // (call.lanes // 2)) * (call.lanes // 2)
    delta = b.temp((parts, *lse.shape), lse.dtype)
    sums = b.temp((parts, *lse.shape, width), lse.dtype)
    layouts = _layout(q, k, v, call.mask, out, grad), _layout(*grads)
    args = [*call.tensors, out, grad, lse, delta, sums, *grads, *call.numbers, width, *layouts]
    call.launch("attention_backward.c", "attention_backward", (parts, key_heads, batch), args)
    if parts > 1:
        args = [sums, gq, parts, lq, e, width, _layout(gq)]
        call.launch("attention_backward.c", "attention_join_q", (heads, batch), args)


class _Call:
    """What the kernels have in common: operands, numbers and defines."""

    def __init__(self, b: Builder, q: Ref, k: Ref, v: Ref, mask: Ref | None, scale: Value, causal: bool) -> None:
        batch, heads, lq, e = q.shape
        lk, ev = v.shape[2:]
        if not b.is_cpu or not q.dtype.is_floating_point or max(e, ev) > MAX_DIM:
            raise Unsupported("fused attention: only on CPU-type devices, for floats and small heads")
        self.b = b
        self.k = k
        self.mask = q if mask is None else mask.expand((batch, heads, lq, lk))
        self.tensors = [q, k, v, self.mask]
        self.numbers: list[Any] = [scale, int(causal), lq, lk, e, ev, heads // k.shape[1]]
        acc = torch.float64 if q.dtype == torch.float64 else torch.float32
        self.lanes = 2 * registers(acc)["VL"]
        self.defines = b.types(T=q.dtype, T_m=self.mask.dtype) | registers(acc)
        self.defines |= {
            "ACC": ctype(acc).compute,
            "WORD": "int" if acc == torch.float32 else "long",
            "DIGITS": 23 if acc == torch.float32 else 52,
            "HALF": {acc: 0, torch.bfloat16: 1, torch.float16: 2}[q.dtype],
            "DIM": 128 if max(e, ev) <= 128 else MAX_DIM,
            "MASK": 0 if mask is None else 1 if mask.dtype == torch.bool else 2,
        }

    def launch(self, source: str, name: str, grid: tuple[int, ...], args: Sequence[Any]) -> None:
        self.b.launch(_source(source), name, grid, args, self.defines)


@lru_cache(maxsize=8)
def _source(name: str) -> str:
    return vector_source("attention.h") + read_native(name)


def _layout(first: Ref, *others: Ref) -> Layout:
    """Sizes of `first` and strides of all, (dim, length, head, batch)."""
    return Layout(first.shape[::-1], tuple(r.strides[::-1] for r in (first, *others)))
