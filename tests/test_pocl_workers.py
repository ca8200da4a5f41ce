"""PoCL's workers have a CPU each, of those that the process may use."""

from __future__ import annotations

import os
import threading

import pytest
from torch_fl.backends._pocl_workers import spread

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
pytestmark = pytest.mark.skipif(not CPUS, reason="this system places no threads")


def _started(count: int, hold: threading.Event) -> list[threading.Thread]:
    threads = [threading.Thread(target=hold.wait) for _ in range(count)]
    for t in threads:
        t.start()
    return threads


def _places(count: int) -> list[set[int]]:
    """Where each of `count` threads may run that were started inside."""
    hold = threading.Event()
    with spread():
        threads = _started(count, hold)
    found = [os.sched_getaffinity(t.native_id or 0) for t in threads]
    hold.set()
    for t in threads:
        t.join()
    return found


def test_each_has_a_cpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    assert sorted(min(p) for p in _places(len(CPUS))) == CPUS
    assert all(len(p) == 1 for p in _places(2 * len(CPUS)))
    assert os.sched_getaffinity(0) == set(CPUS)


def test_others_stay_where_the_system_puts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    assert _places(len(CPUS) + 1) == [set(CPUS)] * (len(CPUS) + 1) or len(CPUS) == 1
    monkeypatch.setenv("POCL_AFFINITY", "0")
    assert _places(len(CPUS)) == [set(CPUS)] * len(CPUS)
