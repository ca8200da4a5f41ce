"""Ten thousand steps leave memory where it was, on the device and on the host, and plan caches bounded."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from torch_fl import dispatch
from torch_fl.runtime.devices import device_at

pytestmark = pytest.mark.model
STEPS, WARM_UP = 10_000, 2_000


def _resident_bytes() -> int:
    """Memory of this process that is in RAM; Linux tells it in pages."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Stop(Exception):
    """Raised in the middle of some steps."""


def _stop(grad: torch.Tensor) -> None:
    raise Stop


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_training_leaks_nothing(device: torch.device, allow_fallback: None) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 8, device=device), torch.randn(16, 2, device=device)
    chip, at_start = device_at(device.index), (0, 0, 0)
    for step in range(STEPS):
        if step == WARM_UP:
            gc.collect()
            at_start = (chip.allocated_bytes(), chip.reserved_bytes(), _resident_bytes())
        optimizer.zero_grad()
        hidden = model[1](model[0](x))
        if step % 50 == 7:
            hidden.register_hook(_stop)
        loss = (model[2](hidden) - y).square().mean()
        if step % 50 == 7:
            with pytest.raises(Stop):
                loss.backward()
            del hidden, loss
            continue
        loss.backward()
        optimizer.step()
        del hidden, loss
    gc.collect()
    allocated, reserved, resident = at_start
    assert chip.allocated_bytes() <= allocated
    assert chip.reserved_bytes() <= reserved + (1 << 20)
    assert _resident_bytes() <= resident + (8 << 20)


def test_plan_caches_are_bounded(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MAX_PLANS", 16)
    add = dispatch.op_of(torch.ops.aten.add.Tensor)
    add.plans.clear()
    for n in range(1, 60):
        x = torch.ones(n, device=device)
        assert (x + x).sum().item() == 2 * n
        assert len(add.plans) <= 16


def test_values_that_change_do_not_make_plans(device: torch.device) -> None:
    x = torch.ones(5, device=device)
    torch.add(x, x, alpha=0.5)
    plans = len(dispatch.op_of(torch.ops.aten.add.Tensor).plans)
    for i in range(100):
        torch.add(x, x, alpha=0.01 * i)
    assert len(dispatch.op_of(torch.ops.aten.add.Tensor).plans) == plans
