"""Which of AMD's cards have matrix instructions.

The MI200 series (gfx90a) sets denormal numbers to zero in them. In float16 those are numbers of every day, so there
only bfloat16 has them.
"""

from __future__ import annotations

import torch

from torch_fl.kernels.source import read_native
from torch_fl.runtime.adapter import Matrix

_BOTH = (torch.float16, torch.bfloat16)
_CARDS: dict[str, tuple[str, tuple[torch.dtype, ...]]] = {
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102", "gfx1103"), ("matrix_wmma.h", _BOTH)),
    **dict.fromkeys(("gfx1150", "gfx1151", "gfx1152"), ("matrix_wmma.h", _BOTH)),
    "gfx90a": ("matrix_mfma.h", (torch.bfloat16,)),
    **dict.fromkeys(("gfx940", "gfx941", "gfx942", "gfx950"), ("matrix_mfma.h", _BOTH)),
}
"""Architecture: the file in native/ that says how its waves multiply, and the dtypes."""


def matrix_of(architecture: str) -> Matrix | None:
    """The instructions of an architecture; None where it has none."""
    if architecture not in _CARDS:
        return None
    file, dtypes = _CARDS[architecture]
    return Matrix(read_native(file), dtypes)
