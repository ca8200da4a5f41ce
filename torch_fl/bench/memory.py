"""Peak memory of training steps on the device, against what torch's CPU allocator hands out for the same steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..runtime.devices import device_at
from .models import MODELS

STEPS = 3


@dataclass(frozen=True)
class Peak:
    """Most bytes in use at once during three training steps, the model included."""

    name: str
    device_bytes: int
    cpu_bytes: int


def cpu_peak(run: Callable[[], None]) -> int:
    """Most bytes that torch's CPU allocator had handed out at once during `run`, by its own reports to the profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def device_peak(run: Callable[[], None], device: torch.device) -> int:
    """The same for a device, by its own counters."""
    chip = device_at(device.index)
    before = chip.allocated_bytes()
    chip.reset_peak()
    run()
    return chip.peak_bytes - before


def peaks(device: torch.device) -> list[Peak]:
    """The peaks of every training step of the models."""

    def steps(name: str, where: torch.device) -> Callable[[], None]:
        def run() -> None:
            with torch.enable_grad():
                step = MODELS[name].make(where)
                for _ in range(STEPS):
                    step()

        return run

    names = [n for n in MODELS if "training" in n]
    cpu = torch.device("cpu")
    return [Peak(n, device_peak(steps(n, device), device), cpu_peak(steps(n, cpu))) for n in names]
