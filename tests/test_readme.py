"""What the README and torch's users write runs as it stands, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

THROUGH_TORCH_FL = """
import torch, torch_fl
torch_fl.init()
device = torch_fl.device()
print(device, torch_fl.device_count())
x = torch.randn(1024, 1024, device=device); y = torch.randn(1024, 1024, device=device)
z = torch.matmul(x, y)
print(z.shape, z.device)
"""

THROUGH_TORCH_ALONE = """
import torch
for i in range(torch.npu.device_count()):
    print(torch.npu.device(i), torch.npu.get_device_name(i))
x = torch.randn(1024, 1024, device="npu:0"); y = torch.randn(1024, 1024, device="npu:0")
z = torch.mm(x, y)
print(z.shape, f"{z.sum().item():.4f}", f"{torch.npu.memory_allocated(0) / 1024**2:.1f} MB")
"""


def _run(source: str) -> str:
    environment = {**os.environ, "TORCH_FL_FALLBACK": "error"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_through_torch_fl() -> None:
    assert "torch.Size([1024, 1024]) npu:0" in _run(THROUGH_TORCH_FL)


def test_through_torch_alone() -> None:
    lines = _run(THROUGH_TORCH_ALONE).splitlines()
    assert lines[0].startswith("npu:0 ")
    assert re.fullmatch(r"torch\.Size\(\[1024, 1024\]\) -?\d+\.\d{4} 12\.0 MB", lines[-1])


def test_the_example_of_the_readme() -> None:
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    assert "0 fallbacks" in _run(example)


def test_ci_runs_the_commands_of_the_readme() -> None:
    """The tests in two halves: what README says takes less time."""
    readme, script = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    demo, install = 'pip install -e ".[demo]" && torch-fl demo', 'pip install -e ".[test]"'
    assert f"    {demo}\n" in readme
    assert f"    {install} && pytest\n" in readme
    assert '`-m device` and `-m "not device"`' in " ".join(readme.split())
    assert f"\n{demo}\n" in script
    assert f"\n{install}\n" in script
    assert all(f"\npytest -m {half} " in script for half in ("device", '"not device"'))
