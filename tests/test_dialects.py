"""Kernels as CUDA and HIP: what a part of torch's op database renders is run on the CPU, and compiled for cards.

The adapter for CUDA runs on tests/cupy_double.py, which compiles each source as C++ and keeps it. Values are compared
with torch's; NVRTC and, where it is installed, clang then compile the same sources for real cards.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hip
import nvrtc
import opinfo
import opinfo_run
import pytest

from torch_fl.kernels import source

HERE = Path(__file__).parent
PARTS = [
    ("forward", "float32", 8, 2),
    ("forward", "float16", 24, 1),
    ("forward", "int64", 24, 1),
    ("forward", "complex64", 24, 1),
    ("gradient", "float32", 16, 1),
]
"""(group, dtype, every how many entries, samples of each)."""
LEAST = 150
"""Sources that these render at least."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[opinfo_run.Report, list[str]]:
    """Results of the entries on the stand-in for a card, and all sources that were compiled for them."""
    folder = tmp_path_factory.mktemp("sources")
    nodes = [(n, count) for group, dtype, step, count in PARTS for n in list(opinfo.nodes(group, dtype))[::step]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{HERE / 'double'}:{HERE}")
        patch.setenv("TORCH_FL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("CUPY_DOUBLE_SOURCES", str(folder))
        found = opinfo_run.Report(opinfo_run.run(nodes, backend="cuda"))
    return found, [f.read_text() for f in sorted(folder.iterdir())]


@pytest.mark.device
def test_values_on_the_cpu(report: tuple[opinfo_run.Report, list[str]]) -> None:
    found, sources = report
    assert not found.failed, f"{found}"
    assert len(sources) >= LEAST


def _errors(sources: list[str], log_of: Callable[[str], str]) -> dict[str, str]:
    """The compiler's log of each source that does not compile, by its first kernel."""
    with ThreadPoolExecutor(2) as pool:
        logs = list(pool.map(log_of, sources))
    return {s.partition("__global__ void ")[2].partition("(")[0]: log for s, log in zip(sources, logs) if log}


@pytest.mark.device
@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed (PyPI: nvidia-cuda-nvrtc-cu12)")
@pytest.mark.parametrize(("architecture", "step"), [("compute_80", 1), ("sm_80", 6), ("sm_90", 6)])
def test_nvrtc_compiles_everything(report: tuple[opinfo_run.Report, list[str]], architecture: str, step: int) -> None:
    """Everything for the virtual architecture; a part down to machine code, which takes far longer."""
    assert not _errors(report[1][::step], lambda text: nvrtc.compile_log(text, architecture))


@pytest.mark.device
@pytest.mark.skipif(hip.COMPILER is None, reason=hip.MISSING)
def test_clang_compiles_everything_for_hip(report: tuple[opinfo_run.Report, list[str]]) -> None:
    assert not _errors(report[1], lambda text: hip.compile_log(text, "gfx1100"))


def test_what_nvrtc_refuses_is_told() -> None:
    if nvrtc.library() is None:
        pytest.skip("NVRTC is not installed (PyPI: nvidia-cuda-nvrtc-cu12)")
    text = source.render("kernel f(out float y, int n) { y[GID0] = no_such_function(n); }\n", "cuda", {"IDX": "int"})
    assert 'identifier "no_such_function" is undefined' in nvrtc.compile_log(text, "sm_80")


@pytest.mark.skipif(hip.COMPILER is None, reason=hip.MISSING)
def test_what_clang_refuses_is_told() -> None:
    text = source.render("kernel f(out float y, int n) { y[GID0] = no_such_function(n); }\n", "hip", {"IDX": "int"})
    assert "undeclared identifier 'no_such_function'" in hip.compile_log(text, "gfx1100")


def test_hip_is_the_text_of_cuda() -> None:
    text = "kernel f(in float x, out float y, long n) { y[GID0] = x[GID0] + n; }\n"
    assert source.render(text, "hip", {}) == source.render(text, "cuda", {})
    assert "get_global_id" not in source.render(text, "cuda", {})
