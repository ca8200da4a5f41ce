"""`import cupy` for a process with this folder on its path: the stand-in of tests/cupy_double.py, with two cards.

`TORCH_FL_BACKENDS=cuda PYTHONPATH=tests/double:tests pytest ...` runs any test on the adapter for CUDA, and with
`TORCH_FL_BACKENDS=rocm` on that for ROCm, where CUPY_DOUBLE_ARCHITECTURE names the cards' (gfx1100).
"""

import os

import cupy_double

cupy_double.install(
    cards=2,
    hip=os.environ.get("TORCH_FL_BACKENDS") == "rocm",
    architecture=os.environ.get("CUPY_DOUBLE_ARCHITECTURE", ""),
)
