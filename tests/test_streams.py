"""Streams and events: what runs where, in which order, and that no buffer changes hands too early."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from torch_fl.runtime.devices import Device, device_at


@pytest.fixture
def chip(device: torch.device) -> Iterator[Device]:
    """The Device of the torch device, which is the current one during the test."""
    with torch.npu.device(device):
        ((torch.full((100,), 1.0, device="npu") + 1) * 2).fill_(2)[3].item()  # compiled before anything is held
        yield device_at(device.index)


@pytest.fixture
def stream(chip: Device) -> torch.Stream:
    """A stream besides the default one."""
    return torch.npu.Stream()


def _hold(stream: torch.Stream) -> None:
    """Let nothing that is launched on a stream from now on begin for a while, where the chip has queues to hold."""
    lane = stream._lane
    if lane.device.backend.name != "opencl":  # the double of CuPy holds everything until somebody waits
        return
    cl = pytest.importorskip("pyopencl")
    gate = cl.UserEvent(lane.device.backend.context)
    lane.queue.wait(gate)
    threading.Timer(0.15, gate.set_status, (cl.command_execution_status.COMPLETE,)).start()


# -- the objects ---------------------------------------------------------------------------------------------------
def test_names(chip: Device, stream: torch.Stream) -> None:
    assert isinstance(stream, torch.Stream)
    assert isinstance(torch.Stream(f"npu:{chip.index}"), torch.npu.Stream)
    assert isinstance(torch.Stream(torch.device("npu")), torch.npu.Stream)
    assert isinstance(torch.Event("npu"), torch.npu.Event)
    assert isinstance(torch.npu.Event(), torch.Event)
    assert stream.device == torch.device("npu", chip.index)
    again = torch.Stream(stream.stream_id, stream.device_index, stream.device_type)
    assert again == stream
    assert hash(again) == hash(stream)
    assert torch.npu.default_stream().stream_id == 0
    assert stream != torch.npu.default_stream()
    assert repr(stream) == f"<torch.npu.Stream device=npu:{chip.index} id={stream.stream_id}>"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(stream)


def test_current_stream(chip: Device, stream: torch.Stream) -> None:
    default = torch.npu.default_stream()
    assert torch.npu.current_stream() == default == torch.accelerator.current_stream()
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream == torch.accelerator.current_stream()
        with torch.npu.stream(None), default:
            assert torch.npu.current_stream() == default
        assert torch.npu.current_stream() == stream
    torch.accelerator.set_stream(stream)
    assert torch.npu.current_stream() == stream
    torch.npu.set_stream(default)
    assert torch.npu.current_stream() == default


def test_streams_are_per_thread_and_per_device(chip: Device, stream: torch.Stream) -> None:
    seen: list[torch.Stream] = []
    other = torch.device("npu", 1 - chip.index)
    with stream:
        thread = threading.Thread(target=lambda: seen.append(torch.npu.current_stream(chip.index)))
        thread.start()
        thread.join()
        assert torch.npu.current_stream(other) == torch.npu.default_stream(other)
        with torch.npu.Stream(other):
            assert torch.npu.current_device() == other.index
            assert torch.npu.current_stream(chip.index) == stream
        assert torch.npu.current_device() == chip.index
    assert seen == [torch.npu.default_stream()]


def test_streams_come_from_a_pool(chip: Device) -> None:
    ids = {torch.npu.Stream().stream_id for _ in range(40)}
    assert 1 < len(ids) <= 8
    assert 0 not in ids


def test_a_stream_of_another_device_type_is_refused(chip: Device) -> None:
    with pytest.raises(ValueError, match="Expected a stream of an npu device"):
        torch.npu.set_stream(object())
    with pytest.raises(RuntimeError, match="has no stream 1000"):
        torch.Stream(1000, chip.index, torch.npu.default_stream().device_type)


# -- order ---------------------------------------------------------------------------------------------------------
def test_synchronize_waits(chip: Device, stream: torch.Stream) -> None:
    _hold(stream)
    with stream:
        x = torch.full((100,), 9.0, device="npu")
    assert stream.query() == (chip.backend.streams is None)
    stream.synchronize()
    assert stream.query()
    assert x.tolist() == [9.0] * 100


def test_wait_stream_and_events(chip: Device, stream: torch.Stream) -> None:
    _hold(torch.npu.default_stream())
    x = torch.full((100,), 20.0, device="npu")
    stream.wait_stream(torch.npu.current_stream())
    other = torch.npu.Stream()
    with stream:
        y = x + 1
        event = stream.record_event()
    other.wait_event(event)
    with other:
        z = y * 2
        assert z.tolist() == [42.0] * 100
    assert event.query()


def test_reads_of_the_host_see_every_stream(chip: Device, stream: torch.Stream) -> None:
    _hold(stream)
    with stream:
        x = torch.full((100,), 5.0, device="npu")
    assert x.tolist() == [5.0] * 100  # from the default stream, without an event
    _hold(torch.npu.default_stream())
    x.fill_(2)
    with stream:
        assert x[3].item() == 2


def test_copies_run_beside_kernels(chip: Device, stream: torch.Stream) -> None:
    """A copy stream brings the next batch while the compute stream is busy, and orders the two by an event."""
    default = torch.npu.default_stream()
    _hold(default)
    result = torch.full((100,), 1.0, device="npu") * 2
    with stream:
        batch = torch.arange(100.0).pin_memory().to("npu", non_blocking=True)
        ready = stream.record_event()
        assert batch.tolist() == list(range(100))  # there although nothing of the default stream has run
    assert default.query() == (chip.backend.streams is None)
    default.wait_event(ready)
    batch.record_stream(default)
    assert (result + batch).tolist() == [i + 2 for i in range(100)]


def test_event_times(chip: Device) -> None:
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    _hold(torch.npu.default_stream())
    torch.full((100,), 5.0, device="npu")
    end.record()
    if not end.query():
        with pytest.raises(RuntimeError, match="must be completed"):
            start.elapsed_time(end)
    end.synchronize()
    elapsed = start.elapsed_time(end)
    assert elapsed > 100 or chip.streams.default.queue is None
    assert 0 <= elapsed < 60_000
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        start.elapsed_time(torch.npu.Event())


def test_an_event_belongs_to_one_device(chip: Device) -> None:
    event = torch.npu.Event()
    assert event.query()
    event.synchronize()
    event.wait()
    event.record()
    assert event.device == torch.device("npu", chip.index)
    with pytest.raises(RuntimeError, match="does not match recording stream's device index"):
        event.record(torch.npu.default_stream(1 - chip.index))
    torch.npu.default_stream(1 - chip.index).wait_event(event)
    with pytest.raises(NotImplementedError):
        torch.npu.Event(interprocess=True)


def test_backward_on_a_stream(chip: Device, stream: torch.Stream) -> None:
    w = torch.full((8, 8), 0.5, device="npu", requires_grad=True)
    stream.wait_stream(torch.npu.current_stream())
    _hold(stream)
    with stream:
        for value in (1.0, 2.0, 3.0):
            (torch.full((4, 8), value, device="npu") @ w).sum().backward()
        grad = w.grad * 2
    torch.npu.current_stream().wait_stream(stream)
    assert (grad + 0).tolist() == [[48.0] * 8] * 8


# -- memory --------------------------------------------------------------------------------------------------------
def test_a_freed_buffer_is_not_reused_too_early(chip: Device, stream: torch.Stream) -> None:
    """Freed on the default stream while another stream still has to read it; the next owner must wait."""
    source = torch.full((100,), 3.0, device="npu")
    stream.wait_stream(torch.npu.current_stream())
    _hold(stream)
    with stream:
        double = source * 2
    del source
    for _ in range(3):
        torch.full((100,), -1.0, device="npu")
    assert double.tolist() == [6.0] * 100


def test_a_stream_reuses_its_own_buffers(chip: Device, stream: torch.Stream) -> None:
    with stream:
        for _ in range(50):
            torch.full((100, 100), 1.0, device="npu")
    reserved = chip.reserved_bytes()
    with stream:
        for _ in range(50):
            torch.full((100, 100), 1.0, device="npu")
    assert chip.reserved_bytes() == reserved


def test_record_stream(chip: Device, stream: torch.Stream) -> None:
    with torch.npu.stream(stream):
        pass  # tracking starts with the first use
    x = torch.ones(100, device="npu")
    handle = x._buffer.handle
    x.record_stream(stream)
    with stream:
        torch.zeros(3, device="npu")
    del x
    y = torch.zeros(100, device="npu")
    if chip.backend.streams is not None and y._buffer.handle is handle:
        default = chip.streams.default
        assert default.waited[stream._lane] == stream._lane.launched
    assert y.sum().item() == 0


def test_empty_cache_of_all_streams(chip: Device, stream: torch.Stream) -> None:
    torch.npu.empty_cache()
    floor = chip.reserved_bytes()
    with stream:
        x = torch.ones(1_000_000, device="npu")
        del x
    assert chip.reserved_bytes() >= floor + 4_000_000
    torch.npu.empty_cache()
    assert chip.reserved_bytes() == floor


# -- pinned memory and loaders ------------------------------------------------------------------------------------
def test_non_blocking_copies(chip: Device, stream: torch.Stream) -> None:
    host = torch.arange(10_000.0).pin_memory()
    with stream:
        there = host.to("npu", non_blocking=True)
        back = there.to("cpu", non_blocking=True)
    host.fill_(-1)
    stream.synchronize()
    torch.testing.assert_close(back, torch.arange(10_000.0))
    there.copy_(host, non_blocking=True)
    assert there.sum().item() == -10_000


@pytest.mark.parametrize("make", [torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn])
def test_factories_of_pinned_memory(device: torch.device, make: Callable[..., torch.Tensor]) -> None:
    assert make(3, 4, pin_memory=True).shape == (3, 4)


def test_loader_with_pinned_memory(chip: Device) -> None:
    data = TensorDataset(torch.arange(64.0))
    loader = DataLoader(data, batch_size=16, pin_memory=True)
    total = sum(batch.to("npu", non_blocking=True).sum().item() for (batch,) in loader)
    assert total == 2016


@pytest.mark.device
def test_loader_with_workers(chip: Device) -> None:
    data = TensorDataset(torch.arange(64.0))
    loader = DataLoader(data, batch_size=16, pin_memory=True, num_workers=2, persistent_workers=True)
    for _ in range(2):
        assert sum(batch.to("npu", non_blocking=True).sum().item() for (batch,) in loader) == 2016


@pytest.mark.device
def test_stress(chip: Device) -> None:
    """Four threads and two streams, 100,000 ops: threads hand tensors to each other's stream and free them at once."""
    streams = [torch.npu.Stream(chip.index) for _ in range(2)]
    wrong: list[str] = []

    def work(seed: int) -> None:
        torch.npu.set_device(chip.index)
        mine, other = streams[seed % 2], streams[1 - seed % 2]
        for round in range(1150):
            start = float(seed + round % 7)
            with mine:
                x = torch.full((16, 1 + round % 5), start, device="npu")
                for _ in range(10):
                    x = x + 1
                event = mine.record_event()
            with other:
                other.wait_event(event)
                y = x * 2
                del x
                for _ in range(10):
                    y = y - 1
                if round % 50 == 0:
                    got = y.cpu()
                    if not torch.equal(got, torch.full_like(got, 2 * start + 10)):
                        wrong.append(f"thread {seed}, round {round}: {got.flatten()[:3]}")

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    torch.npu.synchronize(chip.index)
    assert not any(t.is_alive() for t in threads)
    assert wrong == []


@pytest.mark.device
def test_threads_train_on_their_streams(chip: Device) -> None:
    start = torch.nn.Linear(8, 8)

    def train(model: torch.nn.Module) -> torch.Tensor:
        x = torch.ones(4, 8, device=model.weight.device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(30):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return model.weight.detach()

    def work(found: list[torch.Tensor]) -> None:
        with torch.npu.stream(torch.npu.Stream(chip.index)):
            found.append(train(copy.deepcopy(start).to("npu")).cpu())

    found: list[torch.Tensor] = []
    threads = [threading.Thread(target=work, args=(found,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert len(found) == 4
    want = train(copy.deepcopy(start))
    for weight in found:
        torch.testing.assert_close(weight, want)
