"""Dtypes that torch chooses, and mixed precision."""

from __future__ import annotations

from typing import Any

import torch

from faults.base import case, ints, rnd

F = torch.nn.functional


@case
def numbers_and_tensors_promote(d: Any) -> Any:
    i, u, h, b = (
        ints(d, 1, 2),
        torch.tensor([1, 2], dtype=torch.uint8).to(d),
        torch.tensor([1.5, 2]).half().to(d),
        ints(d, True, False),
    )
    zero = torch.tensor(2.5, dtype=torch.float64).to(d)
    return [
        i + 1.5, i + True, u - 3, u + i, h * 2.5, h + zero, i + zero, b + 1, b * 2.5, b + b, i / 2, u // 2, i**2, 2**i,
        2.5 ** i,
        i > 1.5, h == 1.5, i * h, u * h, b * h, i.float() + zero, torch.tensor(3).to(d) + h, 1 - b.int(), i % 2.0,
        zero * i.int(),
    ]  # fmt: skip


@case
def reductions_choose_dtypes(d: Any) -> Any:
    u, b = torch.tensor([200, 100, 7], dtype=torch.uint8).to(d), ints(d, True, False, True)
    return [
        u.sum(), u.prod(), u.cumsum(0), b.sum(), b.cumsum(0), u.sum(dtype=torch.uint8), b.sum(dtype=torch.float32),
        u.max(),
        b.any(), u.any(), u.float().mean(dtype=torch.float64), u.mean(dtype=torch.float32), b.prod(),
        u.count_nonzero(), b.int().argmax(),
    ]  # fmt: skip


@case
def where_and_clamp_promote(d: Any) -> Any:
    i, f = ints(d, -3, 0, 9), ints(d, 0.5, 1.5, 2.5)
    return [
        torch.where(i > 0, i, f),
        torch.where(i > 0, 1, 2.5),
        i.clamp(0.5, 2),
        f.clamp(1, 2),
        i.clamp(min=f),
        torch.where(i > 0, f, 0),
        i.clamp(max=ints(d, 1)),
    ]


@case
def factories_choose_dtypes(d: Any) -> Any:
    x = ints(d, 1.5, 2)
    return [
        torch.arange(5, device=d), torch.arange(0, 1, 0.25, device=d), torch.arange(5, 0, -2, device=d),
        torch.full((2,), 3, device=d),
        torch.full((2,), 3.0, device=d), torch.full((2,), True, device=d), torch.linspace(0, 1, 5, device=d),
        x.new_full((2,), 7),
        torch.logspace(0, 2, 3, device=d), torch.eye(2, 3, device=d), x.new_tensor([1, 2]),
        torch.zeros_like(x, dtype=torch.int8),
        torch.tensor([[1, 2.5]], device=d), torch.tensor([True], device=d), torch.scalar_tensor(3, device=d),
        torch.arange(2.5, device=d),
        torch.linspace(0, 10, 3, dtype=torch.int64, device=d), torch.empty(0, device=d),
        torch.asarray([1, 2], device=d), x.new_zeros(2, 1),
    ]  # fmt: skip


@case
def assignment_casts(d: Any) -> Any:
    x, i = torch.zeros(6).to(d), torch.zeros(6, dtype=torch.int64).to(d)
    x[0], x[1], x[2:4] = True, 3, ints(d, 7, 8)
    i[0], i[1], i[2:4] = 2.9, True, ints(d, -1.5, 3.99)
    x[ints(d, 4, 5)] = 2
    i[ints(d, False, False, False, False, True, True)] = 5
    return x, i


@case
def autocast_keeps_weights_and_gradients_in_float(d: Any) -> Any:
    w, x = rnd(d, 3, 4).requires_grad_(), rnd(d, 2, 4, seed=1)
    with torch.autocast(torch.device(d).type, torch.bfloat16):
        y = F.linear(x, w)
        loss = F.cross_entropy(y, ints(d, 0, 2))
        inner = (y.dtype, loss.dtype, (y + x[:, :3]).dtype, x.sum().dtype)
    loss.backward()
    return inner, w.grad.dtype, w.grad.float().round(decimals=1)


@case
def fused_pairs(d: Any) -> Any:
    a, b = [rnd(d, 2, 3).t(), rnd(d, 4, seed=1)], [rnd(d, 3, 2, seed=2), rnd(d, 8, seed=3)[::2]]
    c = [t.clone() for t in a]
    torch._foreach_mul_(c, 2.0)
    torch._foreach_addcdiv_(c, b, [t.abs() + 1 for t in b], 0.5)
    torch._foreach_lerp_(c, b, 0.25)
    return (
        torch._foreach_add(a, b, alpha=2),
        c,
        torch._foreach_norm(a),
        torch._foreach_sqrt([t.abs() for t in a]),
        torch._foreach_maximum(a, b),
    )
