"""How long a new process takes: the import, and the first training step with empty and with warm kernel caches."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from .parts import Part

_STEP = """
import torch, torch_fl
from torch import nn
net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10))
net = torch_fl.virtualize(net)
optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
nn.functional.cross_entropy(net(torch.randn(64, 1, 8, 8).npu()), torch.arange(64).npu() % 10).backward()
optimizer.step()
float(next(net.parameters()).sum())
"""
_TIMED = "import time; t = time.perf_counter()\n{}\nprint(time.perf_counter() - t)"


def _in_a_new_process(code: str, environment: Mapping[str, str]) -> float:
    command = [sys.executable, "-W", "ignore", "-c", _TIMED.format(code)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=600
    )
    return float(done.stdout.split()[-1])


def start(rounds: int = 5) -> list[Part]:
    """import torch with and without this package, and a first training step, each in processes of their own."""
    without = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    imports = [
        (_in_a_new_process("import torch", {}), _in_a_new_process("import torch", without)) for _ in range(rounds)
    ]
    mine, plain = (statistics.median(side) for side in zip(*imports))
    with tempfile.TemporaryDirectory() as folder:
        empty = {"HOME": folder, "XDG_CACHE_HOME": folder, "TORCH_FL_CACHE": folder, "POCL_CACHE_DIR": f"{folder}/pocl"}
        cold, warm = (_in_a_new_process(_STEP, empty) for _ in range(2))
    found = {
        "import torch without this package": plain,
        "import torch with it": mine,
        "import and first training step, empty kernel caches": cold,
        "the same with warm caches": warm,
    }
    return [Part(n, 1e6 * t) for n, t in found.items()]
