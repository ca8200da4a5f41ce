"""Fresh interpreters for tests of what happens at import, at exit, after a fork, or to a whole process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run_python(*arguments: str, timeout: int = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python *arguments` with this folder on the path and no TORCH_FL_ settings but those given."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_FL_")}
    cache = {k: v for k, v in os.environ.items() if k == "TORCH_FL_CACHE"}
    env |= {"PYTHONPATH": str(HERE), **cache, **environment}
    return subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=timeout, check=False
    )


def output_of(code: str, *, timeout: int = 120, **environment: str) -> str:
    """What a program prints; it must exit with 0."""
    done = run_python("-c", code, timeout=timeout, **environment)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
