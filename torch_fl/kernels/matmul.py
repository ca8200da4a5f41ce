"""matmul of any ranks as few matrix products: batch dimensions become rows or depth, or are merged; views, no copies.

A batch that only one operand has becomes rows of one large product; a batch that the result does not have becomes
depth. What strides do not allow to fold is copied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..refs import Ref
from ..spec import Ints
from .gemm import emit_gemm
from .pointwise import merge
from .reduce import SUM, emit_reduce

if TYPE_CHECKING:
    from ..builder import Builder


def as_matrices(out: Ref, a: Ref, x: Ref) -> tuple[Ref, Ref, Ref]:
    """The operands of matmul as [..., m, n], [..., m, k] and [..., k, n]: vectors become a row and a column."""
    if x.ndim == 1:
        out, x = out.unsqueeze(-1), x.unsqueeze(1)
    if a.ndim == 1:
        out, a = out.unsqueeze(-2), a.unsqueeze(0)
    return out, a, x


def emit_matmul(b: Builder, out: Ref, a: Ref, x: Ref, bias: Ref | None = None) -> None:
    """out [..., m, n] = a [..., m, k] @ x [..., k, n]; batches broadcast to that of out. `bias` [n] is added.

    out must share no memory with a and x. Raises Unsupported for bool and complex.
    """
    if out.strides[-2] == 1 != out.strides[-1] and bias is None:
        out, a, x = out.transpose(-1, -2), x.transpose(-1, -2), a.transpose(-1, -2)
    if prod(x.shape[:-2]) == 1 and _fold_rows(b, out, a, x, bias):
        return
    swapped = out.transpose(-1, -2), x.transpose(-1, -2), a.transpose(-1, -2)
    if prod(a.shape[:-2]) == 1 and bias is None and _fold_rows(b, *swapped, None):
        return
    batch = out.shape[:-2]
    a, x = (r.expand((*batch, *r.shape[-2:])) for r in (a, x))
    _emit_batched(b, out, a, x, bias)


def _fold_rows(b: Builder, out: Ref, a: Ref, x: Ref, bias: Ref | None) -> bool:
    """The batch of `a` as more rows, where the result can be written so."""
    n, k = out.shape[-1], a.shape[-1]
    rows = prod(out.shape[:-1])
    try:
        flat = out.view(rows, n)
    except Unsupported:
        return False
    a = a.expand((*out.shape[:-1], k))
    emit_gemm(b, flat, b.reshape(a, rows, k), x.as_strided(x.shape[-2:], x.strides[-2:]), bias=bias)
    return True


def _emit_batched(b: Builder, out: Ref, a: Ref, x: Ref, bias: Ref | None) -> None:
    """One product for every batch, with at most the two batch dimensions that a kernel walks."""
    sizes, strides = merge(out.shape[:-2], [r.strides[:-2] for r in (out, a, x)])
    if len(sizes) > 2:
        made = b.row_major(out)
        o, a, x = (r.view(-1, *r.shape[-2:]) for r in map(b.contiguous, (made, a, x)))
        _emit_batched(b, o, a, x, bias)
        b.deliver(out, made)
        return
    out, a, x = (
        r.as_strided((*reversed(sizes), *r.shape[-2:]), (*reversed(s), *r.strides[-2:]))
        for r, s in zip((out, a, x), strides)
    )
    emit_gemm(b, out, a, x, bias=bias)


def emit_gradient(b: Builder, out: Ref, left: Ref, right: Ref) -> None:
    """out [..., p, r] = left [..., p, q] @ right [..., q, r], summed over the batches that out does not have."""
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    own = out.shape[:-2]
    left, right = (r.expand((*batch, *r.shape[-2:])) for r in (left, right))
    if prod(own) == 1:
        _fold_depth(b, out, left, right)
    elif own == batch:
        emit_matmul(b, out, left, right)
    else:
        _summed(b, out, left, right, batch)


def _fold_depth(b: Builder, out: Ref, left: Ref, right: Ref) -> None:
    """The batch as more depth: the sum over it is the product's own."""
    p, r = out.shape[-2:]
    depth = prod(right.shape[:-1])
    n = left.ndim
    left = b.reshape(left.permute(n - 2, *range(n - 2), n - 1), p, depth)
    emit_matmul(b, out.as_strided((p, r), out.strides[-2:]), left, b.reshape(right, depth, r))


def _summed(b: Builder, out: Ref, left: Ref, right: Ref, batch: Sequence[int]) -> None:
    """All products, and their sum over the dimensions that broadcasting added or stretched."""
    acc = torch.float64 if out.dtype == torch.float64 else torch.float32
    made = b.temp((*batch, *out.shape[-2:]), acc)
    emit_matmul(b, made, left, right)
    lead = made.ndim - out.ndim
    padded = out.as_strided((*(1,) * lead, *out.shape), (*(0,) * lead, *out.strides))
    dims = [d for d in range(made.ndim) if padded.shape[d] != made.shape[d]]
    emit_reduce(b, padded, made, dims, SUM, acc)


def like(ref: Ref) -> Ints | None:
    """Strides of a gradient of `ref`: its own where they leave no gaps, so that views of it stay views; else None."""
    steps = sorted((s, n) for n, s in zip(ref.shape, ref.strides) if n > 1)
    dense = all(s == prod(n for _, n in steps[:i]) for i, (s, _) in enumerate(steps))
    return ref.strides if dense and 0 not in ref.shape else None


def new_gradients(b: Builder, operands: Sequence[Ref], mask: Sequence[bool]) -> list[Ref | None]:
    """A new result for each operand whose gradient is wanted, laid out as the operand; the others are None."""
    found: list[Ref | None] = []
    for ref, wanted in zip(operands, mask):
        index = sum(f is not None for f in found)
        found.append(b.new_out(index, ref.shape, ref.dtype, like(ref)) if wanted else None)
    wants = tuple(bool(w) for w in mask)
    b.pack = lambda flat: _spread(flat, wants)
    return found


def _spread(flat: Sequence[Any], wants: Sequence[bool]) -> tuple[Any, ...]:
    made = iter(flat)
    return tuple(next(made) if w else None for w in wants)
