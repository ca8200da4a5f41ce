"""Layer, RMS, group, instance and batch normalization against the CPU, with gradients and running statistics."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same
from torch import nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import torch_fl

HALVES = (torch.float16, torch.bfloat16)


def _leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


@pytest.mark.parametrize("shape", [(3, 5), (4, 2, 33), (7, 300), (0, 8), (1, 32), (65, 31)])
def test_layer_norm(shape: tuple[int, ...], device: torch.device) -> None:
    x, w, c = _leaf(*shape), _leaf(shape[-1]), _leaf(shape[-1])
    last = shape[-1:]
    assert_same(lambda a, v, u: F.layer_norm(a, last, v, u), x, w, c, device=device, rtol=1e-4, atol=1e-5)
    assert_same(lambda a: F.layer_norm(a, last), x, device=device, rtol=1e-4, atol=1e-5)
    assert_same(lambda a, v: F.layer_norm(a, last, v), x, w, device=device, rtol=1e-4, atol=1e-5)
    assert_same(lambda a, u: F.layer_norm(a, last, None, u), x, c, device=device, rtol=1e-4, atol=1e-5)


def test_layer_norm_of_several_dimensions_and_views(device: torch.device) -> None:
    x, w, c = _leaf(6, 4, 10), _leaf(4, 10), _leaf(4, 10)
    assert_same(lambda a, v, u: F.layer_norm(a, (4, 10), v, u), x, w, c, device=device, rtol=1e-4, atol=1e-5)
    y = _leaf(10, 6, 4)
    fn = lambda a, v, u: F.layer_norm(a.permute(1, 2, 0), (4, 10), v, u)  # noqa: E731
    assert_same(fn, y, w, c, device=device, rtol=1e-4, atol=1e-5)
    assert_same(lambda a, v: F.layer_norm(a[1:, ::2, :3], (3,), v[0, :3]), x, w, device=device, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", HALVES)
def test_layer_norm_in_halves(dtype: torch.dtype, device: torch.device) -> None:
    x, w = (torch.randn(6, 100) + 5).to(dtype), torch.randn(100)
    want = F.layer_norm(x.double(), (100,), w.double(), w.double())
    got = F.layer_norm(x.to(device), (100,), w.to(dtype).to(device), w.to(dtype).to(device))
    torch.testing.assert_close(got.cpu(), want.to(dtype), rtol=2e-2, atol=2e-2)
    mixed = torch.native_layer_norm(x.to(device), (100,), w.to(device), w.to(device), 1e-5)[0]
    torch.testing.assert_close(mixed.cpu(), want.to(dtype))


def test_rms_norm(device: torch.device) -> None:
    x, w = _leaf(5, 70), _leaf(70)
    assert_same(lambda a, v: F.rms_norm(a, (70,), v), x, w, device=device, rtol=1e-4, atol=1e-5)
    assert_same(lambda a: F.rms_norm(a, (70,), eps=1e-3), x, device=device, rtol=1e-4, atol=1e-5)
    fused = lambda a, v: torch.ops.aten._fused_rms_norm(a, [70], v, 1e-3)  # noqa: E731
    assert_same(fused, x.detach(), w.detach(), device=device, rtol=1e-4, atol=1e-5)


def test_fused_rms_norm_backward(device: torch.device) -> None:
    x, w, g = torch.randn(37, 70), torch.randn(70), torch.randn(37, 70)
    leaf, scale = x.clone().requires_grad_(), w.clone().requires_grad_()
    y, rstd = torch.ops.aten._fused_rms_norm(leaf, [70], scale, 1e-3)
    want = torch.autograd.grad(y, (leaf, scale), g)
    args = [t.detach().to(device) for t in (g, x, rstd, w)]
    got = torch.ops.aten._fused_rms_norm_backward(args[0], args[1], [70], args[2], args[3], [True, True])
    torch.testing.assert_close(tuple(t.cpu() for t in got), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(4, 6), (2, 6, 9), (3, 6, 4, 40), (2, 6, 2, 3, 4)])
@pytest.mark.parametrize("group", [1, 2, 6])
def test_group_norm(shape: tuple[int, ...], group: int, device: torch.device) -> None:
    x, w, c = _leaf(*shape), _leaf(6), _leaf(6)
    assert_same(lambda a, v, u: F.group_norm(a, group, v, u), x, w, c, device=device, rtol=1e-3, atol=1e-4)
    assert_same(lambda a: F.group_norm(a, group), x, device=device, rtol=1e-3, atol=1e-4)


def test_group_norm_of_channels_last(device: torch.device) -> None:
    x = torch.randn(2, 8, 5, 7).to(memory_format=torch.channels_last).requires_grad_()
    assert_same(lambda a, v: F.group_norm(a, 4, v), x, _leaf(8), device=device, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(9, 5), (4, 5, 33), (3, 5, 8, 9), (2, 5, 3, 4, 5), (2, 300, 2, 2), (600, 3)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(shape: tuple[int, ...], training: bool, affine: bool, device: torch.device) -> None:
    kinds = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    here = kinds[len(shape)](shape[1], affine=affine, momentum=0.3).train(training)
    here.running_mean.uniform_(-1, 1)  # type: ignore[union-attr]
    here.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    there = copy.deepcopy(here).to(device)
    x, g = torch.randn(shape) * 2 + 3, torch.randn(shape)
    a, c = x.clone().requires_grad_(), x.to(device).requires_grad_()
    want, got = here(a), there(c)
    want.backward(g)
    got.backward(g.to(device))
    close = {"rtol": 1e-3, "atol": 1e-4, "check_stride": True}
    torch.testing.assert_close(got.cpu(), want, **close)  # type: ignore[arg-type]
    torch.testing.assert_close(c.grad.cpu(), a.grad, **close)  # type: ignore[arg-type, union-attr]
    for p, q in zip(there.parameters(), here.parameters()):
        torch.testing.assert_close(p.grad.cpu(), q.grad, **close)  # type: ignore[arg-type, union-attr]
    for name, buffer in here.named_buffers():
        torch.testing.assert_close(there.get_buffer(name).cpu(), buffer, rtol=1e-5, atol=1e-6)


def test_batch_norm_keeps_channels_last(device: torch.device) -> None:
    x = torch.randn(3, 40, 6, 7).to(memory_format=torch.channels_last).requires_grad_()
    stats = torch.rand(40) + 0.5
    fn = lambda a, v: F.batch_norm(a, stats.clone().to(a.device), stats.clone().to(a.device), v, None, True)  # noqa: E731
    assert_same(fn, x, _leaf(40), device=device, rtol=1e-4, atol=1e-4)


def test_batch_norm_of_halves_with_float_weights(device: torch.device) -> None:
    x, w = (torch.randn(8, 5, 6, 6) + 4).bfloat16(), torch.rand(5)
    want = F.batch_norm(x.double(), None, None, w.double(), w.double(), True).bfloat16()
    got = F.batch_norm(x.to(device), None, None, w.to(device), w.to(device), True)
    torch.testing.assert_close(got.cpu(), want)


def test_instance_norm(device: torch.device) -> None:
    x = _leaf(2, 3, 5, 6)
    assert_same(lambda a: F.instance_norm(a), x, device=device, rtol=1e-4, atol=1e-4)


def test_variants(device: torch.device) -> None:
    aten = torch.ops.aten
    x, w = torch.randn(4, 3, 5), torch.rand(3) + 0.5
    close = {"rtol": 1e-4, "atol": 1e-5}
    no_stats = lambda a, v: aten._native_batch_norm_legit.no_stats(a, v, v, True, 0.1, 1e-5)  # noqa: E731
    assert_same(no_stats, x, w, device=device, **close)
    no_training = lambda a, v: aten._native_batch_norm_legit_no_training(a, v, v, v, v, 0.1, 1e-5)  # noqa: E731
    assert_same(no_training, x, w, device=device, **close)

    def update(a: torch.Tensor, v: torch.Tensor) -> object:
        mean, var = v.clone(), v.clone()
        return aten._batch_norm_with_update(a, v, v, mean, var, 0.1, 1e-5)[:3], mean, var

    assert_same(update, x, w, device=device, **close)


def test_rms_norm_is_one_node_and_still_differentiable_twice(device: torch.device) -> None:
    x, w = torch.randn(3, 8, device=device, requires_grad=True), torch.rand(8, device=device, requires_grad=True)
    y = F.rms_norm(x, (8,), w)
    assert y.grad_fn is not None
    assert "RmsNorm" in y.grad_fn.name()
    with torch.inference_mode():
        torch.testing.assert_close(F.rms_norm(x, (8,), w).cpu(), y.detach().cpu())

    def penalty(a: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        (g,) = torch.autograd.grad(F.rms_norm(a, (8,), v).pow(2).sum(), a, create_graph=True)
        return g.pow(2)

    assert_same(penalty, _leaf(3, 8), _leaf(8), device=device, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode
def test_rms_norm_is_seen_by_modes_and_has_forward_derivatives(device: torch.device) -> None:
    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []
    x, w = torch.randn(3, 8), torch.rand(8)
    there, scale = x.to(device), w.to(device)
    with Names():
        F.rms_norm(there, (8,), scale)
    assert seen
    norm = lambda a: F.rms_norm(a, (8,), w.to(a.device))  # noqa: E731
    with forward_ad.dual_level():
        y, z = (norm(forward_ad.make_dual(t, torch.ones_like(t))) for t in (there, x))
        torch.testing.assert_close(
            forward_ad.unpack_dual(y).tangent.cpu(), forward_ad.unpack_dual(z).tangent, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("dtype", HALVES)
def test_rms_norm_in_halves(dtype: torch.dtype, device: torch.device) -> None:
    x, w = (torch.randn(4, 64) * 1e-2).to(dtype), torch.rand(64).to(dtype)
    assert_same(lambda a, v: F.rms_norm(a, (64,), v), x, w, device=device)
    assert_same(lambda a: F.rms_norm(a, (64,)), x, device=device)


@pytest.mark.parametrize("shape", [(1000, 17), (70, 1050), (33, 40, 5, 5), (20, 3, 8, 9), (1, 24, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_far_from_zero(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    x, g = torch.randn(shape), torch.randn(shape).to(dtype)
    x = (x + 1000 if dtype == torch.float32 else x).to(dtype)
    x.select(1, 1).mul_(0).add_(3)  # a constant channel
    x[0].mul_(0.5)  # a first row unlike the others
    w, mean, var = torch.rand(3, shape[1])

    def run(where: torch.device, kind: torch.dtype, stats: torch.dtype) -> list[torch.Tensor]:
        leaves = [x.to(where, kind).requires_grad_(), w.to(where, stats).requires_grad_()]
        running = [mean.to(where, stats), var.to(where, stats)]
        y = F.batch_norm(leaves[0], *running, leaves[1], leaves[1], True)
        found = torch.autograd.grad(y, leaves, g.to(where, kind))
        return [t.cpu().float() for t in (y.detach().to(dtype), *found, *running)]

    want, got = run(torch.device("cpu"), torch.float64, torch.float64), run(device, dtype, torch.float32)
    loose = {"rtol": 1e-4, "atol": 2e-3} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 5e-2}
    moving = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else loose
    torch.testing.assert_close(got[3:], want[3:], **moving)
    wild = (1, 2)  # gradients beside a variance of nothing are of the size of 1 / sqrt(eps)
    for k in (0, *wild):
        a, b = (t[k] for t in (got, want))
        keep = torch.ones(shape[1], dtype=torch.bool).index_fill(0, torch.tensor([1]), k not in wild)
        at = keep if a.dim() == 1 else (slice(None), keep)
        torch.testing.assert_close(a[at], b[at], **loose)


def test_batch_norm_of_numbers_that_are_not_finite(device: torch.device) -> None:
    x = torch.randn(40, 6)
    x[0, 1], x[17, 2], x[5, 3], x[39, 4] = float("inf"), -float("inf"), float("nan"), float("inf")
    want, got = ([torch.zeros(6, device=d), torch.ones(6, device=d)] for d in (torch.device("cpu"), device))
    y, z = F.batch_norm(x, *want, training=True), F.batch_norm(x.to(device), *got, training=True)
    torch.testing.assert_close(z.cpu(), y, rtol=1e-4, atol=1e-5, equal_nan=True)
    torch.testing.assert_close([t.cpu() for t in got], want, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_layer_norm_without_gradients_is_one_op(guard: Any, device: torch.device) -> None:
    args = [torch.randn(s) for s in ((3, 5, 40), (40,), (40,))]
    want = F.layer_norm(args[0], (40,), *args[1:])
    x, w, b = (t.to(device).requires_grad_() for t in args)
    with guard(), torch_fl.trace() as t:
        got = F.layer_norm(x, (40,), w, b)
    assert [r.op for r in t] == ["aten::layer_norm"]
    torch.testing.assert_close(got.cpu(), want)
    with guard(), pytest.raises(RuntimeError, match=r"Expected weight to be of same shape as normalized_shape"):
        F.layer_norm(x, (40,), w[1:], b)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode
def test_layer_norm_without_gradients_has_forward_derivatives(device: torch.device) -> None:
    x, t, w = torch.randn(3, 40), torch.randn(3, 40), torch.randn(40)

    def tangent(x: torch.Tensor, t: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(lambda v: F.layer_norm(v, (40,), w), (x,), (t,))[1]

    with torch.no_grad():
        got = tangent(*(v.to(device) for v in (x, t, w)))
        torch.testing.assert_close(got.cpu(), tangent(x, t, w))
