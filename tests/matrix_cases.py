"""Products and convolutions of halves on a card with matrix instructions; tests/test_matrix.py runs them on stand-ins.

Numbers are small integers, whose sums are exact: a work-item that holds the wrong number shows in the result.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torch_fl.runtime.devices import devices

SIZES = [(1, 1, 1), (2, 16, 31), (15, 17, 32), (64, 64, 33), (65, 66, 17), (130, 70, 63), (31, 129, 64), (64, 128, 0)]


@pytest.fixture(params=[torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Each half that the card's instructions take."""
    matrix = devices()[0].backend.matrix
    assert matrix is not None
    if request.param not in matrix.dtypes:
        pytest.skip("the card multiplies these without matrix instructions")
    return request.param  # type: ignore[no-any-return]


def _whole(*shape: int) -> torch.Tensor:
    return torch.randint(-3, 4, shape).float()


def _orders(x: torch.Tensor) -> list[torch.Tensor]:
    """The same matrices by rows, by columns, with gaps, and where no four elements are aligned."""
    wide, shifted = torch.zeros(*x.shape[:-1], 2 * x.shape[-1]), torch.zeros(x.numel() + 1)
    wide[..., ::2], shifted[1:] = x, x.reshape(-1)
    return [x, x.mT.contiguous().mT, wide[..., ::2], shifted[1:].view(x.shape)]


def _there(x: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The same tensor in halves on the device, strides and offset kept."""
    base = x.as_strided((x.untyped_storage().nbytes() // 4,), (1,), 0)
    return base.to(dtype).to(device).as_strided(x.shape, x.stride(), x.storage_offset())


def _check(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got.cpu(), want.to(got.dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes_and_orders(size: tuple[int, int, int], dtype: torch.dtype, tile: torch.device) -> None:
    m, n, k = size
    a, x = _whole(m, k), _whole(k, n)
    for left in _orders(a):
        for right in _orders(x)[:2] if left is not a else _orders(x):
            _check(_there(left, dtype, tile) @ _there(right, dtype, tile), a @ x)


def test_what_is_added(dtype: torch.dtype, tile: torch.device) -> None:
    a, x = _whole(65, 40), _whole(40, 70)
    left, right = _there(a, dtype, tile), _there(x, dtype, tile)
    for c in (_whole(65, 70), _whole(70), _whole(65, 1), torch.full((65, 70), float("nan"))):
        for alpha, beta in ((1, 1), (0.5, -2), (2, 0)):
            want = alpha * (a @ x) + (beta * c if beta else 0)
            _check(torch.addmm(c.to(dtype).to(tile), left, right, alpha=alpha, beta=beta), want)
    bias = _whole(70)
    _check(F.linear(left, right.t().contiguous(), bias.to(dtype).to(tile)), a @ x + bias)


def test_batches_and_depth(dtype: torch.dtype, tile: torch.device) -> None:
    a, x, c = _whole(3, 66, 36), _whole(3, 36, 65), _whole(3, 66, 65)
    left, right = _there(a, dtype, tile), _there(x, dtype, tile)
    _check(torch.bmm(left, right), a @ x)
    _check(torch.bmm(left[:1].expand(3, -1, -1), right), a[:1] @ x)
    _check(torch.baddbmm(_there(c, dtype, tile), left, right), c + a @ x)
    _check(torch.addbmm(_there(c[0], dtype, tile), left, right), c[0] + (a @ x).sum(0))
    a, x = _whole(40, 700), _whole(700, 50)
    _check(_there(a, dtype, tile) @ _there(x, dtype, tile), a @ x)


def test_what_is_not_finite_stays_in_its_row_and_column(dtype: torch.dtype, card: torch.device) -> None:
    a, x = torch.randn(66, 20).to(dtype), torch.randn(20, 67).to(dtype)
    a[3, 4], a[7, 19], x[5, 6] = float("nan"), float("-inf"), float("inf")
    a[20], x[0, 20:30] = 2.0**-20, 2.0**-9  # denormal in float16
    want = (a.float() @ x.float()).to(dtype)
    close: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-7} if dtype == torch.float16 else {"rtol": 8e-3, "atol": 1e-6}
    torch.testing.assert_close((a.to(card) @ x.to(card)).cpu(), want, equal_nan=True, **close)


@pytest.mark.parametrize("window", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "groups": 2}], ids=str)
def test_convolution(window: dict[str, Any], dtype: torch.dtype, tile: torch.device) -> None:
    groups = window.get("groups", 1)
    for outer, inner in ((18, 6), (130, 4)):
        x, w = _whole(2, inner, 9, 11), _whole(outer, inner // groups, 3, 2)
        bias = _whole(outer)
        here = [t.to(dtype).to(tile).requires_grad_() for t in (x, w, bias)]
        want = F.conv2d(*(t.requires_grad_() for t in (x, w, bias)), **window)
        got = F.conv2d(*here, **window)
        _check(got.detach(), want)
        grad = _whole(*want.shape)
        grads = torch.autograd.grad(got, here, grad.to(dtype).to(tile))
        for found, expected in zip(grads, torch.autograd.grad(want, (x, w, bias), grad)):
            _check(found, expected)
