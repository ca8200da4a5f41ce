"""NVIDIA cards through CuPy (backends/_cupy.py)."""

from __future__ import annotations

from torch_fl.runtime.adapter import Discovery

from . import _cupy_discovery
from ._cupy import CuPy


class Cuda(CuPy):
    """One card, through the CUDA driver."""

    name = "cuda"
    dialect = "cuda"

    @classmethod
    def discover(cls) -> Discovery:
        return _cupy_discovery.discover(hip=False)
