"""Losses against the CPU, forward and backward, without a fallback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same

REDUCTIONS = ("none", "mean", "sum")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def _leaf(*shape: int) -> torch.Tensor:
    torch.manual_seed(len(shape))
    return torch.randn(*shape).requires_grad_()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(7,), (33, 7), (3, 7, 5), (2, 7, 4, 5), (2, 7, 2, 3, 4), (0, 7)])
def test_cross_entropy(shape: tuple[int, ...], weighted: bool, reduction: str, device: torch.device) -> None:
    x = _leaf(*shape)
    target = torch.randint(0, 7, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if target.ndim and target.numel():
        target.view(-1)[::3] = 4
    weight = torch.rand(7) if weighted else None

    def loss(a: torch.Tensor, t: torch.Tensor, w: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
        return F.cross_entropy(a, t, w, reduction=reduction, **options)

    args = (x, target, weight) if weighted else (x, target)
    assert_same(lambda a, t, *w: loss(a, t.where(t != 4, -100), *w), *args, device=device, **CLOSE)
    assert_same(lambda *a: loss(*a, ignore_index=4, label_smoothing=0.2), *args, device=device, **CLOSE)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_class_probabilities(reduction: str, device: torch.device) -> None:
    x, p, w = _leaf(9, 5), torch.rand(9, 5).softmax(1), torch.rand(5)
    fn = lambda a, t, v: F.cross_entropy(a, t, v, reduction=reduction, label_smoothing=0.1)  # noqa: E731
    assert_same(fn, x, p, w, device=device, **CLOSE)


def test_layouts_and_dtypes(device: torch.device) -> None:
    x, t = _leaf(4, 6, 5), torch.randint(0, 5, (4, 6))
    assert_same(lambda a, u: F.nll_loss(a.transpose(1, 2), u), x, t, device=device)
    assert_same(lambda a, u: F.nll_loss(a[:, ::2].transpose(1, 2), u[:, ::2], reduction="none"), x, t, device=device)
    images = torch.randn(2, 5, 3, 4).to(memory_format=torch.channels_last)
    assert_same(lambda a, u: F.nll_loss(a, u), images, torch.randint(0, 5, (2, 3, 4)), device=device)
    half = torch.randn(20, 5).half()
    want = F.nll_loss(half.double(), t.view(-1)[:20]).half()
    torch.testing.assert_close(F.nll_loss(half.to(device), t.view(-1)[:20].to(device)).cpu(), want)


def test_all_ignored_is_nan(device: torch.device) -> None:
    t = torch.full((4,), -100)
    assert_same(lambda a, u: F.cross_entropy(a, u), torch.randn(4, 3), t, device=device)
    assert_same(lambda a, u: F.cross_entropy(a, u, reduction="sum"), _leaf(4, 3), t, device=device)


def test_a_target_outside_the_classes_does_no_harm(device: torch.device) -> None:
    x, t = torch.randn(4, 3, device=device).requires_grad_(), torch.tensor([0, 3, -1, 2], device=device)
    loss = F.nll_loss(x, t, reduction="none")
    with pytest.raises(IndexError, match=r"Target (3|-1) is out of bounds\."):
        loss.cpu()
    assert loss.isnan().cpu().tolist() == [False, True, True, False]
    loss.sum().backward()
    assert x.grad is not None
    assert x.grad.cpu().tolist() == [[-1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, -1]]


PAIRS: dict[str, Callable[..., torch.Tensor]] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "smooth_l1_of_beta": lambda a, t, reduction: F.smooth_l1_loss(a, t, reduction=reduction, beta=0.3),
    "huber": lambda a, t, reduction: F.huber_loss(a, t, reduction=reduction, delta=0.7),
    "bce": lambda a, t, reduction: F.binary_cross_entropy(a.sigmoid(), t.sigmoid(), reduction=reduction),
    "bce_weighted": lambda a, t, reduction: F.binary_cross_entropy(
        a.sigmoid(), t.sigmoid(), t.abs(), reduction=reduction
    ),
    "bce_logits": lambda a, t, reduction: F.binary_cross_entropy_with_logits(a, t.sigmoid(), reduction=reduction),
    "bce_logits_weighted": lambda a, t, reduction: F.binary_cross_entropy_with_logits(
        a, t.sigmoid(), t.abs(), reduction=reduction, pos_weight=t.abs() + 1
    ),
    "kl_div": lambda a, t, reduction: F.kl_div(a.log_softmax(1), t.softmax(1), reduction=reduction),
    "kl_div_log": lambda a, t, reduction: F.kl_div(a, t, reduction=reduction, log_target=True),
    "soft_margin": lambda a, t, reduction: F.soft_margin_loss(a, t.sign(), reduction=reduction),
    "hinge_embedding": lambda a, t, reduction: F.hinge_embedding_loss(a, t.sign(), reduction=reduction),
    "margin_ranking": lambda a, t, reduction: F.margin_ranking_loss(a, t, t.sign(), reduction=reduction),
    "cosine_embedding": lambda a, t, reduction: F.cosine_embedding_loss(a, t, t[:, 0].sign(), reduction=reduction),
    "triplet_margin": lambda a, t, reduction: F.triplet_margin_loss(a, t, t.flip(0), reduction=reduction),
    "poisson_nll": lambda a, t, reduction: F.poisson_nll_loss(a, t.abs(), reduction=reduction),
    "gaussian_nll": lambda a, t, reduction: F.gaussian_nll_loss(a, t, t.abs() + 0.1, reduction=reduction),
    "multilabel_soft_margin": lambda a, t, reduction: F.multilabel_soft_margin_loss(
        a, t.sigmoid(), reduction=reduction
    ),
}  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.filterwarnings("ignore:.*reduction. 'mean'", "ignore:reduction")
def test_losses_of_two_tensors(name: str, reduction: str, device: torch.device) -> None:
    x, t = _leaf(9, 14), torch.randn(9, 14)
    assert_same(lambda a, u: PAIRS[name](a, u, reduction=reduction), x, t, device=device, **CLOSE)


def test_extremes(device: torch.device) -> None:
    p, t = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5]), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    assert_same(lambda a, u: F.binary_cross_entropy(a, u, reduction="none"), p.requires_grad_(), t, device=device)
    x = torch.tensor([1.0, -1.0, 0.5, float("nan"), float("inf")]).requires_grad_()
    for loss in (F.huber_loss, F.smooth_l1_loss, F.mse_loss):
        assert_same(lambda a, u, loss=loss: loss(a, u, reduction="none"), x, torch.zeros(5), device=device)
    assert_same(lambda a, u: F.mse_loss(a, u), torch.empty(0, 2), torch.empty(0, 2), device=device)


@pytest.mark.parametrize(
    "loss", [lambda x, t, e: F.smooth_l1_loss(x, t, beta=e), lambda x, t, e: F.huber_loss(x, t, delta=e)]
)
def test_a_wrong_width_is_refused_with_a_cached_plan(loss: Any, device: torch.device) -> None:
    x, t = torch.randn(5, device=device), torch.zeros(5, device=device)
    loss(x, t, 1.0)
    with pytest.raises((RuntimeError, ValueError), match="does not support"):
        loss(x, t, -1.0)
