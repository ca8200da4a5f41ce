"""Products in tiles of local memory, as on a card: sizes around every edge of a tile, all orders of the operands."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_same

SIZES = [
    (1, 1, 1), (1, 300, 700), (3, 5, 7), (63, 64, 65), (64, 64, 16), (65, 66, 17), (130, 70, 33), (64, 128, 0),
    (37, 129, 15),
]  # fmt: skip


def _orders(a: torch.Tensor, x: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The same operands with rows or columns dense, and with neither."""
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1])
    wide[..., ::2] = x
    turned = [t.mT.contiguous().mT for t in (a, x)]
    return [(a, x), (turned[0], x), (a, turned[1]), (turned[0], turned[1]), (a, wide[..., ::2])]


@pytest.mark.parametrize("size", SIZES)
def test_sizes_and_orders(size: tuple[int, int, int], tile: torch.device) -> None:
    m, n, k = size
    for a, x in _orders(torch.randn(m, k), torch.randn(k, n)):
        assert_same(torch.mm, a, x, device=tile, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", [(65, 66, 17), (5, 130, 400), (1, 40, 200)])
def test_what_is_added(size: tuple[int, int, int], tile: torch.device) -> None:
    m, n, k = size
    a, x = torch.randn(m, k), torch.randn(k, n)
    for c in (torch.randn(m, n), torch.randn(n), torch.randn(m, 1), torch.full((m, n), float("nan"))):
        for alpha, beta in ((1, 1), (0.5, -2), (2, 0)):
            assert_same(
                torch.addmm,
                c,
                a,
                x,
                alpha=alpha,
                beta=beta,
                device=tile,
                rtol=1e-5,
                atol=1e-4,
            )
    linear = torch.nn.functional.linear
    assert_same(linear, a.requires_grad_(), x.t().contiguous(), torch.randn(n), device=tile, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8])
def test_dtypes(dtype: torch.dtype, card: torch.device) -> None:
    for m, n, k in ((65, 66, 19), (1, 70, 40)):
        a, x = (torch.randint(-3, 4, s).to(dtype) for s in ((m, k), (k, n)))
        assert_same(torch.mm, a, x, device=card)
        assert_same(torch.mm, a, x.t().contiguous().t(), device=card)


def test_batches(tile: torch.device) -> None:
    a, x = torch.randn(3, 70, 33), torch.randn(3, 33, 65)
    for left, right in (*_orders(a, x), (a[:1].expand(3, -1, -1), x), (a[..., 1:], x[:, 1:])):
        assert_same(torch.bmm, left, right, device=tile, rtol=1e-5, atol=1e-4)
    assert_same(torch.addbmm, torch.randn(70, 65), a, x, device=tile, rtol=1e-5, atol=1e-4)
    assert_same(torch.matmul, torch.randn(2, 3, 5, 8), torch.randn(3, 8, 70), device=tile, rtol=1e-5, atol=1e-4)


def test_a_deep_product_is_cut(tile: torch.device) -> None:
    a, x = torch.randn(40, 3000), torch.randn(3000, 50)
    assert_same(torch.mm, a, x, device=tile, rtol=1e-5, atol=3e-4)
    assert_same(torch.addmm, torch.randn(50), a, x, alpha=0.5, beta=2, device=tile, rtol=1e-5, atol=3e-4)


def test_nan_and_infinity_stay_in_their_rows_and_columns(card: torch.device) -> None:
    a, x = torch.randn(66, 20), torch.randn(20, 67)
    a[3, 4], x[5, 6] = float("nan"), float("inf")
    assert_same(torch.mm, a, x, device=card, rtol=1e-5, atol=1e-4)
