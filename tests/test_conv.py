"""Convolution, its gradients, unfold and fold against the CPU: ranks, strides, groups, layouts, modes, tile edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A random leaf whose gradient is checked."""
    return torch.randn(*shape, dtype=dtype).requires_grad_()


CONV: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain": ((3, 6, 7, 9), (8, 6, 3, 3), {}),
    "padding": ((2, 5, 8, 8), (9, 5, 3, 3), {"padding": 1}),
    "padding past the kernel": ((2, 3, 8, 8), (4, 3, 3, 3), {"padding": 4}),
    "stride": ((3, 3, 17, 14), (8, 3, 7, 7), {"stride": 2, "padding": 3}),
    "stride past the kernel": ((3, 6, 37), (8, 6, 3), {"stride": 5, "padding": 2}),
    "stride and dilation": ((3, 6, 17, 13), (8, 6, 5, 5), {"stride": 3, "padding": 7, "dilation": 2}),
    "common factor": ((2, 2, 30, 31), (3, 2, 3, 3), {"stride": (4, 6), "padding": 1, "dilation": (6, 4)}),
    "pointwise": ((3, 6, 7, 9), (8, 6, 1, 1), {}),
    "pointwise stride": ((3, 6, 7, 9), (8, 6, 1, 1), {"stride": 2}),
    "pointwise padding": ((3, 6, 7, 9), (8, 6, 1, 1), {"stride": 2, "padding": 1}),
    "groups": ((3, 6, 9, 8), (9, 2, 3, 3), {"groups": 3, "stride": 2, "padding": 1}),
    "depthwise": ((3, 6, 19, 18), (6, 1, 5, 5), {"groups": 6, "stride": 2, "padding": 2}),
    "depthwise multiplier": ((3, 6, 9, 8), (18, 1, 3, 3), {"groups": 6, "padding": 1}),
    "one dimension": ((3, 6, 33), (4, 6, 5), {"padding": 2}),
    "three dimensions": ((2, 3, 5, 6, 7), (4, 3, 3, 2, 3), {"padding": 1, "stride": (1, 2, 2)}),
    "no batch": ((6, 12, 13), (4, 6, 3, 3), {}),
    "empty batch": ((0, 6, 12, 13), (4, 6, 3, 3), {}),
}


@pytest.mark.parametrize("name", CONV)
def test_convolution(device: torch.device, name: str) -> None:
    x, w, options = CONV[name]
    conv = (F.conv1d, F.conv2d, F.conv3d)[len(w) - 3]
    assert_same(lambda x, w, b: conv(x, w, b, **options), leaf(*x), leaf(*w), leaf(w[0]), device=device, **TOLERANCE)


TRANSPOSED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain": ((3, 6, 5, 4), (6, 4, 3, 3), {}),
    "stride": ((3, 6, 5, 4), (6, 4, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
    "stride past the kernel": ((3, 6, 5, 4), (6, 4, 2, 2), {"stride": 3}),
    "dilation": ((3, 6, 5, 4), (6, 4, 3, 3), {"stride": 2, "padding": 1, "dilation": 2}),
    "padding past the kernel": ((3, 6, 12, 13), (6, 4, 3, 3), {"padding": 4}),
    "one dimension": ((3, 6, 9), (6, 4, 4), {"stride": 2}),
    "three dimensions": ((2, 3, 4, 5, 3), (3, 2, 3, 3, 3), {"stride": 2, "padding": 1}),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed(device: torch.device, name: str) -> None:
    x, w, options = TRANSPOSED[name]
    conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(w) - 3]
    bias = leaf(w[1] * options.get("groups", 1))
    assert_same(lambda x, w, b: conv(x, w, b, **options), leaf(*x), leaf(*w), bias, device=device, **TOLERANCE)


def test_tile_edges(device: torch.device) -> None:
    for width in (1, 15, 16, 17, 31, 32, 33, 65):
        for out, inner in ((1, 3), (7, 1), (9, 2)):
            for k, pad in ((1, 0), (3, 1)):
                args = leaf(2, inner, 1, width), leaf(out, inner, 1, k)
                assert_same(lambda x, w, p=pad: F.conv2d(x, w, padding=(0, p)), *args, device=device, **TOLERANCE)


LARGER: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "several passes, lines of 7": ((3, 40, 7, 7), (70, 40, 3, 3), {"padding": 1}),
    "several passes, a short one": ((1, 29, 9, 33), (18, 29, 3, 3), {"padding": 1}),
    "many channels, planes of 4": ((5, 65, 4, 4), (133, 65, 3, 3), {"padding": 1}),
    "stride": ((2, 33, 15, 14), (40, 33, 3, 3), {"stride": 2, "padding": 1}),
    "stem": ((2, 3, 45, 46), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
    "pointwise up": ((2, 17, 9, 11), (67, 17, 1, 1), {}),
    "pointwise down": ((2, 300, 6, 11), (35, 300, 1, 1), {}),
    "pointwise stride": ((2, 40, 9, 11), (24, 40, 1, 1), {"stride": 2}),
    "no padding": ((2, 20, 9, 40), (24, 20, 3, 5), {}),
    "groups": ((2, 40, 9, 17), (50, 20, 3, 3), {"groups": 2, "padding": 1}),
    "one dimension": ((3, 20, 700), (33, 20, 5), {"padding": 2}),
    "three dimensions": ((2, 6, 4, 5, 18), (20, 6, 3, 3, 3), {"padding": 1, "stride": (1, 2, 1)}),
    "depthwise": ((2, 5, 40, 250), (5, 1, 3, 3), {"groups": 5, "padding": 1}),
    "depthwise stride": ((2, 5, 70, 131), (5, 1, 5, 3), {"groups": 5, "padding": 2, "stride": 2, "dilation": (1, 2)}),
    "depthwise line too long": ((1, 2, 4, 9000), (2, 1, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise one dimension": ((2, 5, 100), (5, 1, 7), {"groups": 5, "padding": 3}),
}


@pytest.mark.parametrize("name", LARGER)
def test_larger_than_a_tile(device: torch.device, name: str) -> None:
    x, w, options = LARGER[name]
    conv = (F.conv1d, F.conv2d, F.conv3d)[len(w) - 3]
    args = leaf(*x), leaf(*w), leaf(w[0])
    assert_same(lambda x, w, b: conv(x, w, b, **options), *args, device=device, rtol=1e-4, atol=1e-3)


def test_larger_views_and_halves(device: torch.device) -> None:
    conv = lambda x, w: F.conv2d(x, w, padding=1)  # noqa: E731
    last = leaf(2, 20, 9, 18).detach().to(memory_format=torch.channels_last).requires_grad_()
    assert_same(conv, last, leaf(33, 20, 3, 3), device=device, rtol=1e-4, atol=1e-3)
    assert_same(lambda x, w: F.conv2d(x[:, ::2, :, ::2], w), leaf(2, 40, 9, 18), leaf(33, 20, 1, 1), device=device,
                **TOLERANCE)  # fmt: skip
    for dtype in (torch.float16, torch.bfloat16):
        x, w = (torch.randint(-2, 3, s).to(dtype).requires_grad_() for s in ((2, 20, 9, 18), (33, 20, 3, 3)))
        assert_same(conv, x, w, device=device, rtol=1e-2, atol=1e-2)
        assert_same(lambda x, w: F.conv2d(x, w, groups=20), x, w[:20, :1], device=device, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64], ids=str)
def test_dtypes(device: torch.device, dtype: torch.dtype) -> None:
    x, w = (torch.randint(-3, 4, s).to(dtype) for s in ((2, 3, 8, 9), (4, 3, 3, 3)))
    if dtype.is_floating_point:
        x.requires_grad_()
        w.requires_grad_()
    assert_same(lambda x, w: F.conv2d(x, w, padding=1), x, w, device=device, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("which", ["input", "weight", "both"])
@pytest.mark.parametrize("kernel", [1, 3])
def test_channels_last(device: torch.device, which: str, kernel: int) -> None:
    x, w = torch.randn(2, 6, 7, 9), torch.randn(8, 6, kernel, kernel)
    if which != "weight":
        x = x.to(memory_format=torch.channels_last)
    if which != "input":
        w = w.to(memory_format=torch.channels_last)
    args = x.requires_grad_(), w.requires_grad_(), leaf(8)
    assert_same(lambda x, w, b: F.conv2d(x, w, b, padding=1), *args, device=device, **TOLERANCE)


def test_views_and_broadcasts(device: torch.device) -> None:
    assert_same(
        lambda x, w: F.conv2d(x[:, ::2, 1::2, ::3], w[:, 1:4]), leaf(2, 6, 14, 23), leaf(4, 5, 3, 3), device=device,
        **TOLERANCE,
    )  # fmt: skip
    assert_same(
        lambda x, w: F.conv2d(x.expand(2, 6, 12, 13), w),
        leaf(1, 6, 1, 13),
        leaf(4, 6, 3, 3),
        device=device,
        **TOLERANCE,
    )


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate"])
@pytest.mark.parametrize("padding", [1, "same"])
def test_module_padding(device: torch.device, mode: Any, padding: Any) -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> Any:
        conv = torch.nn.Conv2d(3, 4, 3, padding=padding, padding_mode=mode, bias=False)
        return torch.func.functional_call(conv, {"weight": w}, (x,))

    assert_same(run, leaf(2, 3, 6, 7), leaf(4, 3, 3, 3), device=device, **TOLERANCE)


def test_double_backward(device: torch.device) -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = F.conv2d(x, w, stride=2, padding=1)
        (g,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
        return torch.autograd.grad((g * g).sum(), [x, w])

    assert_same(run, leaf(2, 3, 9, 8), leaf(4, 3, 3, 3), device=device, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(device: torch.device, mode: Any) -> None:
    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        with mode():
            return F.conv2d(x, w, b, padding="same").clone(), F.conv_transpose2d(x, w, b).clone()

    assert_same(run, torch.randn(2, 4, 9, 8), torch.randn(4, 4, 3, 3), torch.randn(4), device=device, **TOLERANCE)


def test_wrong_channels_are_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="channel"):
        F.conv2d(torch.ones(1, 3, 8, 8, device=device), torch.ones(4, 2, 3, 3, device=device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_unfold_and_fold(device: torch.device, dtype: torch.dtype) -> None:
    options: Any = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": 1, "stride": (2, 1)}
    x = torch.randint(-4, 5, (2, 3, 9, 8)).to(dtype)
    assert_same(lambda x: F.unfold(x, **options), x.clone().requires_grad_(), device=device)
    columns = F.unfold(x.float(), **options).to(dtype)
    assert_same(lambda c: F.fold(c, (9, 8), **options), columns.requires_grad_(), device=device)


def test_unfold_of_one_image_and_a_view(device: torch.device) -> None:
    x = torch.randn(3, 9, 8).requires_grad_()
    assert_same(lambda x: F.unfold(x, 3, stride=2), x, device=device)
    assert_same(lambda x: F.unfold(x.transpose(1, 2)[None].expand(2, 3, 8, 9), 2, padding=2), x, device=device)
    columns = torch.randn(8, 20).requires_grad_()
    assert_same(lambda c: F.fold(c, (5, 6), 2), columns, device=device)


def test_infinity_at_the_edge_stays_in_its_products(device: torch.device) -> None:
    """The gradient of the weight sums products of outputs only: an infinity elsewhere in the frame gives no NaN."""
    for size, window, options in (((2, 4, 7), (4, 2, 3), {"groups": 2}), ((1, 2, 4, 4, 4), (3, 2, 2, 2, 2), {})):
        images, weight = torch.randn(size), torch.randn(window)
        images.view(-1)[7] = float("inf")
        conv = torch.conv1d if len(size) == 3 else torch.conv3d
        found = []
        for where in ("cpu", device):
            w = weight.to(where).requires_grad_()
            y = conv(images.to(where), w, **options)
            seed = torch.linspace(-1, 1, y.numel()).view(y.shape).to(where)
            found.append(torch.autograd.grad(y, w, seed)[0].cpu())
        torch.testing.assert_close(found[1], found[0], equal_nan=True)
