"""Fourier transforms by cuFFT or hipFFT, sorts by Thrust and scans by CUB, as CuPy calls them.

CuPy makes a new array, which is then copied to where the result goes: strides are the core's business here as well.
Sizes at which a launch or two of ours are as good, and dtypes that CuPy lacks, are left to the portable kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_fl.builder import Builder
from torch_fl.errors import Unsupported, dtype_name
from torch_fl.ops.fft import result
from torch_fl.refs import Ref
from torch_fl.registry import kernel

from ._cupy_libraries import DTYPES, record

SORTED = 2048
"""Elements of a line from which on it is sorted by the library."""
SCANNED = 4096
"""Elements of a vector from which on it is summed by the library: ours has one work-item for a line."""
_TRANSFORMED = (torch.float32, torch.float64, torch.complex64, torch.complex128)
_SUMMED = (torch.float32, torch.float64, torch.int64)
_FORWARD, _INVERSE = ("backward", "ortho", "forward"), ("forward", "ortho", "backward")
"""NumPy's names of torch's three normalizations: none, by the root of n, by n."""


@kernel("aten::_fft_c2c", backend="cupy")
def fft_c2c(b: Builder, self: Ref, dim: Sequence[int], normalization: int, forward: bool) -> None:
    """The transform over `dim`, or its inverse, of complex numbers."""
    if not self.dtype.is_complex:
        raise Unsupported(f"dtype {dtype_name(self.dtype)}")
    _check(b, self, dim)
    out, norm = result(b, "_fft_c2c", self, dim, normalization, forward), _FORWARD if forward else _INVERSE
    _transform(b, out, self, "fftn" if forward else "ifftn", dim, norm[normalization])


@kernel("aten::_fft_r2c", backend="cupy")
def fft_r2c(b: Builder, self: Ref, dim: Sequence[int], normalization: int, onesided: bool) -> None:
    """The transform over `dim` of real numbers; `onesided`: only the first half of the last of these dimensions."""
    _check(b, self, dim)
    out = result(b, "_fft_r2c", self, dim, normalization, onesided)
    _transform(b, out, self, "rfftn" if onesided else "fftn", dim, _FORWARD[normalization])


@kernel("aten::_fft_c2r", backend="cupy")
def fft_c2r(b: Builder, self: Ref, dim: Sequence[int], normalization: int, last_dim_size: int) -> None:
    """The inverse transform over `dim` to real numbers of a spectrum of which the last dimension is the first half."""
    _check(b, self, dim)
    out = result(b, "_fft_c2r", self, dim, normalization, last_dim_size)
    _transform(b, out, self, "irfftn", dim, _INVERSE[normalization], tuple(out.shape[d] for d in dim))


def _check(b: Builder, self: Ref, dim: Sequence[int]) -> None:
    backend: Any = b.device.backend
    if self.dtype not in _TRANSFORMED:
        raise Unsupported(f"transforms of {dtype_name(self.dtype)}")
    if not dim or self.numel == 0:
        raise Unsupported("a transform of nothing")
    backend.libraries.need("cufft")


def _transform(
    b: Builder, out: Ref, self: Ref, name: str, dim: Sequence[int], norm: str, sizes: tuple[int, ...] | None = None
) -> None:
    backend: Any = b.device.backend
    if out.numel == 0:
        raise Unsupported("a transform of nothing")

    def call(target: Any, source: Any) -> None:
        target[...] = getattr(backend._cupy.fft, name)(source, sizes, tuple(dim), norm)

    record(b, call, out, self)


@kernel("aten::sort", "aten::sort.stable", backend="cupy")
def sort(b: Builder, self: Ref, dim: int, descending: bool) -> None:
    """Values in order along `dim`, and where they were; equal elements keep their order; NaN counts as the largest."""
    if self.ndim == 0 or self.numel == 0 or self.shape[dim] < SORTED:
        raise Unsupported("a short line")
    if self.dtype.is_complex or self.dtype not in DTYPES:
        raise Unsupported(f"sorting {dtype_name(self.dtype)} by the library")
    backend: Any = b.device.backend
    backend.libraries.need("thrust")
    cupy, last = backend._cupy, self.shape[dim] - 1

    def call(values: Any, indices: Any, lines: Any) -> None:
        if descending:  # the last of equal elements first, from the end: each keeps its place
            order = last - cupy.argsort(lines[..., ::-1], axis=-1)[..., ::-1]
        else:
            order = cupy.argsort(lines, axis=-1)
        indices[...] = order
        values[...] = cupy.take_along_axis(lines, order, axis=-1)

    record(b, call, *(r.transpose(dim, -1) for r in (b.out(0), b.out(1), self)))


@kernel("aten::cumsum", backend="cupy")
def cumsum(b: Builder, self: Ref, dim: int) -> None:
    """out[i] = self[0] + ... + self[i] of one line."""
    _scan(b, self, dim, "cumsum")


@kernel("aten::cumprod", backend="cupy")
def cumprod(b: Builder, self: Ref, dim: int) -> None:
    """out[i] = self[0] * ... * self[i] of one line."""
    _scan(b, self, dim, "cumprod")


def _scan(b: Builder, self: Ref, dim: int, name: str) -> None:
    out = b.out()
    if self.ndim == 0 or self.numel != self.shape[dim] or self.numel < SCANNED:
        raise Unsupported("several lines, or a short one")
    if out.dtype not in _SUMMED:
        raise Unsupported(f"scans of {dtype_name(out.dtype)} by the library")
    source = b.contiguous(b.cast(self, out.dtype)).view(self.numel)
    cupy = b.device.backend._cupy  # type: ignore[attr-defined]

    def call(target: Any, line: Any) -> None:
        target[...] = getattr(cupy, name)(line)

    record(b, call, out.as_strided((out.numel,), (out.strides[dim],)), source)
