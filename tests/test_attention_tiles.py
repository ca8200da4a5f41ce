"""Fused attention in tiles of local memory, as on a card: lengths around a block, masks, shared key heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same, to

from torch_fl import trace

attend = F.scaled_dot_product_attention
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


def _inputs(lq: int, lk: int, e: int, ev: int, heads: int = 2, kv: int = 2) -> list[torch.Tensor]:
    shapes = ((2, heads, lq, e), (2, kv, lk, e), (2, kv, lk, ev))
    return [torch.randn(s, requires_grad=True) for s in shapes]


@pytest.mark.parametrize("lengths", [(1, 1), (1, 200), (63, 64), (65, 130), (100, 17), (64, 64)])
@pytest.mark.parametrize("dims", [(64, 64), (8, 8), (40, 24), (128, 128), (100, 65)])
def test_lengths_and_dimensions(lengths: tuple[int, int], dims: tuple[int, int], card: torch.device) -> None:
    assert_same(attend, *_inputs(*lengths, *dims), device=card, **CLOSE)


@pytest.mark.parametrize("lengths", [(65, 65), (130, 130), (70, 40), (40, 150)])
def test_causal(lengths: tuple[int, int], card: torch.device) -> None:
    with trace() as seen:
        assert_same(lambda *qkv: attend(*qkv, is_causal=True), *_inputs(*lengths, 32, 32), device=card, **CLOSE)
    assert "aten::_scaled_dot_product_fused_attention_overrideable_backward" in {r.op for r in seen.records}


@pytest.mark.parametrize("shape", [(2, 2, 70, 90), (1, 1, 70, 90), (70, 90), (2, 1, 1, 90)])
def test_masks(shape: tuple[int, ...], card: torch.device) -> None:
    mask = torch.rand(shape) > 0.4
    assert_same(attend, *_inputs(70, 90, 16, 16), mask, device=card, **CLOSE)
    assert_same(attend, *_inputs(70, 90, 16, 16), torch.randn(shape), device=card, **CLOSE)


def test_a_query_that_sees_nothing_gets_zeros(card: torch.device) -> None:
    mask = torch.ones(70, 90, dtype=torch.bool)
    mask[3], mask[65, 64:] = False, False
    here, there = (to(_inputs(70, 90, 16, 16), d) for d in ("cpu", card))
    out = attend(*there, mask.to(card))
    assert out[:, :, 3].abs().max() == 0
    out.sum().backward()
    assert all(torch.isfinite(t.grad.cpu()).all() for t in there)
    del here


def test_shared_key_heads_halves_and_layouts(card: torch.device) -> None:
    grouped: Any = {"enable_gqa": True, "is_causal": True}
    assert_same(lambda *qkv: attend(*qkv, **grouped), *_inputs(70, 70, 16, 16, 6, 2), device=card, **CLOSE)
    for dtype in (torch.float16, torch.bfloat16):
        qkv = [t.detach().to(dtype) for t in _inputs(66, 70, 64, 64)]
        assert_same(attend, *qkv, device=card, rtol=2e-2, atol=5e-3)
    packed = torch.randn(2, 70, 3, 2, 16, requires_grad=True)
    assert_same(lambda p: attend(*p.permute(2, 0, 3, 1, 4)), packed, device=card, **CLOSE)
    odd = [t[..., 1:] for t in _inputs(66, 66, 17, 17)]
    assert_same(attend, *(t.detach() for t in odd), device=card, **CLOSE)


def test_nan_stays_in_its_rows(card: torch.device) -> None:
    q, k, v = (t.detach() for t in _inputs(70, 80, 16, 16))
    q[0, 0, 5, 3] = float("nan")
    assert_same(attend, q, k, v, device=card, **CLOSE)
