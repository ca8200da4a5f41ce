"""Fractional max pooling against the CPU with the same random numbers, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same


@pytest.mark.parametrize("rank", [2, 3])
def test_pooling(device: torch.device, rank: int) -> None:
    pool: Any = {2: F.fractional_max_pool2d_with_indices, 3: F.fractional_max_pool3d_with_indices}[rank]
    sizes, outs = {2: ((9, 7), (4, 3)), 3: ((6, 7, 5), (3, 2, 3))}[rank]
    for dtype, window in ((torch.float32, 2), (torch.float64, (3, 2, 1)[:rank])):
        x = torch.randn(2, 3, *sizes, dtype=dtype, requires_grad=True)
        draws = torch.rand(2, 3, rank, dtype=dtype)
        call: Any = lambda x, r, k=window: pool(x, k, output_size=outs, _random_samples=r)  # noqa: E731
        assert_same(call, x, draws, device=device)
        assert_same(call, x[0].detach(), draws[:1], device=device)


def test_nan_is_the_largest(device: torch.device) -> None:
    x = torch.randn(1, 1, 6, 6)
    x[0, 0, 2, 3] = float("nan")
    draws = torch.rand(1, 1, 2)
    assert_same(lambda x, r: F.fractional_max_pool2d(x, 3, output_size=2, _random_samples=r), x, draws, device=device)
