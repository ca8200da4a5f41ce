"""Rows in explicit vectors: lengths around every multiple of a register, halves, and numbers that are not finite."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

LENGTHS = (31, 32, 33, 63, 64, 65, 79, 127, 129, 255, 257, 1000, 4096, 4113)
TOLERANCE: dict[torch.dtype, dict[str, float]] = {
    torch.float32: {"rtol": 1.3e-6, "atol": 3e-5},
    torch.float16: {"rtol": 2e-3, "atol": 1e-3},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-3},
}
WORKS: dict[str, Any] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin(-1),
    "var": lambda x: x.var(-1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "mse": lambda x: F.mse_loss(x, x.flip(0), reduction="sum") / x.numel(),
}

pytestmark = pytest.mark.device


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("work", WORKS)
def test_lengths_around_registers(device: torch.device, work: str, dtype: torch.dtype) -> None:
    for n in LENGTHS:
        x = torch.randn(3, n, generator=torch.Generator().manual_seed(n)).to(dtype)
        torch.testing.assert_close(WORKS[work](x.to(device)).cpu(), WORKS[work](x), **TOLERANCE[dtype])


NORMS: dict[str, Any] = {
    "layer_norm": lambda x, w: F.layer_norm(x, x.shape[-1:], w, w),
    "rms_norm": lambda x, w: F.rms_norm(x, x.shape[-1:], w),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_rows_far_from_zero(device: torch.device, name: str, dtype: torch.dtype) -> None:
    for n in (15, 16, 17, *LENGTHS):
        x, g = torch.randn(2, 5, n, generator=torch.Generator().manual_seed(n)).to(dtype)
        x = x + 100 if dtype == torch.float32 and name == "layer_norm" else x
        w = torch.rand(n, generator=torch.Generator().manual_seed(n)).to(dtype)
        exact = [t.double().requires_grad_() for t in (x, w)]
        mine = [t.to(device).requires_grad_() for t in (x, w)]
        want, got = NORMS[name](*exact), NORMS[name](*mine)
        want.backward(g.double())
        got.backward(g.to(device))
        loose = {"rtol": max(2e-5, TOLERANCE[dtype]["rtol"]), "atol": max(1e-4, 4 * TOLERANCE[dtype]["rtol"])}
        for a, b in ((got, want), *((p.grad, q.grad) for p, q in zip(mine, exact))):
            torch.testing.assert_close(a.cpu(), b.to(dtype), **loose)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("work", ["softmax", "log_softmax", "sum", "amax", "amin"])
def test_numbers_that_are_not_finite(device: torch.device, work: str, number: float) -> None:
    x = torch.randn(4, 300, generator=torch.Generator().manual_seed(0))
    x[1, 77], x[2], x[3, 299] = number, number, number
    for dtype in TOLERANCE:
        half = x.to(dtype)
        torch.testing.assert_close(
            WORKS[work](half.to(device)).cpu(), WORKS[work](half), equal_nan=True, **TOLERANCE[dtype]
        )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
def test_gradients_of_softmax(device: torch.device, name: str, dtype: torch.dtype) -> None:
    op = getattr(torch.ops.aten, name)
    for n in LENGTHS:
        g, x = torch.randn(2, 3, n, generator=torch.Generator().manual_seed(n)).to(dtype)
        y = x.log_softmax(-1) if "log" in name else x.softmax(-1)
        torch.testing.assert_close(
            op(g.to(device), y.to(device), -1, dtype).cpu(), op(g, y, -1, dtype), **TOLERANCE[dtype]
        )


def test_gelu_is_as_near_to_float64_as_on_the_cpu(device: torch.device) -> None:
    x = torch.linspace(-12, 12, 100_001)
    for work in (F.gelu, lambda x: torch.ops.aten.gelu_backward(torch.ones_like(x), x), torch.erf):
        exact = work(x.double())
        miss = (work(x.to(device)).cpu().double() - exact).abs().max()
        assert miss <= max(4e-7, 2 * (work(x).double() - exact).abs().max())


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16])
def test_casts_of_every_length_round_as_on_the_cpu(device: torch.device, target: torch.dtype) -> None:
    ends = torch.tensor(
        [0.0, -0.0, 1e-40, 1e-8, 1 + 2**-8, 1 + 3 * 2**-8, 65520, 3.4e38, torch.inf, -torch.inf, torch.nan]
    )
    for n in (1, 15, 16, 31, 33, 65, 8193):
        x = ends.repeat(n // 11 + 1)[:n]
        there = x.to(device).to(target)
        torch.testing.assert_close(there.cpu(), x.to(target), rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(there.float().cpu(), x.to(target).float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("n", [16, 17, 31, 256, 257])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rows_normalized_together_stay_apart(device: torch.device, n: int, dtype: torch.dtype) -> None:
    for rows in (1, 15, 16, 17, 50):
        x = (torch.randn(rows, n) * torch.arange(1, rows + 1).view(rows, 1)).to(dtype)
        x[rows // 2, n - 1] = torch.nan
        weight, bias = torch.randn(n).to(dtype), torch.randn(n).to(dtype)
        for work in (lambda t, w, b: F.layer_norm(t, (n,), w, b), lambda t, w, b: F.rms_norm(t, (n,), w, 1e-5)):
            got = work(x.to(device), weight.to(device), bias.to(device)).cpu()
            torch.testing.assert_close(got, work(x, weight, bias), equal_nan=True, **TOLERANCE[dtype])
