"""AMD cards through CuPy built for ROCm (backends/_cupy.py)."""

from __future__ import annotations

from torch_fl.runtime.adapter import Discovery

from . import _cupy_discovery
from ._cupy import CuPy


class Rocm(CuPy):
    """One card, through HIP."""

    name = "rocm"
    dialect = "hip"

    @classmethod
    def discover(cls) -> Discovery:
        return _cupy_discovery.discover(hip=True)
