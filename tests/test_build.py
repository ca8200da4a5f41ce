"""Kernels built ahead of time: the same sources that a card asks for, found instead of a compiler's, or not at all."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import cupy_double
import hip
import pytest
from subprocesses import HERE, output_of
from torch_fl.backends import _rocm_paper, rocm

from torch_fl import cli
from torch_fl.errors import Error
from torch_fl.kernels import source

OPS = """
x = torch.randn(70, 40, device="npu").bfloat16()
w = torch.randn(50, 40, device="npu", requires_grad=True).bfloat16()
(torch.nn.functional.linear(x, w).softmax(1) + 1).float().sum().backward()
print(*sorted(hash(s) for s in SOURCES()))
"""
ON_PAPER = """
import torch, torch_fl
from torch_fl.commands import build
from torch_fl.backends import _rocm_paper
_rocm_paper.UNITS["gfx1100"] = 4
backend = build._open("gfx1100")
SOURCES = lambda: backend.sources
"""
ON_THE_STAND_IN = """
import torch, torch_fl, cupy_double
SOURCES = lambda: cupy_double.compiled
"""
SOURCE = source.render("kernel twice(inout float x) { x[GID0] *= 2; }\n", "hip", {})
LINKER = shutil.which("ld.lld") or shutil.which("ld.lld-16")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[rocm.Rocm]:
    """The stand-in of a gfx1100, with a cache of its own."""
    monkeypatch.setitem(sys.modules, "cupy", cupy_double.cupy)
    monkeypatch.setenv("TORCH_FL_CACHE", str(tmp_path / "cache"))
    cupy_double.install(hip=True, architecture="gfx1100")
    yield rocm.Rocm(rocm.Rocm.discover().found[0])
    cupy_double.install(cards=2)


def _paper() -> _rocm_paper.Paper:
    paper = rocm.Rocm.on_paper("gfx1100")
    assert paper is not None
    return paper(paper.discover().found[0])  # type: ignore[return-value]


def test_a_chip_on_paper_asks_for_what_a_card_asks_for(tmp_path: Path) -> None:
    common = {"PYTHONHASHSEED": "0", "TORCH_FL_CACHE": str(tmp_path), "CUPY_DOUBLE_ARCHITECTURE": "gfx1100"}
    double = {"PYTHONPATH": f"{HERE / 'double'}:{HERE}", "TORCH_FL_BACKENDS": "rocm"}
    there = output_of(ON_THE_STAND_IN + OPS, **common, **double).split()
    assert len(there) > 5
    assert output_of(ON_PAPER + OPS, **common).split() == there


def test_what_was_built_is_loaded(card: rocm.Rocm) -> None:
    built = _rocm_paper.code_object("gfx1100", SOURCE)
    built.parent.mkdir(parents=True)
    built.write_bytes(b"a code object")
    before = len(cupy_double.compiled)
    assert card._binary(SOURCE) == b"a code object"
    assert len(cupy_double.compiled) == before
    assert card._binary(SOURCE + " ") != b"a code object"
    assert len(cupy_double.compiled) == before + 1
    assert _rocm_paper.code_object("gfx90a", SOURCE) != built


def test_without_a_compiler_nothing_is_built(
    card: rocm.Rocm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Error, match="there is no hipcc"):
        _paper().build(SOURCE)
    assert cli.main(["build", "sm_80"]) == 1
    assert "no adapter builds kernels for 'sm_80' ahead of time" in capsys.readouterr().err


@pytest.mark.skipif(hip.COMPILER is None, reason=hip.MISSING)
@pytest.mark.skipif(LINKER is None, reason="lld is not installed (Debian: apt install lld-16)")
def test_clang_in_place_of_hipcc_builds_what_is_loaded(
    card: rocm.Rocm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hip").mkdir()
    (tmp_path / "hip/hip_runtime.h").write_text(hip.BUILTINS)
    compiler = tmp_path / "hipcc"
    compiler.write_text(f'#!/bin/sh\nexec {hip.COMPILER} -nogpulib -nogpuinc -w -I {tmp_path} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert _paper().build(SOURCE)
    assert not _paper().build(SOURCE)
    assert card._binary(SOURCE).startswith(b"\x7fELF")
    with pytest.raises(Error, match="use of undeclared identifier 'y'"):
        _paper().build(SOURCE.replace("x[GID0]", "y[GID0]"))
