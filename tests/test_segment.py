"""torch.segment_reduce against the CPU, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import assert_same


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_runs(device: torch.device, reduce: Any) -> None:
    x = torch.randn(6, 40, requires_grad=True)
    lengths, offsets = torch.tensor([2, 0, 3, 1]), torch.tensor([0, 1, 1, 6], dtype=torch.int32)
    for initial in (None, 1.5):
        options: Any = {"axis": 0, "initial": initial}
        call: Any = lambda x, n, o=options: torch.segment_reduce(x, reduce, lengths=n, **o)  # noqa: E731
        assert_same(call, x, lengths, device=device)
        call = lambda x, n, o=options: torch.segment_reduce(x, reduce, offsets=n, **o)  # noqa: E731
        assert_same(call, x, offsets, device=device)


@pytest.mark.parametrize("reduce", ["mean", "max", "prod"])
def test_rows_have_runs_of_their_own(device: torch.device, reduce: Any) -> None:
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    x[0, 1] = 0
    lengths = torch.tensor([[1, 4], [5, 0]])
    call: Any = lambda x, n: torch.segment_reduce(x, reduce, lengths=n, axis=1)  # noqa: E731
    assert_same(call, x.requires_grad_(), lengths, device=device)


def test_lengths_that_do_not_fit(device: torch.device) -> None:
    x = torch.randn(4, device=device)
    with pytest.raises(RuntimeError, match="Expected all rows of lengths"):
        torch.segment_reduce(x, "sum", lengths=torch.tensor([1, 2], device=device))
    with pytest.raises(RuntimeError, match="negative"):
        torch.segment_reduce(x, "sum", lengths=torch.tensor([5, -1], device=device))
