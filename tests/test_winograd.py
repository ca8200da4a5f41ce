"""Convolution by windows of 3x3 with many channels: as exact as the CPU's, edges of tiles, what is not finite."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same

SHAPES = {
    "whole tiles": ((12, 64, 8, 8), (64, 64, 3, 3), {"padding": 1}),
    "lines of one tile": ((90, 33, 4, 2), (70, 33, 3, 3), {"padding": 1}),
    "odd lines, no padding": ((3, 40, 9, 37), (133, 40, 3, 3), {}),
    "odd planes, uneven padding": ((4, 65, 13, 14), (37, 65, 3, 3), {"padding": (2, 0)}),
    "groups": ((4, 96, 11, 17), (96, 32, 3, 3), {"groups": 3, "padding": 1}),
}


def leaf(*shape: int) -> torch.Tensor:
    """A random leaf whose gradient is checked."""
    return torch.randn(*shape).requires_grad_()


@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients(device: torch.device, name: str) -> None:
    x, w, options = SHAPES[name]
    conv = lambda x, w, b: F.conv2d(x, w, b, **options)  # noqa: E731
    assert_same(conv, leaf(*x), leaf(*w), torch.randn(w[0]), device=device, rtol=1e-4, atol=1e-3)


def test_layouts_and_halves(device: torch.device) -> None:
    conv = lambda x, w: F.conv2d(x, w, padding=1)  # noqa: E731
    last = leaf(4, 40, 9, 18).detach().to(memory_format=torch.channels_last).requires_grad_()
    assert_same(conv, last, leaf(33, 40, 3, 3), device=device, rtol=1e-4, atol=1e-3)
    assert_same(lambda x, w: conv(x[..., ::2], w), leaf(4, 40, 9, 35), leaf(33, 40, 3, 3), device=device, rtol=1e-4,
                atol=1e-3)  # fmt: skip
    x, w = (torch.randint(-2, 3, s).to(torch.bfloat16).requires_grad_() for s in ((4, 40, 9, 18), (33, 40, 3, 3)))
    assert_same(conv, x, w, device=device, rtol=1e-2, atol=1e-2)


def test_as_near_to_the_result_as_the_cpu(device: torch.device) -> None:
    x, w = torch.randn(8, 128, 14, 14), torch.randn(128, 128, 3, 3)
    exact = F.conv2d(x.double(), w.double(), padding=1)
    here = F.conv2d(x.to(device), w.to(device), padding=1).cpu()
    there = F.conv2d(x, w, padding=1)
    errors = [(found.double() - exact).square().mean().sqrt() for found in (here, there)]
    assert errors[0] < 1.5 * errors[1]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 3e38])
def test_what_is_not_finite_stays_in_its_own_outputs(device: torch.device, value: float) -> None:
    """Huge numbers too: their sum overflows in a transform, and nowhere in the convolution."""
    for at in ((1, 5, 3, 4), (7, 0, 0, 0)):
        x, w, bias = torch.randn(8, 64, 8, 9), torch.randn(48, 64, 3, 3), torch.randn(48)
        x[at] = value
        x[at[0], at[1], at[2], at[3] + 1] = value
        w.mul_(0.1)
        there = F.conv2d(x, w, bias, padding=1)
        here = F.conv2d(x.to(device), w.to(device), bias.to(device), padding=1).cpu()
        torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-4, equal_nan=True)
