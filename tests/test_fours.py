"""Pointwise kernels as on a card, four elements at a time: lengths, alignments, broadcasts and destinations."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_same

LENGTHS = (1, 3, 4, 5, 8, 1023)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_lengths_and_dtypes(n: int, dtype: torch.dtype, card: torch.device) -> None:
    x, y = (torch.randint(0, 5, (n,)).to(dtype) for _ in range(2))
    assert_same(lambda x, y: [x + y, x.double() if dtype == torch.int64 else x.float(), x == y], x, y, device=card)
    assert_same(lambda x, y: torch.where(x > y, x, y), x, y, device=card)


@pytest.mark.parametrize("start", [0, 1, 2, 4])
def test_unaligned_views(start: int, card: torch.device) -> None:
    x = torch.randn(300)
    assert_same(lambda x: x[start:] * x[: 300 - start], x, device=card)
    here, there = x.clone(), x.to(card)
    for t in (here, there):
        t[start : start + 130].mul_(2).add_(t[start + 131 : start + 261])
    torch.testing.assert_close(there.cpu(), here)


@pytest.mark.parametrize("shape", [(5, 8), (3, 2, 12), (4, 7), (2, 16)])
def test_broadcasts(shape: tuple[int, ...], card: torch.device) -> None:
    x, row, column = torch.randn(shape), torch.randn(shape[-1]), torch.randn(*shape[:-1], 1)
    assert_same(
        lambda x, r, c: [x + r, x * c, (x + r).mul_(c), r - x, c / x, torch.addcmul(x, r, c)],
        x,
        row,
        column,
        device=card,
    )
    assert_same(lambda x: [x.mT + 1, torch.nn.functional.gelu(x), x[..., ::2] * 2], x, device=card)


def test_division_by_zero_is_not_made_up_past_the_end(card: torch.device) -> None:
    x, y = torch.arange(1, 8), torch.arange(1, 8)
    assert_same(lambda x, y: [x // y, x % y], x, y, device=card)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        (x.to(card) // (y - 7).to(card)).cpu()


def test_many_results(card: torch.device) -> None:
    p, g = torch.randn(37), torch.randn(37)
    here, there = p.clone().requires_grad_(), p.to(card).requires_grad_()
    for t in (here, there):
        t.grad = g.to(t.device)
        optimizer = torch.optim.AdamW([t], lr=0.1, fused=True)
        optimizer.step(), optimizer.step()
    torch.testing.assert_close(there.detach().cpu(), here.detach())
