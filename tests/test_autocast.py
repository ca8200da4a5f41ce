"""torch.autocast("npu"): CUDA's policy entry by entry, regions and their nesting, kept casts, training in halves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from conftest import to
from subprocesses import output_of
from torch.nn import functional as F
from torch.testing._internal.autocast_test_lists import AutocastTestLists

from torch_fl.bench.networks import GPT
from torch_fl.compat import autocast

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def _cuda_policy() -> set[str]:
    """aten ops that torch itself has an autocast kernel for on CUDA; those of cuDNN are no ops of ours."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = {n.removeprefix("aten::") for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")}
    return {n for n in names if has(f"aten::{n}", "AutocastCUDA") and not n.startswith("cudnn_")}


def test_tables_name_what_cuda_casts() -> None:
    ours = [name for names, _ in autocast.POLICIES for name in names]
    assert len(ours) == len(set(ours))
    assert set(ours) == _cuda_policy()


def _entries() -> Iterator[Any]:
    """torch's own samples: (function, arguments, keywords, dtype it must compute in)."""
    torch.manual_seed(0)
    lists = AutocastTestLists("cpu")
    groups = (
        (lists.torch_fp16, torch, BF16), (lists.nn_fp16, torch._C._nn, BF16),
        (lists.linalg_fp16, torch._C._linalg, BF16),
        (lists.torch_fp32, torch, FP32), (lists.nn_fp32, torch._C._nn, FP32),
        (lists.torch_need_autocast_promote, torch, FP32),
    )  # fmt: skip
    for entries, module, dtype in groups:
        for name, *rest in entries:
            if not name.startswith("cudnn_") and name != "einsum":  # torch's arguments of einsum are not valid
                yield getattr(module, name), rest[0], rest[1] if len(rest) > 1 else {}, dtype, name
    m, image = torch.randn(4, 4), torch.randn(1, 2, 4, 4, dtype=FP16)
    heads = (torch.randn(1, 2, 4, 8),) * 3
    for fn, args, kwargs, dtype in (
        (torch.einsum, ("ij,jk->ik", m, m), {}, BF16),
        (F.scaled_dot_product_attention, heads, {}, BF16),
        (torch.ops.aten.frobenius_norm.dim, (m.half(), [0, 1]), {}, FP32),
        (torch.linalg.vector_norm, (m.half(),), {}, FP32),
        (torch.linalg.matrix_norm, (m.half(),), {}, FP32),
        (torch.linalg.matrix_norm, (m.half(), 1), {}, FP32),
        (torch.pow, (1.7, m.half()), {}, FP32),
        (F.huber_loss, (m.half(), m.half() + 1), {}, FP32),
        (F.interpolate, (image[0],), {"scale_factor": 2}, FP32),
        (F.interpolate, (image,), {"scale_factor": 2}, FP32),
        (F.interpolate, (image,), {"scale_factor": 2, "mode": "bilinear"}, FP32),
        (F.interpolate, (image,), {"scale_factor": 2, "mode": "bicubic"}, FP32),
    ):
        yield fn, args, kwargs, dtype, fn.__name__


_ENTRIES = list(_entries())


def _computed_in(value: Any, dtype: torch.dtype) -> Any:
    """Arguments as a user would cast them by hand."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    return type(value)(_computed_in(v, dtype) for v in value) if isinstance(value, (list, tuple)) else value


@pytest.mark.device
@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("entry", _ENTRIES, ids=[f"{i}-{e[-1]}" for i, e in enumerate(_ENTRIES)])
def test_listed_ops_compute_in_the_listed_dtype(device: torch.device, entry: Any, allow_fallback: None) -> None:
    fn, args, kwargs, dtype, _ = entry
    here = to(args, device)
    with torch.autocast("npu", dtype=BF16):
        got = fn(*here, **kwargs)
        with torch.autocast("npu", enabled=False):
            want = fn(*_computed_in(here, dtype), **kwargs)
    results = got if isinstance(got, tuple) else (got,)
    assert {r.dtype for r in results} == {dtype}
    torch.testing.assert_close(to(got, "cpu"), to(want, "cpu"), equal_nan=True)


def test_what_the_caller_asks_for_is_left_alone(device: torch.device) -> None:
    half, double = torch.ones(2, 2, device=device, dtype=BF16), torch.ones(2, 2, device=device, dtype=torch.float64)
    with torch.autocast("npu", dtype=BF16):
        assert half.sum(dtype=BF16).dtype is BF16
        assert half.softmax(0, BF16).dtype is BF16
        assert torch.ones(2, device=device, dtype=torch.int32).sum().dtype is torch.int64
        assert (double @ double).dtype is torch.float64
        assert double.exp().dtype is torch.float64
        assert (half + half).dtype is BF16
        assert torch.cat([half, half.float()]).dtype is FP32
        assert half.mul_(2).dtype is BF16


def test_binary_cross_entropy_is_refused(device: torch.device) -> None:
    p = torch.full((2,), 0.5, device=device)
    with torch.autocast("npu", dtype=FP16):
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            F.binary_cross_entropy(p, p)
        with torch.autocast("npu", enabled=False):
            F.binary_cross_entropy(p, p)


def test_a_foreign_half_is_not_promoted(device: torch.device) -> None:
    with torch.autocast("npu", dtype=FP16), pytest.raises(RuntimeError, match="cannot promote"):
        torch.dot(torch.ones(2, device=device, dtype=BF16), torch.ones(2, device=device, dtype=FP16))


def test_regions_nest(device: torch.device) -> None:
    x = torch.randn(3, 3, device=device)
    seen = []
    with torch.autocast("npu", dtype=BF16):
        seen.append((x @ x).dtype)
        with torch.autocast("npu", enabled=False):
            seen.append((x @ x).dtype)
            with torch.autocast("npu", dtype=FP16), torch.no_grad():
                seen.append((x @ x).dtype)
        with torch.inference_mode():
            seen.append((x @ x).dtype)
    assert [*seen, (x @ x).dtype] == [BF16, FP32, FP16, BF16, FP32]


def test_the_cpu_keeps_its_own_policy(device: torch.device) -> None:
    x = torch.randn(3, 3)
    with torch.autocast("npu", dtype=FP16):
        assert (x @ x).dtype is FP32
    with torch.autocast("cpu", dtype=BF16):
        assert (x.to(device) @ x.to(device)).dtype is FP32


def test_parameters_are_cast_once_for_a_region(device: torch.device) -> None:
    layer = torch.nn.Linear(3, 3, device=device)
    x = torch.randn(2, 3, device=device)
    with torch.autocast("npu", dtype=BF16):
        with torch.autocast("npu", dtype=BF16):
            layer(x)
        kept = list(autocast._casts.values())
        layer(x)
        assert list(autocast._casts.values()) == kept
        assert [id(k[0]) for k in kept] == [id(layer.weight), id(layer.bias)]
    assert not autocast._casts
    with torch.autocast("npu", dtype=BF16, cache_enabled=False):
        layer(x)
        assert not autocast._casts


def test_kept_casts_follow_writes_and_grad_modes(device: torch.device) -> None:
    layer = torch.nn.Linear(3, 3, bias=False, device=device)
    x = torch.ones(1, 3, device=device)
    with torch.autocast("npu", dtype=BF16):
        for context in (torch.inference_mode(), torch.no_grad()):
            with context:
                layer(x)
        layer(x).sum().backward()
        with torch.no_grad():
            layer.weight.fill_(2.0)
        torch.testing.assert_close(layer(x).cpu(), torch.full((1, 3), 6.0, dtype=BF16))
        layer.weight.data = torch.ones(3, 3, device=device)
        torch.testing.assert_close(layer(x).cpu(), torch.full((1, 3), 3.0, dtype=BF16))
    torch.testing.assert_close(layer.weight.grad.cpu(), torch.ones(3, 3))


def test_gradients_of_casts_stay_on_the_chip(device: torch.device) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    (grad,) = torch.autograd.grad(x.to(BF16).sum(), x)
    assert grad.device == device
    with torch.autocast("npu", dtype=BF16):
        (grad,) = torch.autograd.grad(torch.dot(x, x).exp(), x)
    assert (grad.device, grad.dtype) == (device, FP32)


def test_parameters_made_in_inference_mode(device: torch.device) -> None:
    with torch.inference_mode(), torch.autocast("npu", dtype=BF16):
        layer = torch.nn.Linear(3, 3, device=device)
        assert layer(torch.ones(1, 3, device=device)).dtype is BF16


class _Product(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="npu", cast_inputs=FP32)
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @torch.amp.custom_bwd(device_type="npu")
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        a, b = ctx.saved_tensors
        assert not torch.is_autocast_enabled("npu")
        return grad @ b.T, a.T @ grad


def test_custom_functions(device: torch.device) -> None:
    a = torch.randn(3, 3, device=device, dtype=FP16, requires_grad=True)
    with torch.autocast("npu", dtype=FP16):
        out = _Product.apply(a, a)
    out.sum().backward()
    assert out.dtype is FP32
    assert a.grad is not None
    assert a.grad.dtype is FP16


def _step(model: Any, optimizer: Any, scaler: Any, loss: Callable[[], torch.Tensor], **region: Any) -> torch.Tensor:
    optimizer.zero_grad()
    with torch.autocast(**region):
        value = loss()
    scaler.scale(value).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    return value.detach().cpu()


def _curve(model: GPT, where: torch.device, dtype: torch.dtype, **options: Any) -> torch.Tensor:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    scaler = torch.amp.GradScaler(where.type, init_scale=1024.0, enabled=dtype is FP16)
    torch.manual_seed(1)
    tokens = torch.randint(0, 256, (4, 17)).to(where)

    def loss() -> torch.Tensor:
        return F.cross_entropy(model(tokens[:, :-1])[0].flatten(0, 1), tokens[:, 1:].flatten())

    region = {"device_type": where.type, "dtype": dtype}
    return torch.stack([_step(model, optimizer, scaler, loss, **region) for _ in range(10)])


@pytest.mark.model
@pytest.mark.parametrize("options", [{}, {"fused": True}], ids=["foreach", "fused"])
@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_gpt_trains_as_on_the_cpu(device: torch.device, dtype: torch.dtype, options: dict[str, bool]) -> None:
    torch.manual_seed(0)
    model = GPT()
    curves = [_curve(copy.deepcopy(model).to(d), d, dtype, **options) for d in (torch.device("cpu"), device)]
    torch.testing.assert_close(curves[1], curves[0], rtol=5e-3, atol=0)
    assert curves[1][-1] < curves[1][0] - 0.5


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}])
def test_a_step_with_infinite_gradients_is_skipped(device: torch.device, options: dict[str, bool]) -> None:
    weight = torch.nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.SGD([weight], lr=1.0, **options)
    scaler = torch.amp.GradScaler("npu", init_scale=4.0, growth_interval=1)
    for factor, want, scale in ((float("inf"), 1.0, 2.0), (0.5, 0.5, 4.0), (float("nan"), 0.5, 2.0)):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.testing.assert_close(weight.detach().cpu(), torch.full((3,), want))
        assert scaler.get_scale() == scale


def test_a_region_entered_before_the_first_use_casts() -> None:
    code = """
import torch
with torch.autocast("npu", dtype=torch.bfloat16):
    x = torch.ones(2, 2, device="npu")
    print((x @ x).dtype, (x @ x).exp().dtype)
"""
    assert output_of(code, TORCH_FL_BACKENDS="host").split() == ["torch.bfloat16", "torch.float32"]


@pytest.mark.model
@pytest.mark.parametrize("inside", [True, False])
def test_compiled_regions(device: torch.device, inside: bool) -> None:
    torch._dynamo.reset()
    layer, x = torch.nn.Linear(4, 4, device=device), torch.randn(2, 4, device=device)

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("npu", dtype=BF16, enabled=inside):
            return layer(x).relu()

    with torch.autocast("npu", dtype=BF16, enabled=not inside):
        out = torch.compile(layer if not inside else run, backend="eager")(x)
    out.sum().backward()
    assert out.dtype is BF16
    assert layer.weight.grad.dtype is FP32
