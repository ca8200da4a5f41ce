"""AMD cards through CuPy built for ROCm (backends/_cupy.py)."""

from __future__ import annotations

from torch_fl.runtime.adapter import Backend, Discovery, Properties

from . import _cupy_discovery, _rocm_paper
from ._cupy import CuPy
from ._rocm_matrix import matrix_of


class Rocm(CuPy):
    """One card, through HIP."""

    name = "rocm"
    dialect = "hip"

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self.matrix = matrix_of(properties.architecture)

    @classmethod
    def discover(cls) -> Discovery:
        return _cupy_discovery.discover(hip=True)

    @classmethod
    def on_paper(cls, architecture: str) -> type[Backend] | None:
        if not architecture.startswith("gfx"):
            return None
        return type("Paper", (_rocm_paper.Paper,), {"architecture": architecture})

    def _binary(self, source: str) -> bytes:
        built = _rocm_paper.code_object(self.properties.architecture, source)
        return built.read_bytes() if built.exists() else super()._binary(source)
