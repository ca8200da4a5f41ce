"""What kernels touch: every access within bounds and free of races (Oclgrind), and nothing read that was never written.

Oclgrind's own check for uninitialised values reports values that were written (21.10), so that part is done here: new
memory is filled with a pattern that no result may depend on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import CASES

from torch_fl.runtime.devices import devices

pytestmark = pytest.mark.device  # a simulator, and kernels of many kinds
HERE = Path(__file__).parent
WATCHED = ["--data-races", "--max-errors", "20", "--build-options", "-cl-opt-disable -DSIMULATED", "--log"]


@pytest.mark.skipif(shutil.which("oclgrind") is None, reason="oclgrind is not installed (Debian: apt install oclgrind)")
@pytest.mark.parametrize("shape", ["gpu", "cpu"])
def test_oclgrind_finds_nothing(shape: str, tmp_path: Path) -> None:
    log = tmp_path / "oclgrind.log"
    # Its compiler's cache would keep programs of other options.
    env = {**os.environ, "PYOPENCL_NO_CACHE": "1", "PYTHONPATH": str(HERE)}
    command = ["oclgrind", *WATCHED, str(log), sys.executable, "-m", "kernel_check", shape]
    done = subprocess.run(command, env=env, cwd=HERE, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("Oclgrind Simulator\n")
    assert done.stdout.endswith("done\n")
    assert log.read_text().strip() == ""


@pytest.fixture
def poisoned(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """New memory of the device holds bytes that make NaN of floats and nonsense of integers."""
    chip = devices()[device.index]
    original = chip.allocate

    def allocate(nbytes: int) -> Any:
        buffer = original(nbytes)
        if buffer.nbytes:
            chip.backend.copy_h2d(buffer.handle, 0, memoryview(b"\xff" * buffer.nbytes))
        return buffer

    monkeypatch.setattr(chip, "allocate", allocate)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_read_that_was_not_written(
    name: str, device: torch.device, allow_fallback: None, poisoned: None
) -> None:
    from test_faults import compare

    compare(name, device)
