"""`torch.npu` and `torch.accelerator`: torch.cuda's functions under their names, and where tensors land."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator

import pytest
import torch
from subprocesses import output_of

import torch_fl
from torch_fl import migration

NAMES = """
    is_available is_initialized init device_count current_device set_device device device_of get_device_name
    get_device_properties get_device_capability mem_get_info synchronize Stream Event StreamContext stream set_stream
    current_stream default_stream memory_allocated max_memory_allocated memory_reserved max_memory_reserved
    memory_cached max_memory_cached memory_stats memory_stats_as_nested_dict memory_summary memory_snapshot empty_cache
    reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats
    set_per_process_memory_fraction get_per_process_memory_fraction get_allocator_backend manual_seed manual_seed_all
    seed seed_all initial_seed get_rng_state get_rng_state_all set_rng_state set_rng_state_all is_bf16_supported
    is_tf32_supported can_device_access_peer utilization ipc_collect is_current_stream_capturing get_arch_list amp
    OutOfMemoryError
""".split()  # noqa: SIM905 - names read better without quotes


@pytest.fixture
def other(device: torch.device) -> torch.device:
    """Another chip than `device`."""
    return torch.device("npu", 1 - device.index)


@pytest.fixture
def policy() -> Iterator[None]:
    """Puts the migration policy back."""
    before = migration.get_migration()
    yield
    torch_fl.set_migration(before)


# -- the module ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_of_cuda(name: str) -> None:
    ours, theirs = getattr(torch.npu, name), getattr(torch.cuda, name)
    assert callable(ours) == callable(theirs)
    if inspect.isfunction(ours) and inspect.isfunction(theirs):
        assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'current_blas_handle'"):
        torch.npu.current_blas_handle()


def test_current_device(device: torch.device) -> None:
    assert torch.npu.current_device() == 0
    with torch.npu.device(device):
        assert torch.npu.current_device() == device.index == torch.accelerator.current_device_index()
        with torch.npu.device(-1), torch.npu.device(None):
            assert torch.npu.current_device() == device.index
        with torch.npu.device_of(torch.ones(3, device="npu:0")):
            assert torch.npu.current_device() == 0
        with torch.npu.device_of(torch.ones(3)):
            assert torch.npu.current_device() == device.index
    torch.npu.set_device(-1)
    assert torch.npu.current_device() == 0


def test_properties(device: torch.device) -> None:
    found = torch.npu.get_device_properties(device)
    assert found.name == torch.npu.get_device_name(device)
    assert found.total_memory == torch.npu.mem_get_info(device)[1] > 0
    assert found.multi_processor_count >= 1
    assert found.vendor
    assert found.driver
    assert (found.major, found.minor) == found.capability == torch.npu.get_device_capability(device)
    assert found.fp64
    assert {type(found.fp16), type(found.bf16)} == {bool}
    assert (found.pci_domain_id, found.pci_bus_id, found.pci_device_id) == (-1, -1, -1)  # CPUs are on no bus
    assert found.is_integrated


def test_devices_are_uniform(device: torch.device) -> None:
    chip = torch_fl.devices()[device.index]
    total, used, free = chip.memory_info()
    assert chip.name == torch.npu.get_device_name(device)
    assert chip.capability == torch.npu.get_device_capability(device)
    assert total == used + free == chip.memory_info().total
    assert 0 < free <= total - chip.reserved_bytes()


def test_errors_are_those_of_cuda(device: torch.device) -> None:
    for function in (torch.npu.get_device_properties, torch.npu.get_device_name, torch.npu.get_device_capability):
        with pytest.raises(AssertionError, match="Invalid device id"):
            function(99)
    for function in (torch.npu.set_device, torch.npu.synchronize, torch.npu.memory_stats, torch.npu.mem_get_info):
        with pytest.raises(RuntimeError, match="npu:99 does not exist: this machine has 2"):
            function(99)
        with pytest.raises(ValueError, match=r"Expected an? npu device, but got: cpu"):
            function("cpu")
    with pytest.raises(RuntimeError, match="npu:99 does not exist"):
        torch.ones(3, device="npu:99")
    with pytest.raises(TypeError, match="must be `float`"):
        torch.npu.set_per_process_memory_fraction(1, device)
    with pytest.raises(ValueError, match="Allowed range: 0~1"):
        torch.npu.set_per_process_memory_fraction(2.0, device)
    with pytest.raises(NotImplementedError, match="does not tell how busy"):
        torch.npu.utilization(device)


def test_amp_module(device: torch.device) -> None:
    with torch.npu.device(device), torch.npu.amp.autocast(dtype=torch.bfloat16):
        x = torch.ones(3, 3, device="npu")
        assert (x @ x).dtype == torch.bfloat16
    assert torch.npu.amp.GradScaler().get_scale() == 65536.0


def test_accelerator(device: torch.device) -> None:
    with torch.accelerator.device_index(device.index):
        assert torch.accelerator.current_device_index() == device.index
        assert torch.accelerator.get_memory_info(device.index) == torch.npu.mem_get_info(device)
        x = torch.ones(1000, device="npu")
        torch.accelerator.synchronize()
        assert torch.accelerator.memory_allocated() == torch.npu.memory_allocated() >= 4000
        assert torch.accelerator.memory_stats() == torch.npu.memory_stats()
        assert x.device == torch.device("npu", device.index)
    assert torch.accelerator.current_device_index() == 0


# -- where tensors land --------------------------------------------------------------------------------------------
def test_a_name_without_an_index_means_the_current_device(device: torch.device) -> None:
    host, linear = torch.ones(3), torch.nn.Linear(2, 2)
    with torch.npu.device(device):
        made = [
            torch.ones(3, device="npu"), torch.arange(3, device="npu"), torch.tensor([1], device="npu"),
            torch.as_tensor([1.0], device="npu"), torch.randn(3, device=torch.device("npu")), host.to("npu"),
            host.to(device="npu"), host.to("npu", torch.float16), host.npu(), linear.to("npu").weight,
            torch.eye(3, device="npu"), torch.linspace(0, 1, 3, device="npu"), host.to("npu:0").to("npu"),
        ]  # fmt: skip
        with torch.device("npu"):
            made += [torch.ones(3), torch.tensor([1])]
        assert host.to("npu:0").device.index == 0
    assert [t.device for t in made] == [device] * len(made)


def test_to_the_device_of_another_tensor(device: torch.device) -> None:
    like = torch.ones(3, device=device, dtype=torch.float64)
    host = torch.ones(3)
    for found in (host.to(like), host.type_as(like), host.to("npu:0").to(like)):
        assert (found.device, found.dtype) == (device, torch.float64)
    assert like.to(host).device == torch.device("cpu")
    assert like.to(device) is like


# -- two chips -----------------------------------------------------------------------------------------------------
def test_gradients_come_back_from_another_chip(device: torch.device, other: torch.device) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    (x.to(other) * 2).sum().backward()
    assert x.grad.device == device
    assert x.grad.tolist() == [2, 2, 2]


def test_the_smaller_tensor_moves(device: torch.device, other: torch.device) -> None:
    small = torch.ones(3, device=device, requires_grad=True)
    large = torch.full((4, 3), 2.0, device=other, requires_grad=True)
    count, nbytes = migration.counts()
    with torch_fl.trace() as trace:
        product = small * large
    assert product.device == other
    assert migration.counts() == (count + 1, nbytes + 12)
    assert "migrate" in [r.route for r in trace.records]
    product.sum().backward()
    assert small.grad.device == device
    assert small.grad.tolist() == [8, 8, 8]
    assert large.grad.device == other
    found = torch.autograd.grad((small * large).sum(), [small, large])
    assert [g.device for g in found] == [device, other]
    small.data.add_(torch.ones(3, device=other))
    assert small.device == device


def test_migration_policies(device: torch.device, other: torch.device, policy: None) -> None:
    a, b = torch.ones(3, device=device), torch.ones(4, 3, device=other)
    torch_fl.set_migration("error")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        a + b
    b[torch.tensor([0, 1])] += 1  # indices on the CPU are no migration
    torch_fl.set_migration("warn")
    migration._State.warned.clear()
    with pytest.warns(torch_fl.MigrationWarning, match=r"aten::sub.Tensor: 1 tensor\(s\) moved from npu") as caught:
        a - b
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a - b  # once per op
    with pytest.raises(ValueError, match="set_migration takes one of"):
        torch_fl.set_migration("allow")


@pytest.mark.device
def test_two_chips_of_one_driver() -> None:
    code = """
import torch, torch_fl
x = torch.arange(4.0, device="npu:0", requires_grad=True)
with torch.npu.device(1):
    w = torch.full((4,), 3.0).to("npu")
    y = (x.to("npu") * w).sum()
y.backward()
print(w.device, y.device, x.grad.device, x.grad.tolist(), w.to("npu:1") is w)
streams = [torch.npu.Stream(i) for i in (0, 1)]
event = torch.npu.Event()
with streams[0]:
    a = x.detach() * 2
    event.record()
with streams[1]:
    event.wait()
    b = a.to("npu:1") + w
print(b.tolist(), b.device)
"""
    text = output_of(code, TORCH_FL_BACKENDS="opencl", POCL_DEVICES="pthread pthread")
    assert text == "npu:1 npu:1 npu:0 [3.0, 3.0, 3.0, 3.0] True\n[3.0, 5.0, 7.0, 9.0] npu:1\n"


@pytest.mark.skipif(torch.npu.device_count() < 2, reason="needs two chips")
@pytest.mark.parametrize("other", [0, 1])
def test_likenesses_go_to_the_chip_that_is_named(device: torch.device, other: int) -> None:
    x = torch.ones(2, 3, device=device).t()
    with torch.npu.device(other):
        for named in ("npu", f"npu:{other}", torch.device("npu", other)):
            for made in (
                torch.zeros_like(x, device=named), torch.randn_like(x, device=named, dtype=torch.float16),
                torch.full_like(x, 7, device=named), x.new_zeros(3, 2, device=named), x.new_tensor([1.0], device=named),
            ):  # fmt: skip
                assert made.device.index == other
        assert torch.zeros_like(x, device=f"npu:{other}").stride() == x.stride()
        assert torch.zeros_like(x).device == x.new_zeros(1).device == x.new([1.0]).device == device
        assert torch.zeros_like(x, device="cpu").device.type == "cpu"
