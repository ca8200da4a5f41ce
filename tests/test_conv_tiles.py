"""Convolution in tiles of local memory, as on a card: every kind of window, layouts, and channels around a tile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same

CLOSE = {"rtol": 1e-4, "atol": 2e-4}
WINDOWS: list[dict[str, Any]] = [
    {}, {"padding": 1}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": (2, 1)}, {"stride": (3, 2)},
]  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("channels", [(3, 9), (17, 64), (5, 65), (2, 3)])
def test_windows(window: dict[str, Any], channels: tuple[int, int], card: torch.device) -> None:
    inner, outer = channels
    x, w = torch.randn(2, inner, 11, 9, requires_grad=True), torch.randn(outer, inner, 3, 2, requires_grad=True)
    bias = torch.randn(outer, requires_grad=True)
    assert_same(lambda x, w, b: F.conv2d(x, w, b, **window), x, w, bias, device=card, **CLOSE)


@pytest.mark.parametrize("groups", [2, 12])
def test_groups_and_other_ranks(groups: int, card: torch.device) -> None:
    x = torch.randn(2, 12, 10, requires_grad=True)
    w = torch.randn(24, 12 // groups, 4, requires_grad=True)
    assert_same(lambda x, w: F.conv1d(x, w, padding=2, groups=groups), x, w, device=card, **CLOSE)
    x, w = torch.randn(1, 4, 5, 6, 7, requires_grad=True), torch.randn(9, 4, 2, 3, 2, requires_grad=True)
    assert_same(lambda x, w: F.conv3d(x, w, stride=(1, 2, 1), padding=1), x, w, device=card, **CLOSE)
    x, w = torch.randn(2, 16, 7, 7, requires_grad=True), torch.randn(16, 10, 3, 3, requires_grad=True)
    for stride in (1, 2, 3):
        assert_same(F.conv_transpose2d, x, w, None, stride, 1, device=card, **CLOSE)


def test_tiles_of_every_size(card: torch.device) -> None:
    for inner, outer, size in ((20, 130, 16), (8, 70, 5), (64, 16, 20)):
        x, w = (
            torch.randn(2, inner, size, size, requires_grad=True),
            torch.randn(outer, inner, 3, 3, requires_grad=True),
        )
        assert_same(lambda x, w: F.conv2d(x, w, padding=1), x, w, device=card, **CLOSE)
    x, w = torch.randn(3, 40, 9, 9, requires_grad=True), torch.randn(70, 40, 1, 1, requires_grad=True)
    assert_same(lambda x, w: F.conv2d(x, w), x, w, device=card, **CLOSE)


def test_layouts_and_dtypes(card: torch.device) -> None:
    x, w = torch.randn(2, 12, 9, 8), torch.randn(10, 12, 3, 3)
    last = torch.channels_last
    assert_same(lambda x, w: F.conv2d(x, w), x.to(memory_format=last), w.to(memory_format=last), device=card, **CLOSE)
    assert_same(lambda x, w: F.conv2d(x[:, :, ::2, 1:], w), x, w, device=card, **CLOSE)
    assert_same(lambda x, w: F.conv2d(x, w), x.double(), w.double(), device=card)
    for dtype in (torch.float16, torch.bfloat16):
        assert_same(lambda x, w: F.conv2d(x, w), x.to(dtype), w.to(dtype), device=card, rtol=2e-2, atol=3e-2)


def test_what_is_not_finite_stays_where_it_is(card: torch.device) -> None:
    x, w = torch.randn(2, 9, 8, 8, requires_grad=True), torch.randn(9, 9, 3, 3, requires_grad=True)
    x.data[0, 3, 4, 4], x.data[1, 2, 0, 0] = float("nan"), float("inf")
    assert_same(lambda x, w: F.conv2d(x, w, padding=1), x, w, device=card, **CLOSE)
