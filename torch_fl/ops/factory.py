"""Tensors made from numbers: arange, linspace, logspace, eye, index triangles.

torch composes every other factory (zeros, full, new_full ...) of `empty` and `fill_`; `ones_like` and `zeros_like`,
with which backward passes start, are one launch.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..builder import Builder
from ..decomposition import home
from ..dispatch import call
from ..errors import Unsupported
from ..fallback import upload
from ..kernels.types import HALVES
from ..refs import Ref, Value
from ..registry import handler, kernel
from ..schema import NotOurs
from ..tensor import Tensor, empty

_library: Any = torch.library.Library("torch_fl", "FRAGMENT")
_library.define("ramp(Tensor(a!) self, Scalar start, Scalar step) -> Tensor(a!)")
_library.impl("ramp", lambda self, start, step: self, "Meta")
_RAMP = torch.ops.torch_fl.ramp.default


# -- arange --------------------------------------------------------------------------------------------------------
def _ramp_type(b: Builder, dtype: torch.dtype) -> str:
    """The type torch counts in: integers as int64, halves in float32, other floats in float64 where there is one."""
    if dtype.is_complex:
        raise Unsupported("dtype complex")
    if not dtype.is_floating_point:
        return "long"
    return "double" if b.fp64 and dtype not in HALVES else "float"


@kernel("torch_fl::ramp")
def ramp(b: Builder, self: Ref, start: Value, step: Value) -> None:
    """self[i] = start + i * step, [n]."""
    kind = _ramp_type(b, self.dtype)
    target = b.row_major(b.out())
    items, chunk = b.split(target.numel)
    macros = {**b.types(T=self.dtype), "ACC": kind, **_UNUSED}
    b.launch("ramp.c", "ramp", items, [target, target.numel, chunk, start, step], macros)
    b.deliver(b.out(), target)


_UNUSED = {"R(v)": "(v)", "AT(v)": "(v)"}


def _fill_ramp(out: torch.Tensor, start: Any, step: Any) -> None:
    if out.dtype.is_complex:
        out.copy_(torch.arange(out.numel(), device="cpu") * step + start)
        return
    kind = float if out.dtype.is_floating_point else int
    call(_RAMP, (out, kind(start), kind(step)), {})


@handler("aten::arange.start_step")
def arange_start_step(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """[start, start + step, ...) up to `end`; integers if all three are, else the default dtype."""
    dtype = dtype or _arange_dtype(start, end, step)
    out = empty((_arange_size(start, end, step, dtype),), dtype, home(device))
    if out._spec.numel:
        _fill_ramp(out, start, step)
    return out


def _arange_size(start: Any, end: Any, step: Any, dtype: torch.dtype) -> int:
    """Number of elements: counted in int64 for int64, in float64 otherwise, as torch does. Raises torch's errors."""
    kind = int if dtype == torch.int64 else float
    try:
        low, high, stride = kind(start), kind(end), kind(step)
        valid = stride != 0 and math.isfinite(low) and math.isfinite(high) and (high - low) * stride >= 0
    except (OverflowError, TypeError, ValueError):  # infinite or complex
        valid = False
    if not valid:
        return torch.arange(start, end, step, dtype=dtype, device="cpu").numel()
    return -int((low - high) // stride) if kind is int else math.ceil((high - low) / stride)


def _arange_dtype(*numbers: Any) -> torch.dtype:
    return torch.int64 if all(isinstance(n, int) for n in numbers) else torch.get_default_dtype()


@handler("aten::arange.start")
def arange_start(start: Any, end: Any, **options: Any) -> Any:
    """arange.start_step with step 1."""
    return arange_start_step(start, end, 1, **options)


@handler("aten::arange")
def arange(end: Any, **options: Any) -> Any:
    """arange.start_step from 0 with step 1."""
    return arange_start_step(0, end, 1, **options)


def _fill_out(size: torch.Size, start: Any, step: Any, out: Tensor) -> Tensor:
    if type(out) is not Tensor:
        raise NotOurs
    if out.numel() != size.numel():
        out.resize_(size)
    if not size.numel():
        return out
    if out.is_contiguous():
        _fill_ramp(out.view(-1), start, step)
    else:
        flat = empty((size.numel(),), out.dtype, out._spec.device)
        _fill_ramp(flat, start, step)
        out.copy_(flat.view_as(out))
    return out


@handler("aten::arange.start_out")
def arange_start_out(start: Any, end: Any, step: Any = 1, *, out: Tensor) -> Tensor:
    """arange into `out`, which is resized where it has another number of elements."""
    return _fill_out(torch.Size((_arange_size(start, end, step, out.dtype),)), start, step, out)


@handler("aten::arange.out")
def arange_end_out(end: Any, *, out: Tensor) -> Any:
    """The same from 0 with step 1."""
    return arange_start_out(0, end, 1, out=out)


@handler("aten::range.out")
def range_out(start: Any, end: Any, step: Any = 1, *, out: Tensor) -> Tensor:
    """The same with the end included."""
    meta = torch.empty(0, dtype=out.dtype, device="meta")
    return _fill_out(torch.ops.aten.range.out(start, end, step, out=meta).shape, start, step, out)


# -- linspace, logspace --------------------------------------------------------------------------------------------
def _between(b: Builder, start: Any, end: Any, base: Any, at: str) -> None:
    target = b.out()
    dtype = target.dtype
    if dtype.is_complex:
        raise Unsupported("dtype complex")
    if not dtype.is_floating_point and not b.fp64:
        raise Unsupported("integer linspace needs float64")
    kind = "float" if dtype in (*HALVES, torch.float32) else "double"
    rounded = dtype in HALVES and at == _POINT
    macros = {**b.types(T=dtype), "ACC": kind, "R(v)": "T_load(T_save(v))" if rounded else "(v)", "AT(v)": at}
    made = b.row_major(target)
    items, chunk = b.split(made.numel)
    ends = [start, end] if dtype.is_floating_point else [_wrapped(v, dtype) for v in (start, end)]
    b.launch("ramp.c", "between", items, [made, made.numel, chunk, *ends, base], macros)
    b.deliver(target, made)


def _wrapped(value: Any, dtype: torch.dtype) -> Any:
    """The number as `dtype` holds it: truncated, and wrapped as C casts do."""
    low, count = int(torch.iinfo(dtype).min), 2 ** int(torch.iinfo(dtype).bits)

    def wrap(number: float) -> int:
        wrapped: int = (int(number) - low) % count + low
        return wrapped

    return value.map(wrap, int) if isinstance(value, Value) else wrap(value)


_POINT = "(v)"


@kernel("aten::linspace", "aten::linspace.out")
def linspace(b: Builder, start: Value, end: Value, steps: int) -> None:
    """`steps` points from start to end, both included."""
    _between(b, start, end, 0.0, _POINT)


@kernel("aten::logspace", "aten::logspace.out", static=("base",))
def logspace(b: Builder, start: Value, end: Value, steps: int, base: float) -> None:
    """base to the power of `steps` points from start to end."""
    _between(b, start, end, base, "pow(base, (ACC)(v))")


# -- matrices and indices ------------------------------------------------------------------------------------------
@kernel("aten::eye", "aten::eye.m", "aten::eye.out", "aten::eye.m_out")
def eye(b: Builder, n: int) -> None:
    """Ones on the diagonal, zeros elsewhere."""
    out = b.out()
    b.fill(out, 0)
    rows, columns = out.shape
    b.fill(out.as_strided((min(rows, columns),), (sum(out.strides),)), 1)


def _triangle(b: Builder, upper: bool, row: int, col: int, offset: int, dtype: torch.dtype | None) -> None:
    make = torch.triu_indices if upper else torch.tril_indices
    # The schema's default for dtype is the number of int64.
    like = make(row, col, offset, dtype=dtype if isinstance(dtype, torch.dtype) else torch.int64, device="meta")
    out = b.new_out(0, tuple(like.shape), like.dtype)
    macros = {**b.types(T=out.dtype), "ACC": "long", **_UNUSED}
    b.launch("ramp.c", "triangle", row if out.numel else 0, [out, out.shape[1], col, offset, int(upper)], macros)


@kernel("aten::tril_indices", infer=False)
def tril_indices(b: Builder, row: int, col: int, offset: int, dtype: torch.dtype | None) -> None:
    """[2, n] rows and columns of the lower triangle of a [row, col] matrix."""
    _triangle(b, False, row, col, offset, dtype)


@kernel("aten::triu_indices", infer=False)
def triu_indices(b: Builder, row: int, col: int, offset: int, dtype: torch.dtype | None) -> None:
    """[2, n] rows and columns of the upper triangle of a [row, col] matrix."""
    _triangle(b, True, row, col, offset, dtype)


def _like(b: Builder, number: int, device: Any, layout: Any, pin_memory: Any) -> None:
    if device is not None or layout not in (None, torch.strided) or pin_memory:
        raise Unsupported("another device, layout or kind of memory than the tensor's")
    b.fill(b.out(), number)


@kernel("aten::ones_like")
def ones_like(b: Builder, self: Ref, device: Any, layout: Any, pin_memory: Any) -> None:
    """Ones in self's shape."""
    _like(b, 1, device, layout, pin_memory)


@kernel("aten::zeros_like")
def zeros_like(b: Builder, self: Ref, device: Any, layout: Any, pin_memory: Any) -> None:
    """Zeros in self's shape."""
    _like(b, 0, device, layout, pin_memory)


# -- windows -------------------------------------------------------------------------------------------------------
@handler("aten::kaiser_window", "aten::kaiser_window.periodic", "aten::kaiser_window.beta")
def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> torch.Tensor:
    """Made on the host: torch's composition of it reaches a kernel that only its own devices can have."""
    device = home(options.pop("device", None))
    return upload(torch.kaiser_window(window_length, periodic, beta, **options, device="cpu"), device)


# -- gradients that are zero ----------------------------------------------------------------------------------------
@handler("aten::_efficientzerotensor")
def efficient_zeros(size: list[int], **options: Any) -> torch.Tensor:
    """Zeros that have memory: torch's have none, which only its own kernels know."""
    return torch.zeros(size, dtype=options.get("dtype"), device=options.get("device") or "npu")


# -- new_* ---------------------------------------------------------------------------------------------------------
@handler("aten::new_empty_strided")
def new_empty_strided(
    self: Tensor,
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """A tensor of a given layout like self. C++ asks for index 0 whatever self's is, so that means: where self is."""
    where = device if device is not None and (device.type != "npu" or device.index) else self.device
    return torch.empty_strided(size, stride, dtype=dtype or self.dtype, device=where)
