"""Short launches on PoCL run in the thread that launches them, after everything before them, and nobody can tell."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from subprocesses import output_of
from torch_fl.backends import _opencl_inline as module
from torch_fl.backends._opencl_inline import WARM, Inline, Program

from torch_fl.dispatch import op_of
from torch_fl.runtime.devices import devices


class Fake:
    """A queue, a thread and a block of memory at once, and what was submitted."""

    def __init__(self, clear: bool = True, nbytes: int = 64) -> None:
        self.lock, self.heavy, self.waiting, self.last = threading.RLock(), not clear, [], None if clear else object()
        self.bytes, self.driver, self.device = memoryview(bytearray(nbytes)), "here", "basic"
        self.ran: list[Any] = []

    def idle(self) -> bool:
        return not self.heavy

    clear = idle

    def finish(self) -> None:
        assert not self.heavy

    def built(self, program: Program) -> Any:
        return program

    def inline(self) -> Inline:
        def submit(*launch: Any) -> None:
            self.ran.append(launch)

        return Inline(self, self, Program(lambda devices: devices, None), lambda built: submit)  # type: ignore[arg-type]


def _launch(inline: Inline, block: Fake, times: int) -> list[bool]:
    return [inline.run is not None and inline.run([block], [0], []) for _ in range(times)]


def test_a_short_launch_moves_here_once_it_is_used_often() -> None:
    fake = Fake()
    inline = fake.inline()
    assert _launch(inline, fake, 2 * WARM + module._TRIALS) == [False] * WARM + [True] * (WARM + module._TRIALS)
    assert fake.ran[-1] == ("here", [fake], [0], [])
    fake.last, fake.heavy = object(), True
    assert _launch(inline, fake, 1) == [False]
    fake.heavy = False
    assert _launch(inline, fake, 1) == [True]


def test_trust_is_told_once() -> None:
    """A thread that looked `run` up before another one's launch settled it comes late."""
    fake, told = Fake(), []
    inline = fake.inline()
    inline.when_trusted = lambda *of: told.append(of)
    late = inline.run
    for _ in range(2 * WARM + module._TRIALS):
        assert late is not None
        late([fake], [0], [])
    assert len(told) == 1


def test_nothing_runs_here_before_what_is_in_flight() -> None:
    fake = Fake(clear=False)
    assert not any(_launch(fake.inline(), fake, 2 * WARM))


def test_a_long_launch_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SECONDS", -1)
    fake = Fake()
    inline = fake.inline()
    assert _launch(inline, fake, 2 * WARM).count(True) == module._PATIENCE
    assert inline.run is None


def test_a_large_launch_is_never_tried() -> None:
    fake = Fake(nbytes=module.MAX_BYTES + 1)
    inline = fake.inline()
    assert not any(_launch(inline, fake, 2 * WARM))
    assert inline.run is None


# -- on the device -------------------------------------------------------------------------------------------------
def test_small_ops_see_what_large_ones_wrote(device: torch.device) -> None:
    x = torch.ones(1 << 20, device=device)
    small = torch.zeros(3, device=device)
    got = []
    for i in range(4 * WARM):
        total = (x * i).sum()  # long, into a small buffer
        small = small + total  # short, behind it
        got.append(torch.add(small[1:], small[:2], alpha=i))
    want, s = [], 0.0
    for i in range(4 * WARM):
        s += i * (1 << 20)
        want.append([s + i * s] * 2)
    torch.testing.assert_close(torch.stack(got).cpu(), torch.tensor(want))


def test_large_ops_see_what_small_ones_wrote(device: torch.device) -> None:
    scale = torch.ones((), device=device)
    for _ in range(4 * WARM):
        scale = scale + 1
        total = (torch.ones(1 << 18, device=device) * scale).sum()
    assert total.item() == (4 * WARM + 1) * (1 << 18)


def test_threads(device: torch.device) -> None:
    found: dict[int, torch.Tensor] = {}

    def count(by: int) -> None:
        x = torch.zeros(4, device=device)
        for i in range(200):
            x = x + by if i % 50 else x + torch.full((1 << 16,), float(by), device=device)[:4]
        found[by] = x.cpu()

    threads = [threading.Thread(target=count, args=(by,)) for by in (1, 2, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for by in (1, 2, 3):
        torch.testing.assert_close(found[by], torch.full((4,), 200.0 * by))


def test_a_short_launch_is_in_c_from_then_on(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets and numbers change between the launches."""
    monkeypatch.setattr(module, "MAX_SECONDS", 60)
    chip = devices()[device.index]
    chip.synchronize()
    monkeypatch.setattr(chip.backend, "streams", None)  # as before any stream of an earlier test
    op_of(torch.ops.aten.add.Tensor).plans.clear()
    x = torch.arange(6.0, device=device)
    want = torch.arange(6.0)
    for i in range(6 * WARM):
        y = torch.add(x[i % 3 :][:3], x[:3], alpha=i)
        torch.testing.assert_close(y.cpu(), torch.add(want[i % 3 :][:3], want[:3], alpha=i))
    op = op_of(torch.ops.aten.add.Tensor)
    step = op.plans[op.bind((x[:3], x[:3]), {"alpha": 2})[0]].steps[0]  # type: ignore[union-attr]
    assert getattr(step, "armed", 1)


@pytest.mark.skipif(all(d.backend.name != "opencl" for d in devices()), reason="no OpenCL device")
@pytest.mark.parametrize("chosen", ["", "pthread"])
def test_one_chip_and_the_environment_as_it_was(chosen: str) -> None:
    code = "import os, torch, torch_fl; print(torch.npu.device_count(), os.environ.get('POCL_DEVICES', ''))"
    environment = {"POCL_DEVICES": chosen} if chosen else {}
    assert output_of(code, TORCH_FL_BACKENDS="opencl", **environment) == f"1 {chosen}\n"
