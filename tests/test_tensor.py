"""What a device tensor shows to Python: device, conversion, printing, moves between chips."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import torch_fl


def other_device(device: torch.device) -> torch.device:
    if torch.npu.device_count() < 2:
        pytest.skip("needs two devices")
    return torch.device("npu", 1 - device.index)


def test_moves_between_chips_carry_gradients_back(device: torch.device) -> None:
    there = other_device(device)
    x = torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    y = (x * 2).to(there)
    assert y.device == there
    z = (y * y).to("cpu")
    z.backward(torch.ones(3))
    assert x.grad.device == device
    torch.testing.assert_close(x.grad.cpu(), torch.tensor([8.0, 16.0, 24.0]))


def test_a_move_to_where_it_is_returns_itself(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    assert x.to(device) is x
    assert x.to(device, torch.float32) is x
    assert x.to(device, copy=True) is not x
    assert x.to(x) is x


@pytest.mark.usefixtures("allow_fallback")
def test_every_form_of_to(device: torch.device) -> None:
    x = torch.tensor([1.5, 2.5], device=device)
    assert x.to(torch.int32).device == device
    assert x.to(device, torch.float16).dtype == torch.float16
    assert x.to(device=device, dtype=torch.float16).device == device
    assert x.to("cpu", torch.float64).dtype == torch.float64
    assert x.to(torch.zeros(1, dtype=torch.int64)).device.type == "cpu"
    assert x.to(torch.zeros(1, dtype=torch.int64)).dtype == torch.int64
    assert x.cpu().device.type == "cpu"
    if device.index == 0:  # to C++ every chip is index 0: a host tensor cannot learn another one from `x`
        assert torch.ones(2).to(x).device == device
    assert torch.ones(2).npu(device.index).device == device
    channels = torch.ones(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last)
    assert channels.is_contiguous(memory_format=torch.channels_last)


def test_host_access_says_what_cuda_says(device: torch.device) -> None:
    x = torch.arange(4.0, device=device).view(2, 2)
    with pytest.raises(TypeError, match=r"can't convert npu:\d device type tensor to numpy"):
        x.numpy()
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert x.numpy(force=True).shape == (2, 2)
    assert x.get_device() == device.index
    assert f"{x[1, 1]:.1f}" == "3.0"
    assert [float(v) for v in x[1]] == [2.0, 3.0]


def test_printing_needs_no_kernel(device: torch.device) -> None:
    x = torch.arange(3, device=device)
    assert repr(x) == f"tensor([0, 1, 2], device='{device}')"
    half = torch.ones(1, dtype=torch.float16, device=device)
    assert repr(half) == f"tensor([1.], device='{device}', dtype=torch.float16)"
    leaf = torch.ones(1, device=device, requires_grad=True)
    assert repr(leaf) == f"tensor([1.], device='{device}', requires_grad=True)"
    assert "grad_fn=<MulBackward0>" in repr(leaf * 2)
    assert repr(torch.empty(0, 2, device=device)) == f"tensor([], device='{device}', size=(0, 2))"


def test_data_is_replaced_in_place(device: torch.device) -> None:
    x = torch.nn.Parameter(torch.ones(2, device=device))
    x.data = torch.zeros(3, device=device)
    assert x.shape == (3,)
    assert x.tolist() == [0.0, 0.0, 0.0]
    x.data = torch.ones(2)
    assert x.device.type == "cpu"
    assert isinstance(x, torch.nn.Parameter)


def test_resize_and_set(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    x.resize_(2, 4)
    assert x.shape == (2, 4)
    assert x.view(-1)[:4].tolist() == [0.0, 1.0, 2.0, 3.0]
    y = torch.empty(0, device=device)
    y.set_(x)
    y[0, 0] = 9.0
    assert x[0, 0].item() == 9.0


def test_inplace_views_change_the_tensor(device: torch.device) -> None:
    x = torch.arange(6.0, device=device).view(2, 3)
    x.t_()
    assert x.shape == (3, 2)
    assert x.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    x.unsqueeze_(0).squeeze_(0)
    assert x.shape == (3, 2)


def test_as_strided_stays_inside_the_buffer(device: torch.device) -> None:
    x = torch.arange(6.0, device=device)
    assert x[2:].as_strided((2,), (1,), 0).tolist() == [0.0, 1.0]
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.as_strided((10,), (1,))


def test_partial_overlap_is_refused(device: torch.device) -> None:
    x = torch.ones(5, device=device)
    with pytest.raises(RuntimeError, match="single memory location"):
        x[1:].add_(x[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1, device=device).expand(3).add_(1)


@pytest.mark.usefixtures("allow_fallback")
def test_every_write_moves_the_version_counter(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    writes = {
        "method": lambda: x.mul_(2),
        "out": lambda: torch.add(x, 1, out=x),
        "foreach": lambda: torch._foreach_mul_([x], 3.0),
        "view": lambda: x[1:].zero_(),
    }
    for name, write in writes.items():
        before = x._version
        write()
        assert x._version > before, name


def test_deepcopy_keeps_shared_memory_shared(device: torch.device) -> None:
    base = torch.zeros(4, device=device)
    twin, view = copy.deepcopy((base, base[1:]))
    view.add_(1)
    assert twin.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert base.tolist() == [0.0] * 4


@pytest.mark.usefixtures("allow_fallback")
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_is_stored_here_and_cast_on_the_cpu(device: torch.device, dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 7)
    assert x.to(device).to(dtype).device == device
    assert x.to(device).to(dtype).float().tolist() == x.to(dtype).float().tolist()
    assert repr(x.to(device).to(dtype)).startswith("tensor([-3., -2., ")


@pytest.mark.usefixtures("allow_fallback")
def test_sparse_and_quantized_results_are_cpu_tensors(device: torch.device) -> None:
    x = torch.eye(3, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that quantized tensors will go
        quantized = torch.quantize_per_tensor(x, 0.5, 0, torch.quint8)
    assert x.to_sparse().device.type == quantized.device.type == "cpu"
    assert quantized.dequantize().tolist() == x.to_sparse().to_dense().tolist() == x.tolist()


def test_fake_tensors_say_that_they_are_here(device: torch.device) -> None:
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2, 3, device=device))
        assert (fake.detach() @ fake.t()).device.type == torch.empty(2, device=device).device.type == "npu"


def test_a_model_is_exported(device: torch.device) -> None:
    model, x = torch.nn.Linear(3, 2).to(device), torch.ones(4, 3, device=device)
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(2 * x), model(2 * x))
    assert exported(x).device == device


def test_nested_tensors(device: torch.device) -> None:
    """Of the strided layout torch would end the process."""
    parts = [torch.ones(2, 3, device=device, requires_grad=True), torch.ones(4, 3, device=device)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert (jagged * 2).values().sum().item() == 36
    with pytest.raises(torch_fl.Error, match=r"layout=torch\.jagged"):
        torch.nested.as_nested_tensor(parts, layout=torch.strided)
