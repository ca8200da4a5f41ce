"""Reductions against the CPU: every layout, split and empty reductions, NaN, indices, accumulation dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_same

FLOAT = (torch.float32, torch.float16, torch.bfloat16)


def _make(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(sum(shape))
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=torch.float32).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 50, shape).to(dtype)


ALL_OPS: dict[str, Callable[..., Any]] = {
    "sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin, "any": torch.any, "all": torch.all,
    "count_nonzero": torch.count_nonzero, "nansum": torch.nansum, "std": torch.std, "var": torch.var,
}  # fmt: skip


@pytest.mark.parametrize("name", ALL_OPS)
@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_any_dimensions(name: str, dims: tuple[int, ...], device: torch.device) -> None:
    x = _make((5, 33, 70), torch.float32) + 1
    fn = ALL_OPS[name]
    assert_same(lambda a: fn(a, dims), x, device=device, rtol=1e-5, atol=1e-4)
    assert_same(lambda a: fn(a.transpose(0, 2), dims), x, device=device, rtol=1e-5, atol=1e-4)
    assert_same(lambda a: fn(a[1:, ::3, 2:], dims), x, device=device, rtol=1e-5, atol=1e-4)
    assert_same(lambda a: fn(a[:, :1].expand(5, 4, 70), dims), x, device=device, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [*FLOAT, torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool])
def test_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    x = _make((37, 65), dtype)
    for fn in (torch.sum, torch.nansum, torch.any, torch.all, torch.max, torch.min, torch.count_nonzero):
        assert_same(fn, x, device=device)
        assert_same(lambda a: (torch.amax(a, 0), torch.amin(a, 1, keepdim=True)), x, device=device)
        assert_same(lambda a: torch.sum(a, 1, keepdim=True), x, device=device)
    assert_same(lambda a: torch.prod(a[:, :3] * 0.5 if a.is_floating_point() else a[:, :3], 1), x, device=device)


def test_wanted_dtype(device: torch.device) -> None:
    x = torch.tensor([[1.7, -2.3, 0.4], [300.2, 2.0, 1.0]])
    for dtype in (torch.int64, torch.int32, torch.float16, torch.float64, torch.bool):
        assert_same(
            lambda a, dtype=dtype: (a.sum(dtype=dtype), a.sum(1, dtype=dtype), a.prod(1, dtype=dtype)), x, device=device
        )
    assert_same(lambda a: a.long().mean(0, dtype=torch.float32), x, device=device)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 255, 256, 257, 4095, 4097, 40000, 65537, 300001])
def test_lengths_around_every_edge(n: int, device: torch.device) -> None:
    x = torch.randn(n)
    assert_same(lambda a: (a.sum(), a.max(), a.argmax(), a.argmin(), a.norm()), x, device=device, rtol=1e-4, atol=1e-4)
    y = torch.randn(3, n) if n < 5000 else x.view(1, n)
    assert_same(lambda a: (a.sum(0), a.sum(1), *a.max(0), *a.min(1)), y, device=device, rtol=1e-4, atol=1e-4)
    assert_same(lambda a: (a.t().sum(0), a.t().amin(1), a.t().argmax(0)), y, device=device, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 15, 17, 70])
@pytest.mark.parametrize("n", [16, 31, 63, 64, 65, 79, 200, 4101])
def test_rows_end_where_they_end(rows: int, n: int, device: torch.device) -> None:
    wide = torch.full((rows, n + 40), torch.nan)
    wide[:, 20 : n + 20] = torch.randn(rows, n) + 1
    fns = (torch.sum, torch.mean, torch.amax, torch.amin, torch.prod)
    assert_same(lambda a: [fn(a[:, 20 : n + 20], -1) for fn in fns], wide, device=device, rtol=1e-4, atol=1e-4)
    assert_same(lambda a: a[:, 20 : n + 20].half().mean(-1), wide, device=device)


def test_sum_of_many_ones_is_exact(device: torch.device) -> None:
    ones = torch.ones(2**24 + 2**20, device=device)
    assert ones.sum().item() == 2**24 + 2**20
    assert ones.view(-1, 1 << 4).sum(0).cpu().tolist() == [(2**24 + 2**20) / 16] * 16
    assert torch.full((1 << 20,), 0.1, device=device).sum().item() == pytest.approx(0.1 * 2**20, rel=1e-6)
    assert torch.ones(1, device=device).expand(1 << 25).sum().item() == 2**25


def test_nan_wins_and_the_first_index_counts(device: torch.device) -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, 3.0, 3.0, -1.0], [nan, 1.0, nan, 2.0], [inf, inf, -inf, -inf], [-0.0, 0.0, 0.0, -0.0]])
    for fn in (torch.max, torch.min):
        assert_same(lambda a, fn=fn: (*fn(a, 1), *fn(a, 0), fn(a)), x, device=device)
    for fn in (torch.argmax, torch.argmin):
        assert_same(lambda a, fn=fn: (fn(a), fn(a, 0), fn(a, 1, keepdim=True), fn(a.t())), x, device=device)
    assert_same(lambda a: (torch.any(a, 1), torch.all(a, 1), torch.nansum(a, 1)), x, device=device)


def test_long_columns_and_rows_with_index(device: torch.device) -> None:
    x = torch.randint(0, 1000, (70000,))
    assert_same(lambda a: (a.argmax(), a.argmin(), *a.max(0)), x, device=device)
    assert_same(lambda a: (*a.view(-1, 7).max(0), *a.view(7, -1).min(1)), x, device=device)


def test_empty(device: torch.device) -> None:
    x = torch.empty(0, 3)
    for fn in (torch.sum, torch.mean, torch.prod, torch.any, torch.all, torch.nansum):
        assert_same(lambda a, fn=fn: (fn(a), fn(a, 0), fn(a, 1)), x, device=device)
    assert_same(lambda a: (a.amax(1), a.argmax(1), *a.max(1)), x, device=device)
    for fn in (torch.amax, torch.argmax, torch.max):
        with pytest.raises((RuntimeError, IndexError)):
            fn(x.to(device), 0)
    for fn, error in ((torch.max, RuntimeError), (torch.argmin, IndexError)):
        with pytest.raises(error, match="Expected reduction dim to be specified"):
            fn(x.to(device))


def test_scalars(device: torch.device) -> None:
    x = torch.tensor(-3.5)
    assert_same(lambda a: (a.sum(), a.sum(0), a.mean(-1), *a.max(0), a.argmax(), a.amin(), a.all()), x, device=device)
    assert_same(lambda a: (a.var(unbiased=False), a.norm(), a.logsumexp(0)), x, device=device)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("dtype", FLOAT)
def test_moments(dtype: torch.dtype, device: torch.device) -> None:
    x = (_make((9, 130, 6), torch.float32) + 100).to(dtype)
    for correction in (0, 1, 2.5, 200):
        assert_same(lambda a, correction=correction: torch.std_mean(a, (0, 2), correction=correction), x, device=device)
        assert_same(
            lambda a, correction=correction: torch.var_mean(a, 1, correction=correction, keepdim=True), x, device=device
        )
    assert_same(lambda a: (a.var(), a.std(unbiased=False)), x, device=device)
    assert_same(torch.var, torch.randn(7, 5, requires_grad=True), device=device)


@pytest.mark.parametrize("order", [0, 0.5, 1, 2, 3, -1, float("inf"), -float("inf")])
def test_vector_norm(order: float, device: torch.device) -> None:
    x = _make((6, 40, 5), torch.float32)
    assert_same(lambda a: torch.linalg.vector_norm(a, order), x, device=device, rtol=1e-4, atol=1e-4)
    assert_same(lambda a: torch.linalg.vector_norm(a, order, (0, 1), keepdim=True), x, device=device)
    assert_same(lambda a: torch.norm(a, order, 1), x, device=device)
    assert_same(lambda a: torch.linalg.vector_norm(a.half(), order, 1, dtype=torch.float32), x, device=device)


def test_logsumexp(device: torch.device) -> None:
    inf = float("inf")
    x = torch.tensor([[1.0, 2.0, 1000.0], [-inf, -inf, -inf], [inf, 1.0, -inf], [-inf, 0.5, -2.0]], requires_grad=True)
    assert_same(
        lambda a: (a.logsumexp(1), a.logsumexp(0, keepdim=True), a.logsumexp((0, 1))), x.detach(), device=device
    )
    assert_same(lambda a: a.logsumexp(1), torch.randn(4, 50, requires_grad=True), device=device)
    assert_same(lambda a: a.logsumexp(1), torch.arange(12).view(3, 4), device=device)


def test_out_and_aliases(device: torch.device) -> None:
    x = torch.randn(4, 6)
    out = torch.empty(4, device=device)
    torch.sum(x.to(device), 1, out=out)
    torch.testing.assert_close(out.cpu(), x.sum(1))
    values, indices = torch.empty(6, device=device), torch.empty(6, dtype=torch.int64, device=device)
    torch.max(x.to(device), 0, out=(values, indices))
    torch.testing.assert_close((values.cpu(), indices.cpu()), tuple(x.max(0)))


@pytest.mark.parametrize("name", ["amax", "amin", "max", "min"])
def test_the_first_of_equal_zeros_is_the_extreme_one(name: str, device: torch.device) -> None:
    x = torch.tensor([[0.0, -0.0, 0.0], [-0.0, 0.0, -0.0]])
    got = getattr(x.to(device), name)(1)
    assert torch.signbit(got if isinstance(got, torch.Tensor) else got[0]).tolist() == [False, True]
