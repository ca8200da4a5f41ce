"""softmax and log_softmax against the CPU: every dimension and layout, infinities, halves, gradients."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_same

FUNCTIONS = [torch.softmax, torch.log_softmax]


@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, 255, 256, 257, 1000])
def test_lengths(fn: object, n: int, device: torch.device) -> None:
    x = torch.randn(5, n, requires_grad=True)
    assert_same(lambda a: fn(a * 3, -1), x, device=device)
    assert_same(lambda a: fn(a * 3, 0), x, device=device)
    y = torch.randn(n, 3, requires_grad=True)
    assert_same(lambda a: fn(a, 0), y, device=device, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_any_dimension_and_layout(fn: object, dim: int, device: torch.device) -> None:
    x = torch.randn(3, 4, 5, 70, requires_grad=True)
    assert_same(lambda a: fn(a, dim), x, device=device)
    assert_same(lambda a: fn(a.transpose(1, 3), dim), x, device=device)
    assert_same(lambda a: fn(a[1:, :, ::2, 3:], dim), x, device=device)
    assert_same(lambda a: fn(a[:, :1].expand(3, 4, 5, 70), dim), x, device=device)
    channels_last = x.detach().contiguous(memory_format=torch.channels_last)
    assert_same(lambda a: fn(a, dim), channels_last, device=device)


@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("dim", [0, 1])
def test_dtypes(fn: object, dtype: torch.dtype, dim: int, device: torch.device) -> None:
    x = torch.randn(6, 130).to(dtype)
    wide = fn(x.double(), dim)
    torch.testing.assert_close(fn(x.to(device), dim).cpu(), wide.to(dtype))
    tight = fn(x.to(device), dim, dtype=torch.float32).cpu()
    torch.testing.assert_close(tight, wide.float(), rtol=1e-5, atol=1e-5)
    aten = torch.ops.aten
    backward = aten._softmax_backward_data if fn is torch.softmax else aten._log_softmax_backward_data
    y, g = wide.to(dtype), torch.linspace(-1, 1, x.numel()).view(x.shape).to(dtype)
    want = backward(g.double(), y.double(), dim, torch.float64).to(dtype)
    torch.testing.assert_close(backward(g.to(device), y.to(device), dim, dtype).cpu(), want)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_infinities_and_large_numbers(fn: object, device: torch.device) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[-inf, 0.0, 1.0], [-inf, -inf, -inf], [inf, 0.0, 1.0], [nan, 0.0, 1.0], [1e30, -1e30, 1e30]])
    assert_same(lambda a: (fn(a, 1), fn(a, 0), fn(a.t(), 0)), x, device=device)
    mask = torch.full((4, 80), -inf).triu(1)
    assert_same(lambda a: (fn(a, 1), fn(a, 0)), mask, device=device)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_empty_and_scalar(fn: object, device: torch.device) -> None:
    assert_same(lambda a: (fn(a, 0), fn(a, 1)), torch.empty(0, 3), device=device)
    assert_same(lambda a: (fn(a, 0), fn(a, 1)), torch.empty(2, 0), device=device)
    assert_same(lambda a: fn(a, 0), torch.tensor(2.0, requires_grad=True), device=device)
    assert torch.softmax(torch.randn(50, 4000, device=device), 1).sum(1).cpu().sub(1).abs().max() < 1e-5
