"""Copies that transpose through local memory, as on a card."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_same


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.int64, torch.complex64])
@pytest.mark.parametrize("shape", [(16, 16), (31, 65), (33, 100), (3, 40, 50), (2, 3, 32, 64)])
def test_sizes_around_a_tile(shape: tuple[int, ...], dtype: torch.dtype, card: torch.device) -> None:
    x = torch.randint(0, 100, shape).to(dtype)
    assert_same(
        lambda x: [x.mT.contiguous(), x.transpose(0, -1).contiguous(), x.mT.to(torch.complex128)], x, device=card
    )
    if not dtype.is_complex:
        assert_same(lambda x: [x.mT.contiguous().float(), x.float().mT.half().contiguous()], x, device=card)


def test_into_a_view(card: torch.device) -> None:
    x, y = torch.randn(50, 70), torch.zeros(80, 60)
    there = y.to(card)
    for to, source in ((y, x), (there, x.to(card))):
        to[3:73, 2:52].copy_(source.t())
    torch.testing.assert_close(there.cpu(), y)
