"""Calls of kinds that other backends of torch have been reported to get wrong, each as one function of a device.

A case makes its inputs on the CPU from fixed numbers, moves them, and returns what it computed (tensors and plain
values, nested); `test_faults.py` compares that with the same function on the CPU: values, dtypes, shapes and strides.
"""

from faults import dtypes, edges, indices, layouts, training, views  # noqa: F401 - they fill the table
from faults.base import CASES, arange, grads, ints, rnd

__all__ = ["CASES", "arange", "grads", "ints", "rnd"]
