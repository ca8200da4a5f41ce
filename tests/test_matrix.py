"""Matrix instructions without a card that has them: kernels run with the instructions worked out on the CPU, as manuals
describe them (tests/matrix_on_cpu.h), and are built to machine code by clang and NVRTC."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import cupy_double
import hip
import nvrtc
import pytest
from subprocesses import sources_on_stand_in
from torch_fl.backends import rocm

AMD = {
    "gfx1100": ("v_wmma_f32_16x16x16_", "rocm0"),
    "gfx90a": ("v_mfma_f32_16x16x16", "rocm0 and small"),
    "gfx942": ("v_mfma_f32_16x16x16", "rocm0 and not small"),
}
"""Architecture: the instruction that its machine code must have, and the cases it runs."""
CARDS = {**AMD, "sm_80": ("mma.sync", "cuda0")}


@pytest.fixture(scope="module", params=CARDS)
def card(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """An architecture, and the sources with matrix instructions that its cases compiled."""
    adapter, cases = "rocm" if request.param in AMD else "cuda", CARDS[request.param][1]
    folder, files = tmp_path_factory.mktemp("stand_in"), ["matrix_cases.py"]
    compiled = sources_on_stand_in(folder, adapter, cases, files, CUPY_DOUBLE_ARCHITECTURE=request.param)
    return request.param, [text for text in compiled if "define WAVE " in text]


@pytest.mark.device
def test_values(card: tuple[str, list[str]]) -> None:
    architecture, sources = card
    kinds = {"short" if "define BFLOAT 1" in s else "_Float16" for s in sources}
    assert kinds == ({"short"} if architecture == "gfx90a" else {"short", "_Float16"})
    names = {"gemm_tiles", "conv_forward", "conv_weight"}
    assert {n for n in names if any(f" {n}(" in s for s in sources)} == names


@pytest.mark.device
def test_machine_code_has_the_instruction_and_two_groups_fit(card: tuple[str, list[str]]) -> None:
    architecture, sources = card
    if architecture in AMD:
        if hip.COMPILER is None:
            pytest.skip(hip.MISSING)
        _check_amd(architecture, sources[::4])
    else:
        if nvrtc.library() is None:
            pytest.skip("NVRTC is not installed (PyPI: nvidia-cuda-nvrtc-cu12)")
        _check_nvidia(architecture, sources[::4])


def _check_amd(architecture: str, sources: list[str]) -> None:
    target = architecture if hip.knows(architecture) else "gfx940"  # which has the same instructions
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(lambda s: hip.assembly(s, target), sources))
    assert texts
    for text in texts:
        for name, body in re.findall(r"^(\w+):.*?@\1\n(.*?)\.end_amdhsa_kernel", text, re.DOTALL | re.MULTILINE):
            assert ("_few" in name) != (CARDS[architecture][0] in body), name
        for name, usage in hip.usage_in(text).items():
            assert usage.spilled == 0, (name, usage)
            assert usage.shared <= 32 << 10, (name, usage)
            assert usage.registers <= 192, (name, usage)


def _check_nvidia(architecture: str, sources: list[str]) -> None:
    assert sources
    for source in sources:
        assert CARDS[architecture][0] in source
        for name, usage in nvrtc.usage(source, architecture).items():
            assert usage.spilled <= 32, (name, usage)
            assert usage.shared <= 32 << 10, (name, usage)
            assert usage.registers <= 128, (name, usage)


@pytest.mark.parametrize(("architecture", "dtypes"), [("gfx1100", 2), ("gfx90a", 1), ("gfx942", 2), ("gfx1030", 0)])
def test_which_cards_have_them(architecture: str, dtypes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy_double.cupy)
    cupy_double.install(hip=True, architecture=architecture)
    chip = rocm.Rocm(rocm.Rocm.discover().found[0])
    assert chip.properties.architecture == architecture
    assert len(chip.matrix.dtypes if chip.matrix else ()) == dtypes
