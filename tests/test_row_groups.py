"""Rows shared by a group of work-items, as on a card: lengths around every shape of native/row_groups.h."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same

LENGTHS = (1, 8, 9, 16, 64, 65, 300, 512, 513, 1024, 1025, 4096, 4097)
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("rows", [1, 5, 17])
def test_softmax(n: int, rows: int, card: torch.device) -> None:
    x = torch.randn(rows, n, requires_grad=True)
    assert_same(lambda x: (x.softmax(1), x.log_softmax(1)), x, device=card)


@pytest.mark.parametrize("n", [9, 64, 513, 4097])
def test_infinities_and_nan(n: int, card: torch.device) -> None:
    x = torch.randn(6, n)
    x[0], x[1, ::2], x[2, n // 2], x[3, 1], x[4, -1] = -INF, -INF, INF, NAN, -INF
    x[5, 0] = x[5, 4] = INF
    assert_same(lambda x: (x.softmax(1), x.log_softmax(1), x.amax(1), x.argmin(1), x.sum(1)), x, device=card)


@pytest.mark.parametrize("n", LENGTHS)
def test_norms(n: int, card: torch.device) -> None:
    w, b = torch.randn(n, requires_grad=True), torch.randn(n, requires_grad=True)
    for rows in (1, 5, 40):
        x = torch.randn(rows, n, requires_grad=True)
        assert_same(lambda x, w, b: F.layer_norm(x, (n,), w, b), x, w, b, device=card, rtol=2e-5, atol=5e-5)
        assert_same(lambda x, w: F.rms_norm(x, (n,), w), x, w, device=card, rtol=2e-5, atol=5e-5)
    assert_same(lambda x: F.layer_norm(x, (n,)), x, device=card, rtol=2e-5, atol=5e-5)


def _reduce(x: torch.Tensor) -> list[torch.Tensor]:
    found = [x.sum(-1), x.mean(-1), x.amax(-1), x.argmax(-1), x.var(-1, correction=0), x.prod(-1), x.logsumexp(-1)]
    return [*found, x.sum(), x.argmin(), x.norm(), (x > 0).any(-1), x.std(correction=0)]


@pytest.mark.parametrize("n", [*LENGTHS, 20000])
@pytest.mark.parametrize("rows", [1, 5])
def test_reductions(n: int, rows: int, card: torch.device) -> None:
    assert_same(_reduce, torch.rand(rows, n) + 0.1, device=card, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [9, 70, 600])
def test_layouts_and_dtypes(n: int, card: torch.device) -> None:
    x = torch.rand(n, 6, 4).transpose(0, 1)
    assert_same(lambda x: [x.softmax(1), x.sum((1, 2)), x.sum(1), x.sum((0, 2)), x.amax((0, 2))], x, device=card)
    x = torch.rand(3, 2 * n, 5)[:, ::2]
    assert_same(lambda x: [x.softmax(1), x.log_softmax(2), x.sum((1, 2)), x.mean((0, 1))], x, device=card)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x = torch.randn(5, n).to(dtype).requires_grad_()
        near = {} if dtype == torch.float64 else {"rtol": 2e-2, "atol": 2e-2}
        assert_same(lambda x: x.softmax(1), x, device=card, **near)
        assert_same(lambda x: F.rms_norm(x, (n,)), x, device=card, **near)
        assert_same(lambda x: x.log_softmax(1), x.detach(), device=card, **near)
    x = torch.randint(-5, 5, (4, n))
    assert_same(lambda x: [x.sum(1), x.argmax(1), x.prod(1), x.amin(1), x.bool().all(1), x.sum()], x, device=card)


def test_long_sums_are_exact(card: torch.device) -> None:
    """Two levels of partial sums: as near to the true sum as pairwise summation is."""
    x = torch.rand(1, 3_000_000) + 1
    got = x.to(card).sum(1).cpu()
    torch.testing.assert_close(got.double(), x.double().sum(1), rtol=3e-7, atol=0)
