"""NVIDIA's compiler of kernels, from PyPI and through ctypes: it needs neither a card nor a driver."""

from __future__ import annotations

import ctypes
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


def compile_log(source: str, architecture: str) -> str:
    """What the compiler has to say where a source does not compile; "" where it does."""
    nvrtc, program, size = _loaded(), ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    options = (b"--gpu-architecture=" + architecture.encode(), b"--std=c++17")
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() or "failed without a word" if failed else ""
