"""What the cases are made of: the table they go into, and their inputs, the same on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Case = Callable[[Any], Any]
INF, NAN = float("inf"), float("nan")
CASES: dict[str, Case] = {}


def case(fn: Case) -> Case:
    CASES[fn.__name__] = fn
    return fn


def rnd(d: Any, *shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers, the same on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(d)


def arange(d: Any, *shape: int) -> torch.Tensor:
    """0, 1, 2 ... as float32 of a shape."""
    return torch.arange(float(torch.Size(shape).numel())).view(shape).to(d)


def ints(d: Any, *numbers: Any) -> torch.Tensor:
    return torch.tensor(list(numbers)).to(d)


def grads(out: torch.Tensor, *leaves: torch.Tensor) -> Any:
    """The result and its gradients for an incoming gradient of different numbers."""
    weight = torch.linspace(-1, 2, out.numel()).view(out.shape).to(out)
    return out.detach(), torch.autograd.grad(out, leaves, weight, allow_unused=True)
