"""AMD cards through CuPy built for ROCm (backends/_cupy.py).

Which of them have matrix instructions is a table here. The MI200 series (gfx90a) sets denormal numbers to zero in them.
In float16 those are numbers of every day, so there only bfloat16 has them.
"""

from __future__ import annotations

import torch

from torch_fl.kernels.source import read_native
from torch_fl.runtime.adapter import Discovery, Matrix, Properties

from . import _cupy_discovery
from ._cupy import CuPy

_BOTH = (torch.float16, torch.bfloat16)
MATRIX: dict[str, tuple[str, tuple[torch.dtype, ...]]] = {
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102", "gfx1103"), ("matrix_wmma.h", _BOTH)),
    **dict.fromkeys(("gfx1150", "gfx1151", "gfx1152"), ("matrix_wmma.h", _BOTH)),
    "gfx90a": ("matrix_mfma.h", (torch.bfloat16,)),
    **dict.fromkeys(("gfx940", "gfx941", "gfx942", "gfx950"), ("matrix_mfma.h", _BOTH)),
}
"""Architecture: the file in native/ that says how its waves multiply, and the dtypes."""


class Rocm(CuPy):
    """One card, through HIP."""

    name = "rocm"
    dialect = "hip"

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        if properties.architecture in MATRIX:
            file, dtypes = MATRIX[properties.architecture]
            self.matrix = Matrix(read_native(file), dtypes)

    @classmethod
    def discover(cls) -> Discovery:
        return _cupy_discovery.discover(hip=True)
