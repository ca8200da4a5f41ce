"""Margin losses against the CPU, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_multi_margin(device: torch.device, reduction: Any) -> None:
    x, target, weight = torch.randn(4, 5, requires_grad=True), torch.tensor([0, 4, 2, 2]), torch.rand(5)
    for p, margin in ((1, 1.0), (2, 0.3)):
        options: Any = {"p": p, "margin": margin, "reduction": reduction}
        assert_same(lambda x, t, o=options: F.multi_margin_loss(x, t, **o), x, target, device=device)
        run: Any = lambda x, t, w, o=options: F.multi_margin_loss(x, t, weight=w, **o)  # noqa: E731
        assert_same(run, x, target, weight, device=device)
    assert_same(F.multi_margin_loss, torch.randn(3, requires_grad=True), torch.tensor(1), device=device)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_multilabel_margin(device: torch.device, reduction: Any) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    target = torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 2], [0, 1, 2, 3]])
    assert_same(lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), x, target, device=device)
    assert_same(F.multilabel_margin_loss, torch.randn(4, requires_grad=True), target[0], device=device)
