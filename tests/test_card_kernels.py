"""Kernels for cards, without one: run on the stand-in for CuPy, and built to machine code for three architectures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hip
import nvrtc
import pytest
from subprocesses import sources_on_stand_in

FILES = ["tiles", "row_groups", "conv_tiles", "attention_tiles", "fours", "transpose_groups"]
CHOSEN = "cuda0 and (65 or 66 or 70 or tile or cut or dtypes or exact or layouts or norms or results)"
"""Tests whose kernels are of every kind; all of them run on the other adapters."""
MOST_SPILLED = 32
"""Bytes of a work-item that may go to memory: two groups fit a multiprocessor, at the price of a number or two."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What was compiled while the tests ran on the stand-in, kernels with groups only."""
    files = [f"test_{name}.py" for name in FILES]
    compiled = sources_on_stand_in(tmp_path_factory.mktemp("stand_in"), "cuda", CHOSEN, files)
    return [text for text in compiled if "void __launch_bounds__" in text]


@pytest.mark.device
def test_values_on_the_stand_in(sources: list[str]) -> None:
    names = {"gemm_tiles", "conv_forward", "conv_weight", "attention_grad_kv", "forward_groups", "reduce_groups"}
    assert {n for n in names if any(f" {n}(" in s for s in sources)} == names


@pytest.mark.device
@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed (PyPI: nvidia-cuda-nvrtc-cu12)")
@pytest.mark.parametrize(("architecture", "step"), [("sm_75", 5), ("sm_80", 2), ("sm_90", 5)])
def test_two_groups_fit_a_multiprocessor(sources: list[str], architecture: str, step: int) -> None:
    if architecture == "sm_75":
        sources = [s for s in sources if "define WAVE " not in s]  # matrix instructions that it does not have
    with ThreadPoolExecutor(2) as pool:
        found = [u for each in pool.map(lambda s: nvrtc.usage(s, architecture), sources[::step]) for u in each.items()]
    assert found
    for name, usage in found:
        assert usage.spilled <= MOST_SPILLED, (name, usage)
        assert usage.shared <= 32 << 10, (name, usage)
        assert usage.registers <= 128, (name, usage)


@pytest.mark.device
@pytest.mark.skipif(hip.COMPILER is None, reason=hip.MISSING)
@pytest.mark.parametrize(("architecture", "registers", "step"), [("gfx1100", 192, 2), ("gfx90a", 256, 3)])
def test_nothing_spills_on_amd(sources: list[str], architecture: str, registers: int, step: int) -> None:
    """Two groups of a kernel fit a SIMD unit's registers, and more waves than that on RDNA 3."""
    sources = [s for s in sources if "define WAVE " not in s]  # NVIDIA's matrix instructions
    with ThreadPoolExecutor(2) as pool:
        found = [u for each in pool.map(lambda s: hip.usage(s, architecture), sources[::step]) for u in each.items()]
    assert len(found) >= len(sources[::step])
    for name, usage in found:
        assert usage.spilled == 0, (name, usage)
        assert usage.shared <= 32 << 10, (name, usage)
        assert usage.registers <= registers, (name, usage)
