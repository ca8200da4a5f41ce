"""sort, topk and their kin; unique, searchsorted and counting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_same

from torch_fl.runtime.devices import device_at

NAN, INF = float("nan"), float("inf")


def _x(*shape: int, dtype: torch.dtype = torch.float32, few: bool = False) -> torch.Tensor:
    """Numbers with ties; floats with NaN, infinities and both zeros."""
    made = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 9
    if dtype.is_floating_point and not few and made.numel() > 8:
        made.view(-1)[1:8] = torch.tensor([NAN, INF, -INF, 0.0, -0.0, NAN, 0.0])
    return (made.round() if few else made).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int64, torch.int8, torch.bool])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_with_nan_last(dtype: torch.dtype, descending: bool, device: torch.device) -> None:
    for n in (0, 1, 2, 16, 17, 33, 1025):
        x = _x(n, dtype=dtype)
        assert_same(torch.sort, x, stable=True, dim=0, descending=descending, device=device)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sort_along_any_dimension(dim: int, device: torch.device) -> None:
    for x in (_x(5, 7, 3), _x(6, 70, 2).transpose(0, 1), _x(4, 6, 6)[:, ::2, 1:]):
        assert_same(lambda x: torch.sort(x, dim=dim, stable=True), x, device=device)
        assert_same(lambda x: torch.argsort(x, dim=dim, stable=True), x, device=device)


def test_gradients(device: torch.device) -> None:
    x = torch.randperm(60, generator=torch.Generator().manual_seed(1)).float().view(5, 12).requires_grad_()
    assert_same(lambda x: x.sort(1)[0], x, device=device)
    assert_same(lambda x: x.topk(3, 0)[0], x, device=device)
    assert_same(lambda x: x.median(1)[0] + x.kthvalue(4, 1)[0] + x.mode(1)[0], x, device=device)
    assert_same(lambda x: x.median(), x, device=device)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(7,), (3, 40), (2, 5000), (1, 70001)])
def test_topk(shape: tuple[int, ...], largest: bool, device: torch.device) -> None:
    x = torch.randperm(70001, generator=torch.Generator().manual_seed(1))[: math.prod(shape)].view(shape)
    for k in {1, min(5, shape[-1]), min(200, shape[-1])}:
        assert_same(torch.topk, x, k, largest=largest, device=device)
        assert_same(torch.topk, x.float(), k, largest=largest, device=device)


def test_topk_counts_nan_as_largest(device: torch.device) -> None:
    x = torch.tensor([1.0, NAN, 3.0, INF, -INF] + [0.5] * 40)
    assert_same(lambda x: x.topk(3)[0], x, device=device)
    assert_same(lambda x: x.topk(2, largest=False)[0], x, device=device)


MIDDLES: dict[str, Callable[[torch.Tensor], Any]] = {
    "kthvalue": lambda x: x.kthvalue(3, 1)[0],
    "kthvalue keepdim": lambda x: x.kthvalue(2, 0, keepdim=True)[0],
    "median": lambda x: x.median(),
    "median dim": lambda x: x.median(1)[0],
    "nanmedian": lambda x: x.nanmedian(),
    "nanmedian dim": lambda x: x.nanmedian(0, keepdim=True)[0],
    "mode": lambda x: x.nan_to_num().mode(1)[0],
    "msort": lambda x: x.msort(),
}


@pytest.mark.parametrize("name", MIDDLES)
def test_one_of_each_line(name: str, device: torch.device) -> None:
    for x in (_x(6, 9), _x(9, 6).t(), _x(6, 9, dtype=torch.int64), _x(6, 9, dtype=torch.float16)):
        assert_same(MIDDLES[name], x, device=device)


def test_sort_as_on_parallel_chips(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of chips with many work-items (short runs, merged piece by piece), on the chips there are."""
    from torch_fl.dispatch import op_of

    for op in (op_of(torch.ops.aten.sort.stable), op_of(torch.ops.aten.topk.default)):
        monkeypatch.setattr(op, "plans", {})
    monkeypatch.setattr(device_at(device.index), "is_cpu", False)
    for n in (1, 31, 32, 33, 65, 1000, 4097):
        x = _x(2, n, few=True)
        assert_same(lambda x: torch.sort(x, stable=True), x, device=device)
        assert_same(lambda x: torch.sort(x, stable=True, descending=True), x.double(), device=device)
        assert_same(lambda x: x.topk(min(4, x.shape[1]))[0], x, device=device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_unique(dtype: torch.dtype, device: torch.device) -> None:
    for x in (_x(4, 9, dtype=dtype, few=True), _x(300, dtype=dtype, few=True), _x(0, dtype=dtype)):
        assert_same(lambda x: torch.unique(x, return_inverse=True, return_counts=True), x, device=device)
        assert_same(torch.unique, x, device=device)
    x = (_x(40, 3, dtype=torch.float32, few=True) > 0).to(dtype)
    for dim in (0, 1):
        assert_same(torch.unique, x, dim=dim, return_inverse=True, return_counts=True, device=device)
        assert_same(torch.unique_consecutive, x, dim=dim, return_inverse=True, return_counts=True, device=device)
    assert_same(torch.unique_consecutive, x, device=device)


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(right: bool, device: torch.device) -> None:
    x = torch.cat([_x(20), torch.tensor([1.0, 2.0])])
    bounds = torch.tensor([-3.0, 1.0, 1.0, 2.0, 7.0])
    assert_same(torch.bucketize, x, bounds, right=right, device=device)
    assert_same(torch.bucketize, x, bounds, right=right, out_int32=True, device=device)
    lines = _x(3, 8, few=True).sort(1)[0]
    assert_same(torch.searchsorted, lines, _x(3, 5, few=True), right=right, device=device)
    order = torch.argsort(_x(3, 8, few=True), 1)
    assert_same(
        lambda s, x, o: torch.searchsorted(s, x, sorter=o, right=right), _x(3, 8, few=True), lines, order, device=device
    )
    assert_same(lambda b: torch.searchsorted(b, 1.0, right=right), bounds, device=device)


def test_counting(device: torch.device) -> None:
    i = torch.randint(0, 9, (500,), generator=torch.Generator().manual_seed(1))
    assert_same(torch.bincount, i, minlength=20, device=device)
    assert_same(torch.bincount, i, torch.linspace(0, 1, 500), device=device)
    assert_same(torch.bincount, i[:0], device=device)
    assert_same(torch.histc, _x(500, few=True), 10, -20, 20, device=device)
    assert_same(torch.histc, _x(500, few=True), 7, device=device)
    assert_same(torch.repeat_interleave, i[:30], device=device)
    assert_same(torch.repeat_interleave, _x(5, 3), torch.tensor([1, 0, 2, 4, 1]), dim=0, device=device)
    assert_same(torch.isin, i, torch.tensor([1, 5]), device=device)
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.bincount(torch.tensor([-1], device=device))


def test_histc_of_integers(device: torch.device) -> None:
    """torch's CPU has none; on CUDA mixtures of experts count their tokens with it."""
    x = torch.tensor([0, 1, 1, 3, 7, 7, -2], dtype=torch.int32, device=device)
    assert torch.histc(x, bins=8, min=0, max=7).tolist() == [1, 2, 0, 1, 0, 0, 0, 2]
    assert torch.histc(x.long(), 3, 0, 6).tolist() == [3, 1, 0]
    assert torch.histc(x, 4).dtype == torch.int32
