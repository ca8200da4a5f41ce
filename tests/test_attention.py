"""Attention against the CPU: every mask, uneven lengths, grouped heads, and the modules built on it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same, to
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = {  # batch, heads, key heads, queries, keys, dim, value dim
    "tiny": (1, 1, 1, 3, 5, 4, 4),
    "edges": (2, 2, 2, 33, 65, 24, 24),
    "grouped": (2, 4, 2, 40, 70, 32, 32),
    "value dim": (1, 2, 2, 17, 31, 40, 9),
    "one query": (2, 4, 4, 1, 130, 64, 64),
    "few queries": (2, 4, 2, 3, 90, 40, 20),
    "wide": (1, 1, 1, 9, 12, 200, 200),
    "half a tile": (1, 2, 2, 48, 80, 16, 48),
    "odd": (1, 2, 1, 257, 129, 17, 80),
    "parts of the keys": (1, 2, 1, 2, 1100, 64, 130),
    "rows of a group": (1, 6, 1, 4, 65, 33, 8),
}


def make(shape: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    b, h, hk, lq, lk, e, ev = SHAPES[shape]
    sizes = [(b, h, lq, e), (b, hk, lk, e), (b, hk, lk, ev)]
    return [torch.randn(s, dtype=dtype, requires_grad=True) for s in sizes]


def masks(shape: str) -> dict[str, torch.Tensor | None]:
    b, h, _, lq, lk, _, _ = SHAPES[shape]
    seen = torch.rand(lq, lk) > 0.3
    seen[0] = True
    return {"none": None, "bool": seen, "added": torch.randn(b, 1, lq, lk), "keys": torch.randn(b, h, 1, lk)}


@pytest.mark.parametrize("mask", ["none", "bool", "added", "keys", "causal"])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention(shape: str, mask: str, device: torch.device) -> None:
    given = masks(shape).get(mask)
    gqa = SHAPES[shape][1] != SHAPES[shape][2]
    how = {"is_causal": mask == "causal", "enable_gqa": gqa}
    assert_same(F.scaled_dot_product_attention, *make(shape), given, **how, device=device, rtol=1e-4, atol=1e-5)


def test_scale_and_layout(device: torch.device) -> None:
    x = torch.randn(2, 20, 3, 4, 16, requires_grad=True)  # heads in the middle, as projections make them

    def run(x: torch.Tensor) -> torch.Tensor:
        q, k, v = x.unbind(2)
        found = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), scale=0.3)
        return found.transpose(1, 2).flatten(2)

    assert_same(run, x, device=device, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    tolerance = 1e-6 if dtype == torch.float64 else 2e-2
    for shape in ("edges", "one query"):
        assert_same(F.scaled_dot_product_attention, *make(shape, dtype), device=device, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("added", [False, True])
def test_rows_that_see_nothing(added: bool, device: torch.device) -> None:
    seen = torch.rand(33, 65) > 0.5
    seen[5] = seen[32] = False
    mask = torch.zeros(33, 65).masked_fill(~seen, float("-inf")) if added else seen
    assert_same(F.scaled_dot_product_attention, *make("edges"), mask, device=device, rtol=1e-4, atol=1e-5)
    few = [make("edges")[0][:, :, 5:6], *make("edges")[1:], mask[5:6]]
    assert_same(F.scaled_dot_product_attention, *few, device=device)
    q, k, v = to(make("edges"), device)
    assert (F.scaled_dot_product_attention(q, k, v, mask.to(device))[:, :, 5] == 0).all()


def test_large_scores(device: torch.device) -> None:
    q, k, v = make("edges")
    args = ((q.detach() * 300).requires_grad_(), k, v)
    assert_same(F.scaled_dot_product_attention, *args, device=device, rtol=1e-3, atol=1e-3)
    lowest = torch.full((33, 65), torch.finfo(torch.float32).min)
    with torch.no_grad():
        assert_same(F.scaled_dot_product_attention, *args, lowest, device=device, rtol=1e-4, atol=1e-5)


def test_what_is_composed(device: torch.device) -> None:
    q, k, v = make("tiny")
    assert_same(F.scaled_dot_product_attention, q[0], k[0], v[0], device=device)
    mask = torch.randn(3, 5, requires_grad=True)
    assert_same(F.scaled_dot_product_attention, q, k, v, mask, device=device)
    with sdpa_kernel(SDPBackend.MATH):
        assert_same(F.scaled_dot_product_attention, q, k, v, device=device)
    dropped = F.scaled_dot_product_attention(*to([q, k, v], device), dropout_p=0.5)
    assert dropped.shape == q.shape
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(*to([q, k, v, mask], device), is_causal=True)


def test_which_way(device: torch.device) -> None:
    q, k, v = to(make("tiny"), device)
    assert torch._fused_sdp_choice(q, k, v) == SDPBackend.OVERRIDEABLE.value
    assert torch._fused_sdp_choice(q, k, v, dropout_p=0.1) == SDPBackend.MATH.value
    with torch.inference_mode():
        assert_same(F.scaled_dot_product_attention, *make("edges"), device=device, rtol=1e-4, atol=1e-5)


def module_same(make_module: Any, *args: Any, device: torch.device, train: bool = False, **kwargs: Any) -> None:
    """A module gives the same on both devices, with gradients of its weights in training."""
    torch.manual_seed(0)
    here = make_module().train(train)
    torch.manual_seed(0)
    there = make_module().train(train).to(device)
    with torch.set_grad_enabled(train), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about nested tensors
        want = here(*args, **kwargs)
        moved = to((args, kwargs), device)
        got = there(*moved[0], **moved[1])
    torch.testing.assert_close(to(got, "cpu"), want, rtol=1e-4, atol=1e-5, equal_nan=True)
    if train:
        for result in (want, got):
            (result[0] if isinstance(result, tuple) else result).square().sum().backward()
        got_grads = [p.grad.cpu() for p in there.parameters()]
        torch.testing.assert_close(got_grads, [p.grad for p in here.parameters()], rtol=1e-3, atol=1e-4)


PADDING = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("masked", ["", "padding", "causal", "float"])
def test_multihead_attention(train: bool, weights: bool, masked: str, device: torch.device) -> None:
    x = torch.randn(2, 7, 16)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(7)
    how = {
        "": {},
        "padding": {"key_padding_mask": PADDING},
        "causal": {"attn_mask": causal.isinf()},
        "float": {"attn_mask": torch.randn(7, 7)},
    }[masked]

    def module() -> torch.nn.Module:
        return torch.nn.MultiheadAttention(16, 4, batch_first=True)

    module_same(module, x, x, x, need_weights=weights, **how, device=device, train=train)


def test_multihead_cross_attention(device: torch.device) -> None:
    q, kv = torch.randn(2, 5, 16), torch.randn(2, 7, 12)

    def module() -> torch.nn.Module:
        return torch.nn.MultiheadAttention(16, 4, kdim=12, vdim=12, batch_first=True)

    module_same(module, q, kv, kv, average_attn_weights=False, device=device, train=True)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("masked", ["", "padding", "causal"])
def test_encoder_layer(train: bool, norm_first: bool, masked: str, device: torch.device) -> None:
    how = {
        "": {},
        "padding": {"src_key_padding_mask": PADDING},
        "causal": {"src_mask": torch.nn.Transformer.generate_square_subsequent_mask(7)},
    }[masked]
    activation = "gelu" if norm_first else "relu"

    def module() -> torch.nn.Module:
        options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first, "activation": activation}
        return torch.nn.TransformerEncoderLayer(16, 4, 24, **options)

    module_same(module, torch.randn(2, 7, 16), **how, device=device, train=train)


@pytest.mark.parametrize("train", [True, False])
def test_encoder_and_decoder(train: bool, device: torch.device) -> None:
    def module() -> torch.nn.Module:
        return torch.nn.Transformer(16, 4, 2, 2, 24, dropout=0.0, batch_first=True)

    module_same(module, torch.randn(2, 7, 16), torch.randn(2, 5, 16), device=device, train=train)


def test_masked_softmax(device: torch.device) -> None:
    scores, hidden = torch.randn(2, 4, 7, 7), torch.rand(7, 7) > 0.5
    assert_same(torch._masked_softmax, scores, hidden, 3, 0, device=device)
    assert_same(torch._masked_softmax, scores, PADDING, 3, 1, device=device)


@pytest.mark.parametrize("kind", ["plain", "causal", "grouped", "bool mask"])
def test_double_backward(device: torch.device, kind: str) -> None:
    """Second gradients through the fused op are those of torch's composition in float64."""
    grouped, mask = kind == "grouped", torch.rand(5, 6).gt(0.3) if kind == "bool mask" else None
    shapes = [(2, 4, 5, 8), *[(2, 2 if grouped else 4, 6, 8)] * 2]
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    seed = torch.randn(2, 4, 5, 8, dtype=torch.float64)

    def second(where: Any) -> Any:
        q, k, v, grad = (t.to(where).requires_grad_() for t in (*inputs, seed))
        placed = None if mask is None else mask.to(where)
        out = F.scaled_dot_product_attention(q, k, v, placed, is_causal=kind == "causal", enable_gqa=grouped)
        first = torch.autograd.grad(out, (q, k, v), grad, create_graph=True)
        found = torch.autograd.grad(sum(t.square().sum() for t in first), (q, k, v, grad))
        return [t.detach().cpu() for t in (*first, *found)]

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        want = second("cpu")
    torch.testing.assert_close(second(device), want)


@pytest.mark.parametrize("kind", ["padding", "tril", "column-major", "nothing in a tile"])
def test_masks_of_bits(kind: str, device: torch.device) -> None:
    """Boolean masks whose tiles are seen wholly, in part or not at all, in every layout."""
    seen = {
        "padding": (torch.arange(150) < 70).view(1, 1, 1, 150),
        "tril": torch.ones(100, 150).tril(3).bool(),
        "column-major": (torch.rand(2, 2, 150, 100) > 0.4).mT,
        "nothing in a tile": (torch.arange(150) > 140).expand(100, 150),
    }[kind]
    args = [torch.randn(2, 2, n, 24, requires_grad=True) for n in (100, 150, 150)]
    assert_same(F.scaled_dot_product_attention, *args, seen, device=device, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        few = args[0][:, :, :3]
        assert_same(
            F.scaled_dot_product_attention, few, *args[1:], seen[..., -3:, :], device=device, rtol=1e-4, atol=1e-5
        )
