"""Explicit vectors in kernels for CPU-type devices (native/vector.h): how wide, and where their text comes from."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from .source import read_native

if TYPE_CHECKING:
    from ..builder import Builder

REGISTERS = {"AVX512": (64, 8), "AVX2": (32, 6)}
"""Vector bytes, and rows of a register tile, by what the CPU has."""


@lru_cache(maxsize=16)
def registers(dtype: torch.dtype) -> dict[str, int]:
    """The defines of vector.h for numbers of `dtype`: MR rows, VL lanes."""
    nbytes, rows = REGISTERS.get(torch.backends.cpu.get_cpu_capability(), (16, 8))
    return {"MR": rows, "VL": nbytes // dtype.itemsize}


@lru_cache(maxsize=16)
def vector_source(*names: str) -> str:
    """The text of vector.h and of files of native/."""
    return register_source("vector.h", *names)


@lru_cache(maxsize=16)
def register_source(*names: str) -> str:
    """The text of register_tile.h, for whoever needs no more of vectors, and of files of native/."""
    return "".join(read_native(name) for name in ("register_tile.h", *names))


_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""How native/vector.h stores elements whose vectors are of float32."""


def lane_defines(b: Builder, acc: torch.dtype, **dtypes: torch.dtype) -> dict[str, object] | None:
    """The defines of native/lanes.h for rows of these dtypes, accumulated in `acc`; None where it has no vectors."""
    if not b.is_cpu or acc != torch.float32 or any(d not in _KINDS for d in dtypes.values()):
        return None
    kinds = {f"{name}_KIND": _KINDS[d] for name, d in dtypes.items()}
    return {**b.types(**dtypes), **registers(acc), **kinds, "ACC": "float"}


def lane_source(*names: str) -> str:
    """The text of native/lanes.h, what it needs, and of the files `names`."""
    return read_native("fastmath.h") + vector_source("lanes.h", *names)
