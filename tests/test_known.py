"""Results that are known without a meta kernel: the second shape of a call is laid out and typed as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda x, y: x + y,
    "number": lambda x, y: x * 2.5,
    "integer": lambda x, y: x + 1,
    "comparison": lambda x, y: x < y,
    "quotient": lambda x, y: x / y,
    "unary": lambda x, y: x.abs().to(torch.float32).exp(),
    "rounded": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "clamp": lambda x, y: x.clamp(min=1),
    "where": lambda x, y: torch.where(x > y, x, y),
}
SHAPES = [(3,), (7,), (2, 3), (5, 1), (2, 1, 3, 3), (4, 1, 1, 1), (4, 3, 1, 1), (1, 6, 1, 8), (0, 3), ()]


def _same_layout(got: torch.Tensor, want: torch.Tensor) -> None:
    assert (got.shape, got.dtype, got.stride()) == (want.shape, want.dtype, want.stride())
    torch.testing.assert_close(got.cpu(), want, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_elementwise(name: str, dtype: torch.dtype, device: torch.device) -> None:
    for shape in SHAPES:
        x, y = (torch.randint(1, 9, shape).to(dtype) for _ in range(2))
        _same_layout(CALLS[name](x.to(device), y.to(device)), CALLS[name](x, y))
    x = torch.randint(1, 9, (2, 3, 4, 5)).to(dtype).to(memory_format=torch.channels_last)
    _same_layout(CALLS[name](x.to(device), x.to(device)), CALLS[name](x, x))


def test_a_wrong_call_stays_wrong(device: torch.device) -> None:
    for n in (3, 4, 5):
        with pytest.raises(RuntimeError, match="alpha"):
            torch.add(torch.ones(n, dtype=torch.int64, device=device), 1, alpha=0.5)


def _cat_cases() -> list[tuple[list[torch.Tensor], int]]:
    x = torch.randn(2, 3, 4, 5)
    last, turned = x.to(memory_format=torch.channels_last), torch.randn(2, 5, 4, 3).transpose(1, 3)
    heads = torch.randn(1, 1, 18).split(6, 2)[1].view(1, 1, 2, 3).transpose(1, 2)
    return [
        ([x, x], 1), ([x, last], -1), ([last, last], 1), ([turned, x], 3), ([turned, turned], 0),
        ([torch.randn(1, 2, 7, 3), heads], 2), ([torch.zeros(0), torch.randn(3)], 0),
        ([torch.randn(0, 2), torch.randn(3, 2)], 0), ([torch.ones(2, dtype=torch.int32), torch.ones(3)], 0),
    ]  # fmt: skip


@pytest.mark.parametrize("case", range(len(_cat_cases())))
def test_cat(case: int, device: torch.device) -> None:
    tensors, dim = _cat_cases()[case]
    _same_layout(torch.cat([t.to(device) for t in tensors], dim), torch.cat(tensors, dim))


@pytest.mark.parametrize("shapes", [[(2, 3), (3, 3)], [(2, 3), (2,)]], ids=str)
def test_cat_of_what_does_not_fit(shapes: Any, device: torch.device) -> None:
    tensors = [torch.ones(s) for s in shapes]
    with pytest.raises(RuntimeError) as want:
        torch.cat(tensors, 1)
    with pytest.raises(RuntimeError) as got:
        torch.cat([t.to(device) for t in tensors], 1)
    assert str(got.value) == str(want.value)
