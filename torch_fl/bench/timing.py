"""Timing one piece of work on the device and on the CPU, interleaved."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..compat import npu

Work = Callable[[], Any]
Maker = Callable[[torch.device], Work]
"""Makes a work whose tensors are on a device; the same seed gives the same numbers on every device."""


SETTLE_S = 0.01
"""Pause before each side: worker threads of the other one spin for some milliseconds after their last work."""


@dataclass(frozen=True)
class Case:
    """One line of the benchmark. `grad`: autograd records; else it runs under no_grad."""

    make: Maker
    grad: bool = False


@dataclass(frozen=True)
class Result:
    """Median seconds per call on the device and on the CPU, and the ops one call dispatches."""

    name: str
    device_seconds: float
    cpu_seconds: float
    ops: int = 0
    fallbacks: int = 0

    @property
    def ratio(self) -> float:
        """Device time over CPU time."""
        return self.device_seconds / self.cpu_seconds


def seconds(work: Work, calls: int, wait: Callable[[], None]) -> float:
    """Seconds per call of `calls` in a row, the wait at the end included."""
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait()
    return (time.perf_counter() - start) / calls


def _calls_for(work: Work, wait: Callable[[], None], budget: float) -> int:
    for _ in range(2):
        work()
        wait()
    return max(1, min(2000, int(budget / max(seconds(work, 1, wait), 1e-7))))


def _made(make: Maker, device: torch.device) -> Work:
    torch.manual_seed(0)
    return make(device)


def measure(name: str, case: Case | Maker, device: torch.device, rounds: int, budget: float = 0.02) -> Result:
    """Median over `rounds` of device and CPU time for one work, interleaved; about `budget` seconds a round each.

    A bare Maker runs in the caller's grad mode.
    """
    if isinstance(case, Case):
        with torch.set_grad_enabled(case.grad):
            return measure(name, case.make, device, rounds, budget)
    wait = lambda: npu.synchronize(device)  # noqa: E731
    sides: list[tuple[Work, Callable[[], None]]] = [(_made(case, device), wait)]
    sides.append((_made(case, torch.device("cpu")), lambda: None))
    counts = [_calls_for(work, wait, budget) for work, wait in sides]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for side, (work, wait) in enumerate(sides):
            time.sleep(SETTLE_S)
            times[side].append(seconds(work, counts[side], wait))
    ops, fallbacks = _counted(sides[0][0])
    return Result(name, statistics.median(times[0]), statistics.median(times[1]), ops, fallbacks)


def _counted(work: Work) -> tuple[int, int]:
    """Ops that one call dispatches, and how many of them ran on the CPU."""
    from ..telemetry import trace

    with trace() as seen:
        work()
    return len(seen.records), len(seen.fallbacks())
