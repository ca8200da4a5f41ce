"""The inference ops of nn.MultiheadAttention and nn.TransformerEncoderLayer, written as the ops they stand for.

torch gives them kernels for the CPU and CUDA only, yet its modules call them on every backend's device in eval mode.
Masks here are True where a position must not be seen, the opposite of scaled_dot_product_attention.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..registry import handler
from .attention import attend

KEY_PADDING_MASK = 1


def _spread(mask: torch.Tensor, scores: torch.Tensor, mask_type: int | None) -> torch.Tensor:
    """A mask [lq, lk], [batch, lk] or like the scores, as one that broadcasts to the scores [batch, head, lq, lk]."""
    if mask_type == KEY_PADDING_MASK:
        return mask.view(scores.shape[0], 1, 1, scores.shape[3])
    return mask


@handler("aten::_masked_softmax")
def masked_softmax(
    self: torch.Tensor, mask: torch.Tensor, dim: int | None = None, mask_type: int | None = None
) -> torch.Tensor:
    """softmax of the scores where mask is False, 0 elsewhere; NaN where everything is masked, as on the CPU."""
    if mask.dtype != torch.bool:
        raise RuntimeError("Mask should be a boolean tensor")
    dim = self.dim() - 1 if dim is None else dim
    return self.masked_fill(_spread(mask, self, mask_type), float("-inf")).softmax(dim)


@handler("aten::_native_multi_head_attention")
def native_multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Multi-head attention over [batch, length, embed_dim]: (result, weights or None)."""
    q, k, v = _projections(query, key, value, qkv_weight, qkv_bias, num_head)
    weights = None
    if need_weights or mask is not None:
        scores = torch.matmul(q * (embed_dim // num_head) ** -0.5, k.transpose(2, 3))
        weights = scores.softmax(3) if mask is None else masked_softmax(scores, mask.bool(), 3, mask_type)
        found = torch.matmul(weights, v)
    else:
        found = attend(q, k, v)
    result = F.linear(found.transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    return result, weights if need_weights else None


def _projections(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, heads: int
) -> list[torch.Tensor]:
    """Query, key and value through their thirds of the weight, as [batch, head, length, dim]."""
    if query is key and key is value:
        parts = list(F.linear(query, weight, bias).chunk(3, -1))
    else:
        parts = [F.linear(x, w, c) for x, w, c in zip((query, key, value), weight.chunk(3), bias.chunk(3))]
    return [p.unflatten(2, (heads, -1)).transpose(1, 2) for p in parts]


@handler("aten::_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """One encoder layer in eval mode, over [batch, length, embed_dim]."""

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    def attention(x: torch.Tensor) -> torch.Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        found: torch.Tensor
        found, _ = native_multi_head_attention(
            x, x, x, embed_dim, num_heads, *projections, mask, False, True, mask_type
        )
        return found

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attention(norm(src, norm_weight_1, norm_bias_1))
        return x + feed_forward(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attention(src), norm_weight_1, norm_bias_1)
    return norm(x + feed_forward(x), norm_weight_2, norm_bias_2)


@handler("aten::_nested_tensor_from_mask_left_aligned")
def nested_tensor_from_mask_left_aligned(t: torch.Tensor, mask: torch.Tensor) -> bool:
    """False: there are no nested tensors here, so nn.TransformerEncoder keeps to padded ones and passes its mask on."""
    return False
