"""No exception, interrupt or missing chip ends the process; each comes out as itself and the next op is right."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from subprocesses import output_of, run_python
from survival_cases import CASES

from torch_fl.runtime.devices import devices

pytestmark = pytest.mark.device  # many processes, each of which loads torch

DEVICES = [f"npu:{d.index}" for d in devices()]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Every case on every device, in one process that has to live to the end: "case npu:i" -> "ok" or the error."""
    done = run_python("-m", "survival_cases", timeout=240, TORCH_FL_BACKENDS="opencl,host")
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    return {"exit": f"{done.returncode} {done.stderr[-2000:]}", **lines}


@pytest.mark.parametrize("device_name", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_survives(outcomes: dict[str, str], name: str, device_name: str) -> None:
    assert outcomes.get(f"{name} {device_name}", f"not reached, exit {outcomes['exit']}") == "ok"


def test_process_ends_well(outcomes: dict[str, str]) -> None:
    assert outcomes["exit"].startswith("0 ")


# -- what is not there --------------------------------------------------------------------------------------------
UNAVAILABLE = """
import torch, torch_fl
try:
    torch.ones(2, device="npu")
except torch_fl.DeviceError as error:
    print(error)
x = torch.ones(2) + 1
print(x.sum().item(), torch.npu.is_available())
"""


def test_unknown_backend() -> None:
    text = output_of(UNAVAILABLE, TORCH_FL_BACKENDS="opencil")
    assert "there is no backend 'opencil'" in text
    assert "did you mean 'opencl'?" in text
    assert text.endswith("4.0 False\n")


def test_no_chip_at_all() -> None:
    text = output_of(UNAVAILABLE, TORCH_FL_BACKENDS="host", TORCH_FL_CC="/nonexistent")
    assert "no device was found" in text
    assert "no C compiler found" in text
    assert text.endswith("4.0 False\n")


# -- the end of a process -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["opencl", "host"])
def test_exit_with_work_in_flight(backend: str) -> None:
    code = """
import torch, torch_fl
torch_fl.set_fallback("allow")
x = torch.ones(300_000, device="npu", requires_grad=True)
y = x
for _ in range(100):
    y = y * 1.0001 + 0.5
y.sum().backward()
print("leaving")
"""
    assert output_of(code, TORCH_FL_BACKENDS=backend) == "leaving\n"


# -- fork ---------------------------------------------------------------------------------------------------------
FORK = """
import torch, torch_fl
from torch.utils.data import DataLoader, Dataset
torch_fl.set_fallback("allow")
on_device = torch.ones(3, device="npu")
print((on_device + 1).cpu().tolist())

class Host(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.full((3,), float(i))

class Device(Host):
    def __getitem__(self, i): return (on_device * i).cpu()

for epoch in range(2):
    total = sum((batch.npu() * on_device).sum().item() for batch in DataLoader(Host(), batch_size=4, num_workers=2))
    print(total)
try:
    print(sum(batch.sum().item() for batch in DataLoader(Device(), batch_size=4, num_workers=2, timeout=60)))
except Exception as error:
    print("fork" in str(error), type(error).__name__)
print((on_device + 2).cpu().tolist())
"""


@pytest.mark.parametrize("backend", ["opencl", "host"])
def test_workers_that_fork(backend: str) -> None:
    lines = output_of(FORK, timeout=100, TORCH_FL_BACKENDS=backend).splitlines()
    assert lines[:3] == ["[2.0, 2.0, 2.0]", "84.0", "84.0"]
    assert lines[3] == "True DeviceError"
    assert lines[4] == "[3.0, 3.0, 3.0]"


# -- threads ------------------------------------------------------------------------------------------------------
def _train(device: torch.device, seed: int, steps: int, out: dict[int, Any]) -> None:
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(5, 3, generator=generator)
    where = w.device if device.type == "cpu" else device
    w = w.to(where).requires_grad_()
    for step in range(steps):
        x = torch.full((4, 5, 1), 0.01 * (step % 7 + seed)).to(where)
        loss = ((x * w).sum((1,)) - 1).square().mean()
        (grad,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w -= 0.1 * grad
    out[seed] = w.detach().cpu()


def test_two_threads_train_at_once(device: torch.device, allow_fallback: None) -> None:
    want: dict[int, Any] = {}
    got: dict[int, Any] = {}
    for seed in (1, 2):
        _train(torch.device("cpu"), seed, 150, want)
    threads = [threading.Thread(target=_train, args=(device, seed, 150, got)) for seed in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(100)
    torch.testing.assert_close(got, want)


def test_errors_of_two_threads_stay_apart(device: torch.device) -> None:
    caught: dict[int, list[str]] = {0: [], 1: []}

    def work(n: int) -> None:
        for i in range(30):
            x = torch.ones(3, device=device, requires_grad=True)
            y = x * 2

            def hook(grad: torch.Tensor, text: str = f"{n}:{i}") -> None:
                raise ValueError(text)

            y.register_hook(hook)
            try:
                (y * 3).backward(torch.ones(3, device=device))
            except ValueError as error:
                caught[n].append(str(error))

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert caught == {n: [f"{n}:{i}" for i in range(30)] for n in (0, 1)}
