"""Code that knows nothing of this device: data loaders, torch.accelerator, torch.func, checkpoints, DLPack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from conftest import assert_same, to
from subprocesses import output_of
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


@pytest.fixture
def current(device: torch.device) -> Iterator[torch.device]:
    """The device, made the current one."""
    with torch.npu.device(device):
        yield device


# -- pinned memory --------------------------------------------------------------------------------------------------
def test_pin_memory_gives_the_same_values_in_new_memory() -> None:
    x = torch.arange(6.0).view(2, 3).t()
    pinned = x.pin_memory()
    torch.testing.assert_close(pinned, x, check_stride=True)
    assert pinned.data_ptr() != x.data_ptr()
    assert not x.is_pinned()
    y = torch.ones(3, requires_grad=True)
    y.pin_memory().sum().backward()
    torch.testing.assert_close(y.grad, torch.ones(3))


@pytest.mark.parametrize("workers", [0, 1])
def test_data_loaders_that_pin(device: torch.device, workers: int) -> None:
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    loader = DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
    got = [(x.to(device, non_blocking=True), y.to(device, non_blocking=True)) for x, y in loader]
    assert [y.tolist() for _, y in got] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert torch.cat([x for x, _ in got]).tolist() == list(range(8))


# -- torch.accelerator ----------------------------------------------------------------------------------------------
def test_accelerator_memory(current: torch.device) -> None:
    accelerator = torch.accelerator
    index = current.index
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    before = accelerator.memory_allocated()
    held = torch.empty(1 << 20, dtype=torch.uint8, device=current)
    assert accelerator.memory_allocated() == before + held.numel() == torch.npu.memory_allocated(index)
    del held
    assert accelerator.memory.memory_allocated(current) == before
    assert accelerator.max_memory_allocated(str(current)) == before + (1 << 20)
    reserved = accelerator.memory_reserved(index)
    accelerator.empty_cache()
    accelerator.empty_host_cache()
    assert accelerator.memory_reserved(index) < reserved <= accelerator.max_memory_reserved(index)
    stats = accelerator.memory_stats()
    assert stats["allocated_bytes.all.current"] == before
    assert stats["allocated_bytes.all.peak"] == before + (1 << 20)
    assert stats["reserved_bytes.all.peak"] == accelerator.max_memory_reserved()
    free, total = accelerator.get_memory_info()
    assert 0 < free <= total


def test_accelerator_device(current: torch.device) -> None:
    accelerator = torch.accelerator
    assert accelerator.is_available()
    assert accelerator.device_count() == torch.npu.device_count()
    assert accelerator.current_accelerator() == torch.device("npu")
    assert accelerator.current_device_index() == current.index
    with accelerator.device_index(0):
        assert torch.npu.current_device() == accelerator.current_device_index() == 0
    with accelerator.device_index(None):
        assert accelerator.current_device_index() == current.index
    accelerator.set_device_index(0)
    assert torch.empty(1, device="npu").get_device() == 0
    accelerator.set_device_index(current)
    assert torch.npu.current_device() == current.index
    accelerator.synchronize()
    accelerator.synchronize(current)


def test_accelerator_capability_names_dtypes_that_work(current: torch.device) -> None:
    dtypes = torch.accelerator.get_device_capability(current)["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64} < dtypes
    for dtype in dtypes:
        x = torch.ones(3, dtype=dtype)
        torch.testing.assert_close(x.to(current).cpu(), x)


def test_other_accelerators_are_asked_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_accelerator_getAccelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch._C, "_accelerator_getDeviceIndex", lambda: 7)
    monkeypatch.setattr(torch._C, "_accelerator_isAllocatorInitialized", lambda: False)
    assert torch.accelerator.current_device_index() == 7
    assert torch.accelerator.memory_allocated() == 0
    assert not torch.accelerator.memory_stats()


# -- function transforms --------------------------------------------------------------------------------------------
def _energy(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).tanh().square().sum()


_JIT = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode


@_JIT
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.hessian])
def test_transforms(device: torch.device, transform: Any) -> None:
    torch.manual_seed(0)
    assert_same(transform(_energy), torch.randn(3), torch.randn(3, 2), device=device)


@_JIT
def test_vmap_and_per_sample_gradients(device: torch.device) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(4, 3), torch.randn(3, 2)
    assert_same(torch.func.vmap(lambda row: row * 2 + row.sum()), x, device=device)
    assert_same(torch.func.vmap(torch.func.grad(_energy, argnums=1), in_dims=(0, None)), x, w, device=device)
    assert_same(lambda a, b: torch.func.jvp(torch.sin, (a,), (b,)), x, torch.ones_like(x), device=device)


def test_functional_call(device: torch.device) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    state = {k: v.detach() for k, v in model.state_dict().items()}

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (x,)).square().sum()

    x = torch.randn(4, 3)
    want, got = torch.func.grad(loss)(state, x), torch.func.grad(loss)(to(state, device), x.to(device))
    torch.testing.assert_close(to(got, "cpu"), want)


def test_transforms_under_autocast(device: torch.device) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(4, 3, device=device), torch.randn(3, 2, device=device)
    with torch.autocast("npu", dtype=torch.bfloat16):
        rows = torch.func.vmap(lambda row: row @ w)(x)
        gradient = torch.func.grad(_energy)(x, w)
    assert rows.dtype is torch.bfloat16
    assert gradient.dtype is torch.float32
    torch.testing.assert_close(rows.float(), x @ w, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(gradient, torch.func.grad(_energy)(x, w), rtol=5e-2, atol=5e-2)


# -- autograd's neighbours ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("region", [False, True], ids=["float32", "autocast"])
def test_checkpoint_recomputes_the_same(device: torch.device, reentrant: bool, region: bool) -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 4)).to(device)
    grads = []
    for run in (block, lambda x: checkpoint(block, x, use_reentrant=reentrant)):
        torch.manual_seed(3)
        x = torch.linspace(-1, 1, 12, device=device).view(3, 4).requires_grad_()
        with torch.autocast("npu", dtype=torch.bfloat16, enabled=region):
            out = run(x)
        assert (out.dtype is torch.bfloat16) == region
        out.float().square().sum().backward()
        grads.append([x.grad, *(p.grad.clone() for p in block.parameters())])
        block.zero_grad()
    torch.testing.assert_close(grads[1], grads[0])


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * factor

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 2 * x * ctx.factor, None


def test_custom_functions_and_hooks(device: torch.device) -> None:
    assert_same(lambda x: _Scaled.apply(x, 3.0), torch.randn(4, requires_grad=True), device=device)
    x = torch.ones(3, device=device, requires_grad=True)
    seen: list[Any] = []
    x.register_hook(lambda grad: grad * 10)
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    layer = nn.Linear(3, 1, device=device)
    layer.register_forward_hook(lambda module, args, out: out * 2)
    layer.register_full_backward_hook(lambda module, grad_in, grad_out: seen.append(grad_out[0].tolist()))
    layer(x).sum().backward()
    want = (20 * layer.weight.detach()).flatten().tolist()
    assert seen == [[1.0], pytest.approx(want)]


def test_profiler_names_ops() -> None:
    code = """
import torch
from torch.profiler import ProfilerActivity, profile, record_function
x = torch.ones(4, 4, device="npu")
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded, record_function("mine"):
    (x @ x).relu().sum().item()
print(*(e.key for e in recorded.key_averages()))
"""
    names = output_of(code, TORCH_FL_BACKENDS="host").split()
    assert {"mine", "aten::mm", "aten::relu", "aten::sum", "aten::item"} <= set(names)


# -- export of pointers ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("export", [torch.to_dlpack, torch.utils.dlpack.to_dlpack, torch.Tensor.__dlpack__])
def test_no_capsule_over_a_null_pointer(device: torch.device, export: Any) -> None:
    x = torch.ones(2, device=device)
    with pytest.raises(BufferError, match=r"no pointer.*cpu\(\)"):
        x.__dlpack__() if export is torch.Tensor.__dlpack__ else export(x)
    with pytest.raises(BufferError, match="no pointer"):
        numpy.from_dlpack(x)
    with pytest.raises((BufferError, ValueError)):
        torch.from_dlpack(x)


def test_host_tensors_are_exported_as_before() -> None:
    x = torch.arange(3.0)
    torch.testing.assert_close(torch.from_dlpack(torch.to_dlpack(x)), x)
    numpy.testing.assert_array_equal(numpy.from_dlpack(x), x.numpy())
