"""NVIDIA's compiler of kernels, from PyPI and through ctypes: it needs neither a card nor a driver."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

PACKAGES = ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc")


def library() -> Path | None:
    """The compiler's library, or None where no package has it."""
    for package in PACKAGES:
        try:
            found = [f for f in files(package) or () if f.name.startswith("libnvrtc.so")]
        except PackageNotFoundError:
            continue
        if found:
            return Path(str(found[0].locate()))
    return None


@cache
def _loaded() -> Any:
    path = library()
    assert path is not None
    for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)  # the compiler looks for it by name
    return ctypes.CDLL(str(path))


@dataclass(frozen=True)
class Usage:
    """What the assembler gave a kernel: registers of a work-item, bytes it spills, bytes of shared memory."""

    registers: int
    spilled: int
    shared: int


_KERNEL = re.compile(r"Compiling entry function '(\w+)'(.*?)(?=Compiling entry function|\Z)", re.DOTALL)


def compile_log(source: str, architecture: str) -> str:
    """What the compiler has to say where a source does not compile; "" where it does."""
    failed, log = _compile(source, architecture)
    return log or "failed without a word" if failed else ""


def usage(source: str, architecture: str) -> dict[str, Usage]:
    """What each kernel of a source takes on a card of an `sm_...` architecture. Raises where it does not compile."""
    failed, log = _compile(source, architecture, b"--ptxas-options=-v")
    assert not failed, log
    return {name: Usage(*(_number(mark, text) for mark in _MARKS)) for name, text in _KERNEL.findall(log)}


_MARKS = (r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes smem")


def _number(mark: str, text: str) -> int:
    found = re.search(mark, text)
    return int(found.group(1)) if found else 0


def _compile(source: str, architecture: str, *more: bytes) -> tuple[bool, str]:
    nvrtc, program, size = _loaded(), ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    options = (b"--gpu-architecture=" + architecture.encode(), b"--std=c++17", *more)
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return bool(failed), log.value.decode()
