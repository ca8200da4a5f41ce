"""Fourier transforms of any length, one dimension after the other, by passes of small radices (native/fft.c).

Lengths with a prime factor over MAX_RADIX run as a convolution of a power of two. Source of that method: Bluestein, A
linear filtering approach to the computation of discrete Fourier transform (1970). Tables of roots of unity are made in
float64 on the host, so that no chip's sine limits the accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ..builder import Builder
from ..errors import Unsupported
from ..fallback import upload
from ..kernels.types import ctype
from ..refs import Layout, Ref
from ..registry import kernel
from ..runtime.devices import Device
from ..tensor import Tensor
from .complex import run_complex

MAX_RADIX = 64
_COMPLEX, _REAL, _HALF = 0, 1, 2
"""What a line holds: complex numbers, real ones, or the first half of a Hermitian line."""


@kernel("aten::_fft_c2c")
def fft_c2c(b: Builder, self: Ref, dim: Sequence[int], normalization: int, forward: bool) -> None:
    """The transform over `dim`, or its inverse, of complex numbers."""
    if not self.dtype.is_complex:
        raise Unsupported(f"dtype {self.dtype}")
    out = result(b, "_fft_c2c", self, dim, normalization, forward)
    if not dim:
        b.copy(out, self)
        return
    scale = _scale([self.shape[d] for d in dim], normalization)
    _transform(b, out, self, dim, scale, 1 if forward else -1)


@kernel("aten::_fft_r2c")
def fft_r2c(b: Builder, self: Ref, dim: Sequence[int], normalization: int, onesided: bool) -> None:
    """The transform over `dim` of real numbers; `onesided`: only the first half of the last of these dimensions."""
    out = result(b, "_fft_r2c", self, dim, normalization, onesided)
    if out.numel == 0:
        return
    scale, last, others = _scale([self.shape[d] for d in dim], normalization), dim[-1], dim[:-1]
    first = b.temp(out.shape, out.dtype) if others else out
    _line(b, first, self, last, self.shape[last], 1.0 if others else scale, 1, _REAL)
    if others:
        _transform(b, out, first, others, scale, 1)


@kernel("aten::_fft_c2r")
def fft_c2r(b: Builder, self: Ref, dim: Sequence[int], normalization: int, last_dim_size: int) -> None:
    """The inverse transform over `dim` to real numbers of a spectrum of which the last dimension is the first half."""
    out = result(b, "_fft_c2r", self, dim, normalization, last_dim_size)
    if out.numel == 0:
        return
    last, others = dim[-1], dim[:-1]
    scale = _scale([out.shape[d] for d in dim], normalization)
    if others:
        temp = b.temp(self.shape, self.dtype)
        _transform(b, temp, self, others, 1.0, -1)
        self = temp
    _line(b, out, self, last, last_dim_size, scale, -1, _HALF)


def result(b: Builder, name: str, self: Ref, *arguments: Any) -> Ref:
    """Where the result goes: a new one has the strides of torch's CPU kernel, which its meta kernel does not give."""
    if b.outs[0].arg is not None:
        return b.out()
    with FakeTensorMode():
        example = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="cpu")
        found = getattr(torch.ops.aten, name).default(example, *arguments)
    return b.new_out(0, tuple(found.shape), found.dtype, found.stride())


def _scale(sizes: Sequence[int], normalization: int) -> float:
    """1, 1 / sqrt(n) or 1 / n for torch's three kinds of normalization."""
    n = max(1, prod(sizes))
    return (1.0, n**-0.5, 1.0 / n)[normalization]


def _transform(b: Builder, out: Ref, self: Ref, dims: Sequence[int], scale: float, sign: int) -> None:
    """Complex transforms over several dimensions; `scale` is applied once."""
    if out.numel == 0:
        return
    source = self
    for left, d in zip(reversed(range(len(dims))), dims):
        target = b.temp(out.shape, out.dtype) if left else out
        _line(b, target, source, d, self.shape[d], 1.0 if left else scale, sign, _COMPLEX)
        source = target


def _line(b: Builder, out: Ref, source: Ref, dim: int, n: int, scale: float, sign: int, kind: int) -> None:
    """One dimension of length `n`: `source` holds `kind`; `out` complex numbers, as many as fit, or real parts."""
    factors = _factors(n)
    if factors is None:
        _bluestein(b, out, source, dim, n, scale, sign, kind)
        return
    dtype = source.dtype.to_complex()
    shape = (*out.shape[:dim], n, *out.shape[dim + 1 :])
    rooms = [b.temp(shape, dtype) for _ in range(min(2, len(factors) - 1))]
    walk, done = _Line(dim, n, sign, b.constant(_roots(b.device, n, dtype))), 1
    for k, radix in enumerate(factors):
        final = k == len(factors) - 1
        target = out if final else rooms[k % 2]
        walk.launch(b, target, source, kind, radix, done, scale if final else 1.0)
        source, kind, done = target, _COMPLEX, done * radix


@dataclass
class _Line:
    """What all passes along one dimension share."""

    dim: int
    n: int
    sign: int
    roots: Ref

    def launch(self, b: Builder, out: Ref, source: Ref, kind: int, radix: int, done: int, scale: float) -> None:
        """The pass of one radix, after passes whose radices have the product `done`."""
        others = [d for d in reversed(range(out.ndim)) if d != self.dim]
        sizes = tuple(out.shape[d] for d in others) or (1,)
        steps = tuple(tuple(r.strides[d] for d in others) or (0,) for r in (out, source))
        lines = prod(sizes)
        across = lines > 1 and abs(source.strides[self.dim]) > min(abs(s) for s in steps[1])
        total = lines * (self.n // radix)
        items, chunk = b.split(total, max(1, 16384 // radix**2))
        args: list[Any] = [
            source, out, self.roots, total, chunk, self.n, done, radix, lines, out.shape[self.dim], int(across),
            self.sign, scale, Layout(sizes, steps), source.strides[self.dim], out.strides[self.dim],
        ]  # fmt: skip
        b.launch("fft.c", "fft_pass", items, args, _defines(b, out.dtype, source.dtype, kind, radix))


def _defines(b: Builder, out: torch.dtype, source: torch.dtype, kind: int, radix: int) -> dict[str, object]:
    real = source.to_real() if source.is_complex else source
    found = b.types(REAL=real) | {"REAL": ctype(real).compute, "INPUT": kind, "MAX_RADIX": MAX_RADIX}
    found |= {"X": "Pair"} if source.is_complex else b.types(X=source)
    found |= {"Y": "Pair", "OUTPUT": 0} if out.is_complex else b.types(Y=out) | {"OUTPUT": 1}
    return found | {"RADIX": 4 if radix == 4 else 0}


def _factors(n: int) -> list[int] | None:
    """Radices with the product `n`, as many fours as possible; None where a prime factor is over MAX_RADIX."""
    found: list[int] = []
    rest = n
    for radix in (4, *range(2, MAX_RADIX)):
        while rest % radix == 0:
            found.append(radix)
            rest //= radix
    return None if rest > 1 else found or [1]


def _bluestein(b: Builder, out: Ref, source: Ref, dim: int, n: int, scale: float, sign: int, kind: int) -> None:
    """A transform of any length as a convolution with a chirp: k q = (k^2 + q^2 - (k - q)^2) / 2."""
    dtype, m = source.dtype.to_complex(), 1 << (2 * n - 2).bit_length()
    shape = [*out.shape[:dim], m, *out.shape[dim + 1 :]]
    chirp, spectrum = (b.constant(t) for t in _chirp(b.device, n, m, sign, dtype))
    column = [1] * out.ndim
    long, work = b.temp(shape, dtype), b.temp(shape, dtype)
    line = long.narrow(dim, 0, n)
    _expand(b, line, source, dim, n, kind)
    chirp = chirp.view(*(n if d == dim else k for d, k in enumerate(column)))
    spectrum = spectrum.view(*(m if d == dim else k for d, k in enumerate(column)))
    run_complex(b, "c_mul(line, chirp)", {"line": line, "chirp": chirp}, out=line)
    b.fill(long.narrow(dim, n, m - n), 0)
    _line(b, work, long, dim, m, 1.0, 1, _COMPLEX)
    run_complex(b, "c_mul(work, spectrum)", {"work": work, "spectrum": spectrum}, out=work)
    _line(b, long, work, dim, m, scale / m, -1, _COMPLEX)
    wanted, chirp = (r.narrow(dim, 0, out.shape[dim]) for r in (line, chirp))
    text = "c_mul(line, chirp)" if out.dtype.is_complex else "c_mul(line, chirp).re"
    run_complex(b, text, {"line": wanted, "chirp": chirp}, out=out)


def _expand(b: Builder, line: Ref, source: Ref, dim: int, n: int, kind: int) -> None:
    """A line as complex numbers; the second half of a Hermitian one is the first half backwards, conjugated."""
    if kind != _HALF:
        b.copy(line, source)
        return
    half, rest = n // 2 + 1, n - n // 2 - 1
    b.copy(line.narrow(dim, 0, half), source.narrow(dim, 0, half))
    if rest:
        last = source.narrow(dim, rest, 1)
        strides = [-s if d == dim else s for d, s in enumerate(source.strides)]
        back = last.as_strided([rest if d == dim else k for d, k in enumerate(source.shape)], strides)
        run_complex(b, "c_conj(back)", {"back": back}, out=line.narrow(dim, half, rest))


def _turns(k: Any, n: int) -> Any:
    """exp(-2 pi i k / n), from angles of at most an eighth of a turn: large ones lose digits."""
    k = k % n
    quarters = (8 * k + n) // (2 * n)
    return np.exp(-0.5j * np.pi * (4 * k - quarters * n) / n) * np.array([1, -1j, -1, 1j])[quarters % 4]


@lru_cache(maxsize=64)
def _roots(device: Device, n: int, dtype: torch.dtype) -> Tensor:
    """exp(-2 pi i k / n) for k below n."""
    return upload(torch.from_numpy(_turns(np.arange(n), n)).to(dtype), device)


@lru_cache(maxsize=64)
def _chirp(device: Device, n: int, m: int, sign: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """exp(-sign pi i k^2 / n) for k below n, and the transform of length `m` of its conjugate laid around 0."""
    k = np.arange(n, dtype=np.int64)
    chirp = _turns(sign * k * k, 2 * n)
    around = np.zeros(m, dtype=np.complex128)
    around[:n] = chirp.conj()
    around[m - n + 1 :] = chirp[1:].conj()[::-1]
    return tuple(upload(torch.from_numpy(t).to(dtype), device) for t in (chirp, np.fft.fft(around)))  # type: ignore[return-value]
