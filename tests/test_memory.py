"""Counters, limit, peak and cache of device memory; what users see when it runs out."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

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
