"""NVIDIA cards through CuPy (backends/_cupy.py)."""

from __future__ import annotations

import torch

from torch_fl.kernels.source import read_native
from torch_fl.runtime.adapter import Discovery, Matrix, Properties

from . import _cupy_discovery
from ._cupy import CuPy

MULTIPLIES = (8, 0)
"""The first version of the instruction set with the instructions of native/matrix_mma.h."""


class Cuda(CuPy):
    """One card, through the CUDA driver."""

    name = "cuda"
    dialect = "cuda"

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        if properties.capability >= MULTIPLIES:
            self.matrix = Matrix(read_native("matrix_mma.h"), (torch.float16, torch.bfloat16), depth=16)

    @classmethod
    def discover(cls) -> Discovery:
        return _cupy_discovery.discover(hip=False)
