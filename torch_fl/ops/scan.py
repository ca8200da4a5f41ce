"""Running results along a dimension: cumsum, cumprod, logcumsumexp, cummax, cummin.

Each line is walked in order by one work-item, in double where the chip has it: what torch's CPU kernels do.
"""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.types import HALVES, ctype
from ..refs import Layout, Ref
from ..registry import kernel

WIDTH = 64
"""Neighbouring lines that one work-item walks together on a CPU."""

_SUM = {"STEP(a, v)": "((a) + (v))", "START": "0"}
_PROD = {"STEP(a, v)": "((a) * (v))", "START": "1"}
_LOGSUMEXP = {"STEP(a, v)": "log_add(a, v)", "START": "(-INFINITY)", "LOGSUMEXP": "1"}


@kernel("aten::cumsum")
def cumsum(b: Builder, self: Ref, dim: int) -> None:
    """out[i] = self[0] + ... + self[i] along `dim`."""
    _scan(b, self, dim, _SUM)


@kernel("aten::cumprod")
def cumprod(b: Builder, self: Ref, dim: int) -> None:
    """out[i] = self[0] * ... * self[i] along `dim`."""
    _scan(b, self, dim, _PROD)


@kernel("aten::_logcumsumexp", "aten::logcumsumexp")
def logcumsumexp(b: Builder, self: Ref, dim: int) -> None:
    """out[i] = log(exp(self[0]) + ... + exp(self[i])) along `dim`."""
    if not self.dtype.is_floating_point:
        raise Unsupported("logcumsumexp of integers")
    _scan(b, self, dim, _LOGSUMEXP)


def _scan(b: Builder, self: Ref, dim: int, defines: dict[str, str]) -> None:
    out = b.out()
    if self.ndim == 0:
        self, out = self.unsqueeze(0), out.unsqueeze(0)
    if out.numel == 0:
        return
    if out.dtype != self.dtype:  # numbers are cast before they are combined
        self = b.cast(self, out.dtype)
    dim %= self.ndim
    acc = torch.float64 if b.fp64 and out.dtype.is_floating_point else out.dtype
    c_acc = ctype(acc).compute
    table = {**b.types(Y=out.dtype, X=self.dtype), **defines, "ACC": c_acc}
    table["ACC_FLOAT"] = "double" if c_acc == "double" else "float"
    n = self.shape[dim]
    if b.is_cpu and _inner_run(self, out, dim) >= 8:
        _columns(b, out, self, dim, acc, table)
        return
    lines = out.numel // n
    items, chunk = b.split(lines, max(1, 4096 // n))
    layout = _others(dim, self.shape, out, self)
    arguments: list[Any] = [out, self, lines, chunk, n, layout, out.strides[dim], self.strides[dim]]
    b.launch("scan.c", "scan", items, arguments, table)


def _inner_run(self: Ref, out: Ref, dim: int) -> int:
    """Length of the row-major run inside `dim`; 0 where the two tensors are not both row-major."""
    if not (self.is_contiguous and out.is_contiguous):
        return 0
    run = 1
    for n in self.shape[dim + 1 :]:
        run *= n
    return run


def _columns(b: Builder, out: Ref, self: Ref, dim: int, acc: torch.dtype, table: dict[str, Any]) -> None:
    n, inner = self.shape[dim], _inner_run(self, out, dim)
    outer = self.numel // (n * inner)
    if acc in HALVES:
        acc = torch.float32
    elif acc not in (torch.float64, torch.float32, torch.int64):
        acc = torch.int32
    carry = b.temp((outer, inner), acc)
    arguments: list[Any] = [out, self, carry, outer, WIDTH, inner, n, n * inner, n * inner, inner, inner]
    b.launch("scan.c", "scan_columns", outer * -(-inner // WIDTH), arguments, table)


def _others(dim: int, shape: tuple[int, ...], *refs: Ref) -> Layout:
    """The dimensions beside `dim`, innermost first."""
    keep = [d for d in reversed(range(len(shape))) if d != dim and shape[d] != 1]
    if not keep:
        return Layout((1,), tuple((0,) for _ in refs))
    return Layout(tuple(shape[d] for d in keep), tuple(tuple(r.strides[d] for d in keep) for r in refs))


@kernel("aten::cummax")
def cummax(b: Builder, self: Ref, dim: int) -> None:
    """The largest element so far along `dim`, and its index (the last one among equals)."""
    _extremes(b, self, dim, ">=")


@kernel("aten::cummin")
def cummin(b: Builder, self: Ref, dim: int) -> None:
    """The smallest element so far along `dim`, and its index (the last one among equals)."""
    _extremes(b, self, dim, "<=")


def _extremes(b: Builder, self: Ref, dim: int, sign: str) -> None:
    values, indices = b.out(0), b.out(1)
    if self.ndim == 0:
        self, values, indices = self.unsqueeze(0), values.unsqueeze(0), indices.unsqueeze(0)
    if values.numel == 0:
        return
    dim %= self.ndim
    n = self.shape[dim]
    lines = self.numel // n
    items, chunk = b.split(lines, max(1, 4096 // n))
    layout = _others(dim, self.shape, values, indices, self)
    strides = [values.strides[dim], indices.strides[dim], self.strides[dim]]
    table = {**b.types(X=self.dtype), "BEATS(v, a)": f"((v) != (v) || (v) {sign} (a))"}
    b.launch("extremes.c", "extremes", items, [values, indices, self, lines, chunk, n, layout, *strides], table)
