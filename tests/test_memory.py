"""Counters, limit, peak and cache of device memory; what users see when it runs out."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import torch_fl
from torch_fl.bench.memory import cpu_peak, device_peak
from torch_fl.bench.networks import GPT, ResNet18
from torch_fl.errors import OutOfMemoryError
from torch_fl.runtime.devices import Device, device_at
from torch_fl.runtime.memory import rounded


@pytest.fixture
def chip(device: torch.device) -> Device:
    """The Device of the torch device, with nothing left to collect and a fresh peak."""
    gc.collect()
    found = device_at(device.index)
    found.reset_peak()
    return found


@pytest.fixture
def pool_options() -> Iterator[None]:
    """Puts the options of all pools back as they were."""
    yield
    torch_fl.init(memory_pool={})


def test_counters_are_exact(device: torch.device, chip: Device) -> None:
    before = chip.allocated_bytes()
    x = torch.empty(1000, device=device)
    y = torch.empty(7, dtype=torch.uint8, device=device)
    assert chip.allocated_bytes() - before == 4007
    view = x[10:].reshape(9, 110)
    del x
    assert chip.allocated_bytes() - before == 4007
    del view, y
    assert chip.allocated_bytes() == before
    assert chip.peak_bytes == before + 4007
    assert chip.reserved_bytes() >= chip.allocated_bytes()


def test_peak_reset(device: torch.device, chip: Device) -> None:
    before = chip.allocated_bytes()
    torch.empty(10_000, dtype=torch.uint8, device=device)
    assert torch.npu.max_memory_allocated(device) == before + 10_000
    torch.npu.reset_peak_memory_stats(device)
    assert torch.npu.max_memory_allocated(device) == before == torch.npu.memory_allocated(device)


def test_blocks_are_reused(device: torch.device, chip: Device) -> None:
    def once() -> None:
        for n in (100, 5000, 300_000):
            torch.empty(n, dtype=torch.uint8, device=device)

    once()
    reserved = chip.reserved_bytes()
    for _ in range(20):
        once()
    assert chip.reserved_bytes() == reserved


def test_empty_cache(device: torch.device, chip: Device) -> None:
    torch.npu.empty_cache()
    floor = chip.reserved_bytes()
    x = torch.empty(3_000_000, dtype=torch.uint8, device=device)
    del x
    assert chip.reserved_bytes() >= floor + 3_000_000
    torch.npu.empty_cache()
    assert chip.reserved_bytes() == floor


def test_limit(device: torch.device, chip: Device) -> None:
    chip.memory_limit = chip.allocated_bytes() + 1000
    try:
        x = torch.empty(900, dtype=torch.uint8, device=device)
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(200, dtype=torch.uint8, device=device)
        del x
        torch.empty(1000, dtype=torch.uint8, device=device)
    finally:
        chip.memory_limit = None
    assert isinstance(caught.value, OutOfMemoryError)
    first, *rest = str(caught.value).splitlines()
    assert first.endswith("is out of memory: 200 bytes were asked for")
    assert first.startswith(f"npu:{device.index} (")
    assert [line.split(":")[0].strip() for line in rest] == ["because", "try"]


def test_out_of_memory_names_the_five_biggest_holders(device: torch.device, chip: Device, pool_options: None) -> None:
    torch_fl.init(memory_pool={"limit": chip.allocated_bytes() + 20_000_000, "record_lines": True})
    kept = [torch.empty(n, 20_000, dtype=torch.uint8, device=device) for n in (60, 70, 80, 90, 100, 110)]
    weight = torch.nn.Parameter(torch.empty(100, 20_000, dtype=torch.int16, device=device), requires_grad=False)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(12_000_000, dtype=torch.uint8, device=device)
    text = str(caught.value)
    assert "12000000 bytes were asked for" in text
    holders = text.split("the biggest holders are ")[1].splitlines()[0].split(" | ")
    assert len(holders) == 5
    assert holders[0].startswith("4000000 bytes: parameter int16[100, 20000] from ")
    assert "test_memory.py:" in holders[0]
    assert any(h.startswith("2200000 bytes: uint8[110, 20000] from ") for h in holders)
    assert "because: the limit is" in text
    assert " are free" in text
    assert "try: a smaller batch" in text
    del kept, weight


def test_limit_collects_cycles_first(device: torch.device, chip: Device) -> None:
    chip.memory_limit = chip.allocated_bytes() + 1000
    try:
        cycle: list[object] = [torch.empty(900, dtype=torch.uint8, device=device)]
        cycle.append(cycle)
        del cycle
        torch.empty(900, dtype=torch.uint8, device=device)
    finally:
        chip.memory_limit = None


def test_more_than_the_machine_has(device: torch.device, chip: Device) -> None:
    before = chip.allocated_bytes()
    for nbytes in (chip.properties.total_memory, 1 << 50):
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            torch.empty(nbytes + 1, dtype=torch.uint8, device=device)
    assert chip.allocated_bytes() == before
    assert (torch.ones(3, device=device) + 1).tolist() == [2, 2, 2]


def test_counters_recover(device: torch.device, chip: Device) -> None:
    """A finalizer that an interrupt has hit leaves its bytes counted; they are found before an error is raised."""
    want = chip.allocated_bytes()
    chip.memory.active += 1 << 40
    chip.memory_limit = want + 100
    try:
        x = torch.empty(100, dtype=torch.uint8, device=device)
        assert chip.allocated_bytes() == want + x.numel()
    finally:
        chip.memory_limit = None


@pytest.mark.parametrize("nbytes", [1, 511, 512, 513, 640, 641, 4096, 4097, 100_003, 1 << 20, (1 << 20) + 1, 1 << 30])
def test_rounding(nbytes: int) -> None:
    room = rounded(nbytes)
    assert nbytes <= room <= max(512, nbytes * 1.25)
    assert rounded(room) == room


def test_freed_in_other_threads(device: torch.device, chip: Device) -> None:
    before = chip.allocated_bytes()

    def work(seed: int) -> None:
        kept = []
        for i in range(300):
            kept.append(torch.empty(64 * (1 + (i * seed) % 5), dtype=torch.uint8, device=device))
            if i % 3 == 0:
                kept.clear()

    threads = [threading.Thread(target=work, args=(s,)) for s in (1, 2, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert chip.allocated_bytes() == before


def test_small_reads_see_earlier_launches(device: torch.device) -> None:
    x = torch.zeros(2000, device=device)
    for i in range(50):
        x.add_(1)
        assert x[i].item() == i + 1
        x[i + 1 :].copy_(torch.full((2000 - i - 1,), float(i + 1)))


# -- options, statistics, holders ---------------------------------------------------------------------------------
def test_pool_options(device: torch.device, chip: Device, pool_options: None) -> None:
    total = chip.properties.total_memory
    torch_fl.init(memory_pool={"fraction": 0.5, "limit": total})
    assert chip.memory_limit == total // 2
    assert torch.npu.get_per_process_memory_fraction(device) == pytest.approx(0.5)
    torch_fl.init(memory_pool={"cache_limit": 0})
    assert chip.memory_limit is None
    torch.npu.empty_cache()
    floor = chip.reserved_bytes()
    for n in range(1, 6):
        torch.empty(n * 100_000, dtype=torch.uint8, device=device)
    assert chip.reserved_bytes() <= floor + rounded(500_000)  # a free block goes when the next is made
    torch_fl.init(memory_pool={})
    torch.npu.set_per_process_memory_fraction(0.25, device)
    assert chip.memory_limit == total // 4


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"limt": 1}, TypeError, "did you mean 'limit'"),
        ({"limit": "2 GB"}, TypeError, "number of bytes"),
        ({"limit": -1}, ValueError, "must not be negative"),
        ({"fraction": 1}, TypeError, "must be `float`"),
        ({"fraction": 1.5}, ValueError, "Allowed range: 0~1"),
    ],
)
def test_wrong_pool_options(options: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        torch_fl.init(memory_pool=options)


def test_limit_holds_for_what_is_taken_from_the_driver(device: torch.device, chip: Device, pool_options: None) -> None:
    torch.npu.empty_cache()
    limit = chip.reserved_bytes() + 1_000_000
    torch_fl.init(memory_pool={"limit": limit})
    for n in range(1, 10):
        torch.empty(n * 100_000, dtype=torch.uint8, device=device)
        assert chip.reserved_bytes() <= limit


def test_stats(device: torch.device, chip: Device) -> None:
    torch.npu.empty_cache()
    torch.npu.reset_accumulated_memory_stats(device)
    before = torch_fl.memory.stats(device)
    x = torch.empty(5000, dtype=torch.uint8, device=device)
    y = torch.empty(7000, dtype=torch.uint8, device=device)
    del y
    after = torch_fl.memory.stats(device)
    assert after.allocated - before.allocated == 5000
    assert after.live - before.live == 1
    assert (after.allocations - before.allocations, after.frees - before.frees) == (2, 1)
    assert after.driver_allocations - before.driver_allocations == 2
    assert after.cached - before.cached == rounded(7000)
    assert after.reserved - before.reserved == rounded(5000) + rounded(7000)
    assert after.fragmentation == 1 - after.allocated / after.reserved
    flat = torch.npu.memory_stats(device)
    assert flat["allocated_bytes.all.current"] == after.allocated
    assert flat["allocation.all.allocated"] == after.allocations
    assert flat["allocated_bytes.all.freed"] == flat["allocated_bytes.all.allocated"] - after.allocated
    assert flat["segment.all.current"] == after.driver_allocations - after.driver_frees
    assert list(flat) == sorted(flat)
    del x


def test_snapshot(device: torch.device, chip: Device) -> None:
    torch_fl.memory.record_lines()
    try:
        x = torch.empty(123, 7, device=device)
        view = x[1:]
        (found,) = [h for h in torch_fl.memory.snapshot(device) if h.nbytes == 123 * 7 * 4]
        assert found.shapes == ((123, 7), (122, 7))
        assert found.dtypes == ("float32", "float32")
        assert found.line.endswith(f"test_memory.py:{test_snapshot.__code__.co_firstlineno + 3}")
        assert not found.is_parameter
        assert any(h["shapes"] == found.shapes and h["line"] == found.line for h in torch.npu.memory_snapshot())
        del view
    finally:
        torch_fl.memory.record_lines(False)


def test_defragment(device: torch.device, chip: Device) -> None:
    x = torch.arange(1000, device=device)
    for n in (10_000, 20_000, 3_000_000):
        torch.empty(n, dtype=torch.uint8, device=device)
    (done,) = torch_fl.memory.defragment(device)
    assert done.freed >= 3_030_000
    assert done.after.cached == 0
    assert done.after.fragmentation < done.before.fragmentation
    assert torch.equal(x.cpu(), torch.arange(1000))
    assert len(torch_fl.memory.defragment()) == torch_fl.device_count()


def test_summary(device: torch.device) -> None:
    x = torch.empty(3_000_000, device=device)
    text = torch.npu.memory_summary(device)
    assert "Allocated memory" in text
    assert "12000000 bytes: float32[3000000]" in text
    assert "float32" not in torch.npu.memory_summary(device, abbreviated=True)
    del x


@pytest.mark.parametrize("make", [torch.optim.AdamW, partial(torch.optim.SGD, lr=0.1, momentum=0.9)])
def test_foreach_optimizers_need_little(
    device: torch.device, chip: Device, make: Callable[..., torch.optim.Optimizer]
) -> None:
    """Their temporaries are as large as a group of parameters; values are those of the CPU."""
    start, steps = torch.randn(32, 128, 512), torch.randn(3, 32, 128, 512)
    here, there = ([torch.nn.Parameter(p.to(d)) for p in start] for d in ("cpu", device))
    for params in (here, there):
        optimizer = make(params, foreach=True)
        for grads in steps:
            for p, g in zip(params, grads):
                p.grad = g.to(p.device)
            chip.reset_peak()
            optimizer.step()
    assert chip.peak_bytes - chip.allocated_bytes() <= start.nbytes // 4
    torch.testing.assert_close([p.cpu() for p in there], here)


# -- peak of a training run, against torch's CPU allocator --------------------------------------------------------
def _train(optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> None:
    for _ in range(3):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def _resnet(device: str, optimizer: Callable[..., torch.optim.Optimizer]) -> None:
    model = ResNet18(10).to(device)
    x, y = torch.randn(4, 3, 64, 64).to(device), torch.arange(4).to(device)
    _train(optimizer(model.parameters()), lambda: F.cross_entropy(model(x), y))


def _resnet_sgd(device: str) -> None:
    _resnet(device, partial(torch.optim.SGD, lr=0.1, momentum=0.9))


def _resnet_adamw(device: str) -> None:
    _resnet(device, torch.optim.AdamW)


def _gpt(device: str) -> None:
    model = GPT(4, 128, 4, 256, 128).to(device)
    x, y = (torch.randint(0, 256, (8, 128)).to(device) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters())
    _train(optimizer, lambda: F.cross_entropy(model(x)[0].flatten(0, 1), y.flatten()))


@pytest.mark.model
@pytest.mark.parametrize("train", [_resnet_sgd, _resnet_adamw, _gpt])
def test_peak_of_training(device: torch.device, chip: Device, train: Callable[[str], None]) -> None:
    """Model, gradients, optimizer state and activations of three steps take at most 1.10 times what they take there."""
    assert device_peak(lambda: train(str(device)), device) <= 1.10 * cpu_peak(lambda: train("cpu"))
