"""Running sums, products and extremes: any dimension, any layout, dtypes, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_same

SCANS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "cumsum": lambda x, d: x.cumsum(d),
    "cumprod": lambda x, d: x.cumprod(d),
    "logcumsumexp": lambda x, d: x.logcumsumexp(d),
    "cummax": lambda x, d: tuple(x.cummax(d)),
    "cummin": lambda x, d: tuple(x.cummin(d)),
}


def _x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", SCANS)
def test_any_dimension_and_layout(name: str, device: torch.device) -> None:
    for x in (_x(5, 7, 20), _x(20, 7, 5).transpose(0, 2), _x(5, 8, 70)[:, ::2, 1:], _x(3, 65, 9), _x(2, 0, 3), _x()):
        for dim in range(-x.dim(), max(x.dim(), 1)):
            assert_same(SCANS[name], x, dim, device=device)


@pytest.mark.parametrize("name", SCANS)
def test_gradient(name: str, device: torch.device) -> None:
    x = _x(5, 7).requires_grad_()
    for dim in (0, 1):
        assert_same(SCANS[name], x, dim, device=device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool])
def test_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    x = (_x(6, 40) * 2).to(dtype)
    for dim in (0, 1):
        assert_same(torch.cumsum, x, dim, device=device)
        assert_same(SCANS["cummax"], x, dim, device=device)
    assert_same(lambda x: x.cumsum(1, dtype=torch.float32), x, device=device)


def test_nan_and_infinity(device: torch.device) -> None:
    x = torch.tensor([1.0, -float("inf"), 2.0, float("inf"), 3.0, float("nan"), 1.0])
    for name in SCANS:
        assert_same(SCANS[name], x, 0, device=device)
    assert_same(lambda x: x.logcumsumexp(0), torch.full((4,), -float("inf")), device=device)


def test_long_sums_stay_exact(device: torch.device) -> None:
    x = torch.full((1 << 17,), 0.1)
    assert_same(lambda x: x.cumsum(0), x, device=device, rtol=1e-6, atol=0)


def test_in_place_and_out(device: torch.device) -> None:
    def both(x: torch.Tensor) -> Any:
        y = x.clone()
        out = torch.empty(0, device=x.device)
        return y.cumsum_(1), y, torch.cumprod(x, 0, out=out), out

    assert_same(both, _x(5, 7), device=device)


def test_composites(device: torch.device) -> None:
    assert_same(lambda x: [torch.trapezoid(x, dim=0), torch.cumulative_trapezoid(x), x.diff()], _x(5, 7), device=device)
