"""F.ctc_loss against the CPU, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same


def _log_probs(time: int, batch: int, classes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(time, batch, classes, dtype=dtype).log_softmax(2).requires_grad_()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_rows_of_targets(device: torch.device, reduction: Any) -> None:
    x = _log_probs(12, 3, 5)
    targets = torch.tensor([[1, 1, 2, 4], [3, 3, 3, 1], [2, 4, 1, 2]])
    inputs, labels = torch.tensor([12, 9, 7]), torch.tensor([4, 3, 0])
    assert_same(lambda x, t: F.ctc_loss(x, t, inputs, labels, reduction=reduction), x, targets, device=device,
                rtol=1e-5, atol=1e-5)  # fmt: skip


def test_one_list_of_targets_and_lengths_on_the_device(device: torch.device) -> None:
    x = _log_probs(9, 3, 4, torch.float64)
    targets, inputs, labels = torch.tensor([0, 1, 1, 2, 0, 2]), torch.tensor([9, 5, 8]), torch.tensor([2, 1, 3])
    assert_same(lambda *a: F.ctc_loss(*a, blank=3, reduction="none"), x, targets, inputs, labels, device=device)
    lists = ((9, 5, 8), (2, 1, 3))
    assert_same(lambda x, t: F.ctc_loss(x, t, *lists, blank=3), x, targets, device=device)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_a_target_that_does_not_fit(device: torch.device, zero_infinity: bool) -> None:
    x, targets = _log_probs(3, 2, 4), torch.tensor([[1, 1, 1], [1, 2, 3]])
    lengths = (torch.tensor([3, 3]), torch.tensor([3, 3]))
    options: Any = {"reduction": "none", "zero_infinity": zero_infinity}
    assert_same(lambda x, t: F.ctc_loss(x, t, *lengths, **options), x, targets, device=device, rtol=1e-5, atol=1e-5)


def test_mistakes(device: torch.device) -> None:
    x, targets = _log_probs(5, 1, 3).detach().to(device), torch.tensor([[1, 2]], device=device)
    with pytest.raises(RuntimeError, match="at most 5"):
        F.ctc_loss(x, targets, (6,), (2,))
    with pytest.raises(RuntimeError, match="blank"):
        F.ctc_loss(x, targets, (5,), (2,), blank=3)
    with pytest.raises(IndexError):
        F.ctc_loss(x, targets + 2, (5,), (2,)).cpu()
