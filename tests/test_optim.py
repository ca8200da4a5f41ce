"""Optimizers and the gradient scaler: the CPU's weights after five steps, and no new plan after the first."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torch_fl import dispatch

_CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "dampening": 0.1}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1, "maximize": True}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01}),
}
_MODES: dict[str, dict[str, bool]] = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
_PAIRS = [(c, m) for c in _CASES for m in _MODES if (c, m) != ("rmsprop", "fused")]


def _weights(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 3), (7,), (), (1,), (2, 3, 4)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def _run(case: str, mode: dict[str, bool], device: Any, steps: int = 5) -> tuple[list[torch.Tensor], list[int]]:
    """Weights after some steps on 0.5 * w ** 2 with a changing learning rate, and the number of plans after each."""
    kind, options = _CASES[case]
    weights = [w.to(device).requires_grad_() for w in _weights()]
    optimizer = kind(weights, **options, **mode)
    plans = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = options["lr"] / (step + 1)
        for k, w in enumerate(weights):
            w.grad = (w.detach() * 0.5 + k).clone()
        optimizer.step()
        plans.append(sum(len(op.plans) for op in dispatch._OPS.values()))
    return [w.detach().cpu() for w in weights], plans


@pytest.mark.parametrize(("case", "mode"), _PAIRS, ids=[f"{c}-{m}" for c, m in _PAIRS])
def test_weights_after_five_steps(case: str, mode: str, device: torch.device) -> None:
    want, _ = _run(case, _MODES[mode], "cpu")
    got, plans = _run(case, _MODES[mode], device)
    torch.testing.assert_close(got, want)
    assert plans[1:] == [plans[1]] * 4


def test_foreach_is_the_default(device: torch.device) -> None:
    weights = [w.to(device).requires_grad_() for w in _weights()]
    for w in weights:
        w.grad = w.detach().clone()
    before = len(dispatch.op_of(torch.ops.torch_fl_impl.sgd_steps.default).plans)
    torch.optim.SGD(weights, lr=0.5).step()
    assert len(dispatch.op_of(torch.ops.torch_fl_impl.sgd_steps.default).plans) >= max(before, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_fused_adam_of_other_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    results = []
    for where in ("cpu", device):
        weights = [w.to(where).requires_grad_() for w in _weights(dtype)]
        optimizer = torch.optim.AdamW(weights, lr=torch.tensor(0.01), fused=True)
        for _ in range(3):
            for w in weights:
                w.grad = w.detach().clone()
            optimizer.step()
        results.append([w.detach().cpu() for w in weights])
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("fused", [False, True], ids=["loop", "fused"])
def test_gradient_scaler_skips_an_overflow(fused: bool, device: torch.device) -> None:
    results = []
    for where in ("cpu", device):
        weight = torch.tensor([1.0, 2.0, 3.0]).to(where).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, fused=fused)
        scaler = torch.amp.GradScaler(torch.device(where).type, init_scale=4.0, growth_interval=2)
        for scale in (1.0, float("inf"), 2.0, 3.0):
            optimizer.zero_grad()
            scaler.scale((weight * weight * scale).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append((weight.detach().cpu(), scaler.get_scale()))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
def test_clip_grad_norm(foreach: bool, device: torch.device) -> None:
    results = []
    for where in ("cpu", device):
        weights = [w.to(where).requires_grad_() for w in _weights()]
        for w in weights:
            w.grad = w.detach().clone()
        norm = torch.nn.utils.clip_grad_norm_(weights, 0.5, foreach=foreach)
        results.append(([w.grad.cpu() for w in weights], norm.cpu()))  # type: ignore[union-attr]
    torch.testing.assert_close(results[1], results[0])


def _many() -> list[torch.Tensor]:
    shapes = [(5, 3), (7,), (), (1,), (2, 3, 4), (300, 70)]
    return [torch.randn(s, generator=torch.Generator().manual_seed(k)) for k, s in enumerate(shapes * 30)]


def test_lists_longer_than_one_launch(device: torch.device) -> None:
    lists, here = _many(), [t.to(device) for t in _many()]
    numbers = [float(k) for k in range(len(lists))]
    torch._foreach_mul_(lists, numbers)
    torch._foreach_mul_(here, numbers)
    torch.testing.assert_close([t.cpu() for t in here], lists)
    roots = torch._foreach_sqrt(torch._foreach_abs(here))
    torch.testing.assert_close([t.cpu() for t in roots], list(torch._foreach_sqrt(torch._foreach_abs(lists))))


def test_lists_of_several_layouts_and_dtypes(device: torch.device) -> None:
    lists = [torch.randn(4, 5), torch.randn(5, 4).t(), torch.randn(3).half(), torch.randn(6)[::2], torch.randn(0)]
    others = [torch.randn(5), torch.randn(1), torch.randn(3).half(), torch.randn(1), torch.randn(0)]
    found = torch._foreach_add([t.to(device) for t in lists], [t.to(device) for t in others])
    torch.testing.assert_close([t.cpu() for t in found], list(torch._foreach_add(lists, others)))


def test_a_tensor_twice_in_a_list(device: torch.device) -> None:
    x, y = torch.ones(5, device=device), torch.ones(5, device=device)
    torch._foreach_add_([x, y], 1)
    torch._foreach_add_([x, x], 1)
    assert x.tolist() == [4.0] * 5


def test_norms_of_lists(device: torch.device) -> None:
    lists = [*_many(), torch.randn(30, 40).t(), torch.full((100_000,), 0.1)]
    found = torch._foreach_norm([t.to(device) for t in lists])
    torch.testing.assert_close([n.cpu() for n in found], [t.double().norm().float() for t in lists])
    found = torch._foreach_norm([t.to(device) for t in lists[:5]], 1)
    torch.testing.assert_close([n.cpu() for n in found], list(torch._foreach_norm(lists[:5], 1)))


def test_lists_set_to_zero(device: torch.device) -> None:
    lists = [t.to(device) for t in (*_many(), torch.ones(3, dtype=torch.bool), torch.ones(2, dtype=torch.complex64))]
    before = lists[0]._version
    torch._foreach_zero_(lists)
    assert lists[0]._version > before
    assert not any(t.any().item() for t in lists)


def test_parameters_that_joined_later(device: torch.device) -> None:
    results = []
    for where in ("cpu", device):
        weights = [w.to(where).requires_grad_() for w in _weights()]
        optimizer = torch.optim.AdamW(weights, lr=0.1, foreach=True)
        for step in range(3):
            for w in weights[: 2 + step]:
                w.grad = w.detach().clone()
            optimizer.step()
        results.append([w.detach().cpu() for w in weights])
    torch.testing.assert_close(results[1], results[0])
