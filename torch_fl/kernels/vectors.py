"""Explicit vectors in kernels for CPU-type devices (native/vector.h): how wide, and where their text comes from."""

from __future__ import annotations

from functools import lru_cache

import torch

from .source import read_native

_REGISTERS = {"AVX512": (64, 8), "AVX2": (32, 6)}
"""Vector bytes, and rows of a register tile, by what the CPU has."""


@lru_cache(maxsize=16)
def registers(dtype: torch.dtype) -> dict[str, int]:
    """The defines of vector.h for numbers of `dtype`: MR rows, VL lanes."""
    nbytes, rows = _REGISTERS.get(torch.backends.cpu.get_cpu_capability(), (16, 8))
    return {"MR": rows, "VL": nbytes // dtype.itemsize}


@lru_cache(maxsize=16)
def vector_source(*names: str) -> str:
    """The text of vector.h and of files of native/."""
    return "".join(read_native(name) for name in ("vector.h", *names))
