"""scaled_dot_product_attention and the inference ops of nn.MultiheadAttention and nn.TransformerEncoderLayer.

The fused kernels serve what they can, through torch's own hook for backends
(`_scaled_dot_product_fused_attention_overrideable`, which has a derivative formula). Everything else (dropout, masks
that need a gradient, other ranks, other chips) runs as torch's composition of matrix products and softmax.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.autograd import forward_ad

from .. import dispatch
from ..builder import Builder
from ..dispatch import boxed, op_of, planned
from ..kernels.attention import emit_backward, emit_forward, fused_on
from ..refs import Ref, Value
from ..registry import handler, kernel
from ..spec import Spec
from ..tensor import Tensor

_ATEN = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
MATH, OVERRIDEABLE = 0, 4
"""Values of torch.nn.attention.SDPBackend."""

_library: Any = torch.library.Library("torch_fl", "FRAGMENT")
_library.define("attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Scalar scale, bool causal) -> (Tensor, Tensor)")
_library.define("attend(Tensor q, Tensor k, Tensor v, Tensor? mask, Scalar scale, bool causal) -> Tensor")
_library.define(
    "attention_backward(Tensor q, Tensor k, Tensor v, Tensor? mask, Scalar scale, bool causal, Tensor grad, "
    "Tensor out, Tensor lse) -> (Tensor, Tensor, Tensor)"
)


def _like(x: torch.Tensor) -> torch.Tensor:
    """empty_like, which on the meta device is Python and costs more than all else here."""
    if not x.is_contiguous():
        return torch.empty_like(x)
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _attention_meta(q: Any, k: Any, v: Any, mask: Any, scale: Any, causal: bool) -> Any:
    shape = q.shape[:3]
    out = _like(q) if v.shape[3] == q.shape[3] else q.new_empty(*shape, v.shape[3])
    return out, q.new_empty(shape, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)


def _attend_meta(*args: Any) -> Any:
    return _attention_meta(*args)[0]


def _backward_meta(q: Any, k: Any, v: Any, *_: Any) -> Any:
    return _like(q), _like(k), _like(v)


_library.impl("attention", _attention_meta, "Meta")
_library.impl("attend", _attend_meta, "Meta")
_library.impl("attention_backward", _backward_meta, "Meta")
_FORWARD, _BACKWARD = torch.ops.torch_fl.attention.default, torch.ops.torch_fl.attention_backward.default
_ALONE = torch.ops.torch_fl.attend.default


@kernel("torch_fl::attention")
def attention(b: Builder, q: Ref, k: Ref, v: Ref, mask: Ref | None, scale: Value, causal: bool) -> None:
    """(softmax(scale * q k^T + mask) v, log-sum-exp of the scores)."""
    emit_forward(b, q, k, v, mask, scale, causal, b.out(0), b.out(1))


@kernel("torch_fl::attend")
def attend_alone(b: Builder, q: Ref, k: Ref, v: Ref, mask: Ref | None, scale: Value, causal: bool) -> None:
    """The first of the two, for whoever needs no gradients."""
    lse = b.temp(q.shape[:3], torch.float64 if q.dtype == torch.float64 else torch.float32)
    emit_forward(b, q, k, v, mask, scale, causal, b.out(), lse)


@kernel("torch_fl::attention_backward")
def attention_backward(
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
) -> None:
    """Gradients of q, k and v."""
    emit_backward(b, q, k, v, mask, scale, causal, grad, out, lse, (b.out(0), b.out(1), b.out(2)))


# -- which way -----------------------------------------------------------------------------------------------------
_served: dict[tuple[Any, ...], bool] = {}
"""What `_specs_fit` said: calls with the same layouts come again and again."""


def _fits(q: Any, k: Any, v: Any, mask: Any, dropout_p: float, causal: bool, enable_gqa: bool) -> bool:
    """Whether the fused kernels serve this call."""
    if dropout_p or not torch._C._get_overrideable_sdp_enabled():
        return False
    if not (type(q) is type(k) is type(v) is Tensor) or (mask is not None and not _mask_fits(mask, causal)):
        return False
    key = (q._spec, k._spec, v._spec, None if mask is None else mask._spec, enable_gqa)
    found = _served.get(key)
    if found is None:
        if len(_served) > 4096:
            _served.clear()
        found = _served[key] = _specs_fit(*key)
    return found


def _mask_fits(mask: Any, causal: bool) -> bool:
    return type(mask) is Tensor and not causal and not mask.requires_grad


def _specs_fit(q: Spec, k: Spec, v: Spec, mask: Spec | None, enable_gqa: bool) -> bool:
    if not (q.device is k.device is v.device) or q.dtype not in _FLOATS:
        return False
    if not q.dtype == k.dtype == v.dtype or not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        return False
    (b, h, lq, e), (kb, hk, lk, ke), (vb, hv, lv, ev) = q.shape, k.shape, v.shape
    same = b == kb == vb and hk == hv and lk == lv and e == ke and 0 not in (b, h, hk, lq, lk, e, ev)
    if not same or not fused_on(q.device, q.dtype, max(e, ev)) or (h != hk and not (enable_gqa and h % hk == 0)):
        return False
    return mask is None or _mask_spec_fits(mask, q, (b, h, lq, lk))


def _mask_spec_fits(mask: Spec, q: Spec, shape: tuple[int, ...]) -> bool:
    if mask.device is not q.device or mask.dtype not in (torch.bool, q.dtype) or len(mask.shape) > 4:
        return False
    return all(n in (1, want) for n, want in zip(mask.shape, shape[4 - len(mask.shape) :]))


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """scaled_dot_product_attention for autograd: the fused op where it fits, else torch's composition."""
    if _fits(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa):
        if _nobody_looks() and not (torch.is_grad_enabled() and _differentiable(query, key, value)):
            args = (query, key, value, attn_mask, _scale(query, scale), is_causal)  # type: ignore[arg-type]
            return planned(op_of(_ALONE), args, {})  # type: ignore[no-any-return]
        fused = _ATEN._scaled_dot_product_fused_attention_overrideable.default
        return fused(query, key, value, attn_mask, 0.0, is_causal, False, scale=scale)[0]  # type: ignore[no-any-return]
    compose = _ATEN.scaled_dot_product_attention.default._op_dk
    numbers = {"scale": scale, "enable_gqa": enable_gqa}
    return compose(_COMPOSITE, query, key, value, attn_mask, dropout_p, is_causal, **numbers)  # type: ignore[no-any-return]


def _nobody_looks() -> bool:
    """Whether an op may be run without going through torch: no telemetry, no modes, no forward-mode derivatives."""
    return dispatch.listener is None and not torch._C._len_torch_dispatch_stack() and forward_ad._current_level < 0


def _differentiable(*tensors: torch.Tensor) -> bool:
    return any(t.requires_grad for t in tensors)


_aten_library: Any = torch.library.Library("aten", "IMPL")
_aten_library.impl("scaled_dot_product_attention", attend, "AutogradPrivateUse1")
handler("aten::scaled_dot_product_attention")(attend)


@handler("aten::_fused_sdp_choice")
def fused_sdp_choice(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> int:
    """The SDPBackend that serves the call."""
    return OVERRIDEABLE if _fits(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa) else MATH


# -- the fused op and its derivative -------------------------------------------------------------------------------
def _scale(query: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query._spec.shape[3]) if scale is None else float(scale)


@handler("aten::_scaled_dot_product_fused_attention_overrideable")
def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """(out, lse, and seven results that only other backends use). Raises NotImplementedError for what does not fit."""
    if not _fits(query, key, value, attn_bias, dropout_p, is_causal, True):
        raise NotImplementedError("fused attention does not serve this call; try: F.scaled_dot_product_attention")
    args = (query, key, value, attn_bias, _scale(query, scale), is_causal)
    out, lse = planned(op_of(_FORWARD), args, {})
    return out, lse, None, None, query._spec.shape[2], key._spec.shape[2], None, None, None


_aten_backward = _ATEN._scaled_dot_product_fused_attention_overrideable_backward.default


@handler("aten::_scaled_dot_product_fused_attention_overrideable_backward")
def fused_attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: list[bool],
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Any,
    philox_offset: Any,
    *,
    scale: float | None = None,
) -> Any:
    """Gradients of query, key and value; none for the mask (such calls are composed)."""
    args = (query, key, value, attn_bias, _scale(query, scale), is_causal, grad_out, out, logsumexp)
    return (*planned(op_of(_BACKWARD), args, {}), None)


def differentiable_backward(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kw: Any) -> Any:
    """The backward for autograd: of ops that have derivatives themselves where the graph of gradients is kept."""
    if torch.is_grad_enabled() and _differentiable(grad_out, query, key, value):
        attn_bias, _, _, _, _, _, _, _, _, is_causal = args[:10]
        return (*_composed_backward(grad_out, query, key, value, attn_bias, is_causal, kw.get("scale")), None)
    if type(grad_out) is Tensor and _nobody_looks():
        return boxed(_aten_backward, grad_out, query, key, value, *args, **kw)
    with torch._C._AutoDispatchBelowAutograd():
        return _aten_backward(grad_out, query, key, value, *args, **kw)


_aten_library.impl(
    "_scaled_dot_product_fused_attention_overrideable_backward", differentiable_backward, "AutogradPrivateUse1"
)


def _composed_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k and v by matrix products: dV = P^T dO, dS = P * (dP - rowsum(P * dP)) with dP = dO V^T."""
    groups = q.shape[1] // k.shape[1]
    factor = _scale(q, scale)  # type: ignore[arg-type]
    keys, values = (t.repeat_interleave(groups, 1) if groups > 1 else t for t in (k, v))
    scores = factor * q @ keys.mT
    if causal:
        mask = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -math.inf) if mask.dtype == torch.bool else scores + mask
    p = torch._safe_softmax(scores, -1)
    dp = grad @ values.mT
    ds = factor * p * (dp - (p * dp).sum(-1, keepdim=True))
    found = [ds @ keys, ds.mT @ q, p.mT @ grad]
    for i in (1, 2):
        if groups > 1:
            found[i] = found[i].unflatten(1, (k.shape[1], groups)).sum(2)
    return found[0], found[1], found[2]
