"""A whole adapter in one page: a chip whose vendor library is NumPy, without a C compiler, that can be told to fail."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from torch_fl.builder import Builder
from torch_fl.errors import Unsupported
from torch_fl.refs import Ref, numpy_view
from torch_fl.registry import kernel
from torch_fl.runtime.adapter import Backend, Discovery, Handle, Properties


class ToyError(Exception):
    """What the toy's driver raises."""


class Toy(Backend):
    """Two chips, `toy 0` and `toy 1`; memory is a NumPy array of bytes, everything is synchronous."""

    name = "toy"
    preference = 1
    driver_errors = (ToyError,)
    fail: ClassVar[set[str]] = set()
    """What fails from now on: "allocate", "copy", "kernel"."""

    @classmethod
    def discover(cls) -> Discovery:
        return Discovery(
            tuple(
                Properties(f"toy {i}", "tests", "numpy", total_memory=1 << 30, fingerprint=f"toy:{i}") for i in (0, 1)
            )
        )

    @classmethod
    def check(cls, what: str) -> None:
        if what in cls.fail:
            raise ToyError(f"TOY_{what.upper()}_FAILED")

    def allocate(self, nbytes: int) -> Handle:
        self.check("allocate")
        if nbytes > self.properties.total_memory:
            raise MemoryError("TOY_OUT_OF_MEMORY")
        return np.empty(nbytes, np.uint8)

    def copy_h2d(self, handle: Handle, byte_offset: int, source: memoryview) -> None:
        self.check("copy")
        handle[byte_offset : byte_offset + source.nbytes] = source

    def copy_d2h(self, target: memoryview, handle: Handle, byte_offset: int) -> None:
        self.check("copy")
        target[:] = handle[byte_offset : byte_offset + target.nbytes].data


_FUNCTIONS = {"aten::mul.Tensor": np.multiply, "aten::maximum": np.maximum, "aten::neg": np.negative}


def register_ops() -> None:
    """The ops the toy's library has; everything else runs on the CPU."""
    for name, ufunc in _FUNCTIONS.items():
        kernel(name, backend="toy")(_binary(ufunc) if ufunc.nin == 2 else _unary(ufunc))
    kernel("aten::add.Tensor", backend="toy")(_add)


def _view(argument: tuple[Any, int, Ref]) -> np.ndarray[Any, Any]:
    array, offset, ref = argument
    return numpy_view(array, ref, offset)


def _emit(b: Builder, compute: Any, out: Ref, *args: Any) -> None:
    if any(isinstance(a, Ref) and a.dtype not in (torch.float32, torch.int64) for a in (out, *args)):
        raise Unsupported("only float32 and int64")

    def run(target: Any, *sources: Any) -> None:
        Toy.check("kernel")
        _view(target)[...] = compute(*(_view(s) if isinstance(s, tuple) else s for s in sources))

    b.function(run, out, *args)


def _binary(ufunc: Any) -> Any:
    def binary(b: Builder, self: Any, other: Any) -> None:
        _emit(b, ufunc, b.out(), self, other)

    return binary


def _unary(ufunc: Any) -> Any:
    def unary(b: Builder, self: Ref) -> None:
        _emit(b, ufunc, b.out(), self)

    return unary


def _add(b: Builder, self: Any, other: Any, alpha: Any) -> None:
    _emit(b, lambda x, y, a: x + a * y, b.out(), self, other, alpha)
