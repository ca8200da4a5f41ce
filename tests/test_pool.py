"""Pooling, upsampling and edge padding against the CPU, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same

Call = Callable[[torch.Tensor], Any]
X1, X2, X3 = (2, 3, 17), (2, 3, 9, 11), (2, 3, 5, 7, 6)


def unpool(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The pooled elements back in their places."""
    return F.max_unpool2d(x, index, (2, 2), output_size=(9, 11))


CALLS: dict[str, tuple[tuple[int, ...], Call]] = {
    "max_pool1d": (X1, lambda x: F.max_pool1d(x, 3, 2, 1)),
    "max_pool2d": (X2, lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max_pool2d overlap": (X2, lambda x: F.max_pool2d(x, (4, 3), 1, (2, 1))),
    "max_pool2d dilated": (X2, lambda x: F.max_pool2d(x, 2, 3, 1, dilation=(3, 2), ceil_mode=True)),
    "max_pool2d indices": (X2, lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)),
    "max_pool2d no batch": (X2[1:], lambda x: F.max_pool2d(x, 2)),
    "max_pool3d": (X3, lambda x: F.max_pool3d(x, 3, 2, 1, return_indices=True)),
    "avg_pool1d": (X1, lambda x: F.avg_pool1d(x, 3, 2, 1)),
    "avg_pool2d": (X2, lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "avg_pool2d not padding": (X2, lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)),
    "avg_pool2d ceil": (X2, lambda x: F.avg_pool2d(x, 4, 3, 2, ceil_mode=True)),
    "avg_pool2d divisor": (X2, lambda x: F.avg_pool2d(x, 2, 1, divisor_override=3)),
    "avg_pool3d": (X3, lambda x: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False)),
    "adaptive_avg_pool1d": (X1, lambda x: F.adaptive_avg_pool1d(x, 5)),
    "adaptive_avg_pool2d": (X2, lambda x: F.adaptive_avg_pool2d(x, (4, 13))),
    "adaptive_avg_pool3d": (X3, lambda x: F.adaptive_avg_pool3d(x, (2, 3, 5))),
    "adaptive_max_pool1d": (X1, lambda x: F.adaptive_max_pool1d(x, 5)),
    "adaptive_max_pool2d": (X2, lambda x: F.adaptive_max_pool2d(x, (4, 13), return_indices=True)),
    "adaptive_max_pool3d": (X3, lambda x: F.adaptive_max_pool3d(x, (2, 3, 5))),
    "max_unpool2d": (X2, lambda x: unpool(*F.max_pool2d(x, 2, return_indices=True))),
    "nearest 1d": (X1, lambda x: F.interpolate(x, 31)),
    "nearest 2d": (X2, lambda x: F.interpolate(x, scale_factor=(2, 0.6))),
    "nearest 3d": (X3, lambda x: F.interpolate(x, (10, 3, 7))),
    "exact 1d": (X1, lambda x: F.interpolate(x, 31, mode="nearest-exact")),
    "exact 2d": (X2, lambda x: F.interpolate(x, (4, 30), mode="nearest-exact")),
    "exact 3d": (X3, lambda x: F.interpolate(x, (10, 3, 7), mode="nearest-exact")),
    "linear": (X1, lambda x: F.interpolate(x, 31, mode="linear")),
    "linear aligned": (X1, lambda x: F.interpolate(x, 31, mode="linear", align_corners=True)),
    "bilinear": (X2, lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear")),
    "bilinear aligned": (X2, lambda x: F.interpolate(x, (1, 20), mode="bilinear", align_corners=True)),
    "bilinear down": (X2, lambda x: F.interpolate(x, (4, 11), mode="bilinear")),
    "trilinear": (X3, lambda x: F.interpolate(x, (10, 3, 7), mode="trilinear")),
    "bicubic": (X2, lambda x: F.interpolate(x, (15, 6), mode="bicubic")),
    "bicubic aligned": (X2, lambda x: F.interpolate(x, (15, 6), mode="bicubic", align_corners=True)),
    "reflect 1d": (X1, lambda x: F.pad(x, (3, 5), mode="reflect")),
    "reflect 2d": (X2, lambda x: F.pad(x, (3, 0, 1, 4), mode="reflect")),
    "reflect 3d": (X3, lambda x: F.pad(x, (1, 2, 3, 0, 2, 1), mode="reflect")),
    "replicate 1d": (X1, lambda x: F.pad(x, (3, -2), mode="replicate")),
    "replicate 2d": (X2, lambda x: F.pad(x, (13, 0, 1, 4), mode="replicate")),
    "replicate 3d": (X3, lambda x: F.pad(x, (1, 2, 3, 0, 2, 1), mode="replicate")),
    "pixel_shuffle": ((2, 12, 3, 5), lambda x: F.pixel_shuffle(x, 2)),
}


@pytest.mark.parametrize("name", CALLS)
def test_float32(device: torch.device, name: str) -> None:
    shape, call = CALLS[name]
    assert_same(call, torch.randn(shape).requires_grad_(), device=device, rtol=1e-5, atol=1e-5)


HALF = ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "bilinear", "bicubic", "reflect 2d", "nearest 2d")


@pytest.mark.parametrize("name", HALF)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves(device: torch.device, name: str, dtype: torch.dtype) -> None:
    shape, call = CALLS[name]
    assert_same(call, torch.randn(shape, dtype=dtype).requires_grad_(), device=device, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "bilinear", "bicubic", "linear"])
def test_float64(device: torch.device, name: str) -> None:
    shape, call = CALLS[name]
    assert_same(call, torch.randn(shape, dtype=torch.float64).requires_grad_(), device=device)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d", "adaptive_max_pool2d", "bilinear", "nearest 2d"])
def test_channels_last(device: torch.device, name: str) -> None:
    shape, call = CALLS[name]
    x = torch.randn(shape).to(memory_format=torch.channels_last).requires_grad_()
    assert_same(call, x, device=device, rtol=1e-5, atol=1e-5)


def test_max_pool_ties_nan_and_infinity(device: torch.device) -> None:
    x = torch.tensor([[[1.0, 1.0, float("nan"), 2.0, -0.0, 0.0, float("-inf"), float("-inf"), 3.0]]])
    for width in (1, 2, 3):
        assert_same(lambda x, w=width: F.max_pool1d(x, w, 1, return_indices=True), x, device=device)
    assert_same(lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), x, device=device)


@pytest.mark.parametrize("name", ["max_pool1d", "max_pool2d", "adaptive_avg_pool2d", "avg_pool1d", "bilinear"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(device: torch.device, name: str, mode: Any) -> None:
    shape, call = CALLS[name]

    def run(x: torch.Tensor) -> Any:
        with mode():
            return call(x).clone()

    assert_same(run, torch.randn(shape), device=device, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d", "bilinear", "reflect 2d"])
def test_empty_batch(device: torch.device, name: str) -> None:
    _, call = CALLS[name]
    assert_same(call, torch.randn(0, 3, 9, 11, requires_grad=True), device=device)


def test_integers_move(device: torch.device) -> None:
    x = torch.randint(0, 255, (1, 2, 5, 6), dtype=torch.uint8)
    assert_same(lambda x: F.interpolate(x, scale_factor=2), x, device=device)
    assert_same(lambda x: F.max_pool2d(x, 2), x.long(), device=device)
    assert_same(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), x.long(), device=device)
