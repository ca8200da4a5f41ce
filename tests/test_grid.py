"""F.grid_sample against the CPU, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_images(device: torch.device, mode: Any, padding: Any) -> None:
    x = torch.randn(2, 3, 5, 6).requires_grad_()
    grid = (torch.randn(2, 4, 7, 2) * 1.5).requires_grad_()
    for align in (False, True):
        options: Any = {"mode": mode, "padding_mode": padding, "align_corners": align}
        assert_same(lambda x, g, o=options: F.grid_sample(x, g, **o), x, grid, device=device, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes(device: torch.device, mode: Any) -> None:
    x = torch.randn(2, 3, 4, 5, 6, requires_grad=True)
    grid = (torch.randn(2, 3, 2, 4, 3) * 1.2).requires_grad_()
    options: Any = {"mode": mode, "padding_mode": "border", "align_corners": False}
    assert_same(lambda x, g: F.grid_sample(x, g, **options), x, grid, device=device, rtol=1e-4, atol=1e-4)


def test_affine_grid_and_fixed_image(device: torch.device) -> None:
    x = torch.randn(1, 2, 6, 5)
    theta = torch.tensor([[[0.913, 0.217, 0.131], [-0.119, 1.073, 0.311]]], requires_grad=True)

    def run(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, F.affine_grid(theta, [1, 2, 4, 4], align_corners=False), align_corners=False)

    assert_same(run, x, theta, device=device, rtol=1e-4, atol=1e-4)
