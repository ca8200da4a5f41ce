"""F.interpolate with antialiasing against the CPU, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_sizes(device: torch.device, mode: Any) -> None:
    x = torch.randn(2, 3, 13, 9, requires_grad=True)
    for size in ((5, 4), (26, 3), (13, 20), (1, 1)):
        for align in (False, True):
            options: Any = {"size": size, "mode": mode, "align_corners": align, "antialias": True}
            assert_same(lambda x, o=options: F.interpolate(x, **o), x, device=device, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_scales_and_layouts(device: torch.device, mode: Any) -> None:
    x = torch.randn(2, 3, 8, 9, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    options: Any = {"scale_factor": (0.4, 0.7), "mode": mode, "antialias": True}
    assert_same(lambda x: F.interpolate(x, **options), x, device=device)
