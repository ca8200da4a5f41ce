"""`import cupy` for a process with this folder on its path: the stand-in of tests/cupy_double.py, with two cards.

`TORCH_FL_BACKENDS=cuda PYTHONPATH=tests/double:tests pytest ...` runs any test on the adapter for CUDA.
"""

import cupy_double

cupy_double.install(cards=2)
