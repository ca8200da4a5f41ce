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


def sources_on_stand_in(folder: Path, adapter: str, chosen: str, files: list[str], **environment: str) -> list[str]:
    """Run tests (`-k chosen`) on the stand-in for CuPy, which must pass; what was compiled meanwhile."""
    sources, cache = folder / "sources", folder / "cache"
    sources.mkdir()
    environment |= {
        "PYTHONPATH": f"{HERE / 'double'}:{HERE}", "TORCH_FL_BACKENDS": adapter, "CUPY_DOUBLE_SOURCES": str(sources),
        "TORCH_FL_CACHE": str(cache),
    }  # fmt: skip
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *(str(HERE / f) for f in files)]
    done = run_python(*arguments, timeout=600, **environment)
    assert done.returncode == 0, done.stdout[-5000:]
    return [f.read_text() for f in sorted(sources.iterdir())]


def output_of(code: str, *, timeout: int = 120, **environment: str) -> str:
    """What a program prints; it must exit with 0."""
    done = run_python("-c", code, timeout=timeout, **environment)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
