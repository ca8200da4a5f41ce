"""Attention and its gradients as cuDNN takes them: heads in one piece, and any mask as numbers to add.

Arguments are those of torch_fl/kernels/attention.py's functions, with the factor of the score as a number. What cuDNN
gives for a query that sees no key is not known: there the results are put right afterwards.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from torch_fl.builder import Builder
from torch_fl.errors import Unsupported
from torch_fl.kernels.pointwise import emit
from torch_fl.kernels.reduce import MAX, emit_reduce
from torch_fl.refs import Ref

from ._cudnn_call import call
from ._cudnn_graphs import attention, attention_gradients

if TYPE_CHECKING:
    from ._cudnn_plans import CuDNN, Switches

EIGHT = 8
"""Dimensions of a head, and steps between rows, are multiples of 16 bytes."""


def queries(name: str, q: Ref, *rest: Any) -> int:
    """Of one head."""
    return q.shape[2]


def usual_scale(q: Ref) -> float:
    """The factor of the score that torch takes where none is given."""
    return 1 / math.sqrt(q.shape[3])


def emit_forward(
    b: Builder, library: CuDNN, now: Switches,
    q: Ref, k: Ref, v: Ref, mask: Ref | None, scale: float, causal: bool, out: Ref, lse: Ref,
) -> None:  # fmt: skip
    """out = softmax(scale * q k^T + mask) v; 0 where a query sees no key, where lse is +inf."""
    _check(q, k, v)
    q, k, v = (_taken(b, r) for r in (q, k, v))
    bias = None if mask is None else _bias(b, mask, (*q.shape[:3], k.shape[2]), q.dtype)
    made = _target(b, out)
    plan = library.plan(attention(q, k, v, bias, scale, causal, made, lse), now)
    call(b, library, plan, [q, k, v, *_given(bias), made, lse])
    if bias is not None:
        _put_right(b, bias, made, lse)
    b.deliver(out, made)


def emit_backward(
    b: Builder, library: CuDNN, now: Switches,
    q: Ref, k: Ref, v: Ref, mask: Ref | None, scale: float, causal: bool, grad: Ref, out: Ref, lse: Ref,
    grads: tuple[Ref, Ref, Ref],
) -> None:  # fmt: skip
    """Gradients of q, k and v, from that of out; the scores are computed again from lse."""
    _check(q, k, v)
    q, k, v, grad, out = (_taken(b, r) for r in (q, k, v, grad, out))
    bias = None if mask is None else _bias(b, mask, (*q.shape[:3], k.shape[2]), q.dtype)
    gq, gk, gv = (_target(b, r) for r in grads)
    node = attention_gradients(q, k, v, bias, scale, causal, grad, out, lse, (gq, gk, gv), now.deterministic)
    call(b, library, library.plan(node, now), [q, k, v, out, grad, lse, *_given(bias), gq, gk, gv])
    for target, made in zip(grads, (gq, gk, gv)):
        b.deliver(target, made)


def _check(*refs: Ref) -> None:
    if any(r.shape[3] % EIGHT for r in refs):
        raise Unsupported(f"heads of other than multiples of {EIGHT} dimensions")


def _given(ref: Ref | None) -> list[Ref]:
    return [] if ref is None else [ref]


def _fits(ref: Ref) -> bool:
    """Whether its rows are in one piece and start at multiples of 16 bytes."""
    steps = [s for n, s in zip(ref.shape[:3], ref.strides[:3]) if n > 1]
    return (ref.strides[3] == 1 or ref.shape[3] == 1) and all(s > 0 and s % EIGHT == 0 for s in steps)


def _taken(b: Builder, ref: Ref) -> Ref:
    """An operand as the library takes it, itself or a copy."""
    if _fits(ref):
        return ref
    copy = b.temp(ref.shape, ref.dtype)
    b.copy(copy, ref)
    return copy


def _target(b: Builder, ref: Ref) -> Ref:
    """Where the library writes a result: there, or a temporary."""
    return ref if _fits(ref) else b.temp(ref.shape, ref.dtype)


def _bias(b: Builder, mask: Ref, shape: tuple[int, ...], dtype: torch.dtype) -> Ref:
    """The mask as numbers to add, [batch or 1, heads or 1, lq, lk], with rows that start at multiples of 16 bytes."""
    for _ in range(4 - mask.ndim):
        mask = mask.unsqueeze(0)
    mask = mask.expand((*mask.shape[:2], *shape[2:]))
    if mask.dtype == dtype and _fits(mask):
        return mask
    rows = b.temp((*mask.shape[:3], -(-mask.shape[3] // EIGHT) * EIGHT), dtype).narrow(3, 0, mask.shape[3])
    if mask.dtype == torch.bool:
        emit(b, {"o": (rows, "m != 0 ? (ACC)0 : -(ACC)INFINITY")}, {"m": mask}, {}, dtype)
    else:
        b.copy(rows, mask)
    return rows


def _put_right(b: Builder, bias: Ref, out: Ref, lse: Ref) -> None:
    """Where a query sees no key: 0, and +inf as its log-sum-exp, with which its gradients are 0 as well."""
    top = b.temp(bias.shape[:3], torch.float32)
    emit_reduce(b, top, bias, (3,), MAX, torch.float32)
    unseen = "top == -(ACC)INFINITY"
    emit(b, {"o": (out, f"{unseen} ? (ACC)0 : o")}, {"o": out, "top": top.unsqueeze(3)}, {}, out.dtype)
    emit(b, {"l": (lse, f"{unseen} ? (ACC)INFINITY : l")}, {"l": lse, "top": top}, {}, lse.dtype)
