"""torch.hash_tensor against the CPU."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_same

DTYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dimensions(device: torch.device, dtype: torch.dtype) -> None:
    x = (torch.randn(3, 4, 5) * 9).to(dtype)
    assert_same(torch.hash_tensor, x, device=device)
    assert_same(lambda x: torch.hash_tensor(x, dim=1, keepdim=True), x, device=device)
    assert_same(lambda x: torch.hash_tensor(x, dim=(0, 2)), x.permute(2, 1, 0), device=device)
