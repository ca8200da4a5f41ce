"""What a launch passes for each parameter of a kernel: a buffer, the bytes of a number, or a number of each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import KernelError, Unsupported
from .kernels import source as sources
from .kernels.types import pack
from .refs import Layout, Ref, Value
from .runtime.adapter import BufferArg, KernelArg, ValueArg

INT_LIMIT = 2**31 - 1


def needs_wide(args: Sequence[Any], grid: Sequence[int]) -> bool:
    """Whether a launch counts beyond 32 bits."""
    reach = list(grid)
    for a in args:
        if isinstance(a, Ref):
            reach.append(1 + sum((n - 1) * abs(s) for n, s in zip(a.shape, a.strides)))
        elif isinstance(a, Layout):
            reach.append(a.largest)
    return max(reach) > INT_LIMIT


def kernel_argument(param: sources.Param, arg: Any, macros: Mapping[str, object], wide: bool) -> KernelArg:
    """`arg` as the parameter takes it. Raises KernelError where a kernel function mixed up buffers and numbers."""
    if isinstance(arg, Ref):
        if not param.access:
            raise KernelError(f"parameter {param.name} is a scalar, got a tensor")
        return BufferArg(arg.slot, arg.offset, arg.dtype.itemsize)
    if param.access:
        raise KernelError(f"parameter {param.name} is a buffer, got {arg!r}")
    if isinstance(arg, Layout):
        return arg.pack(wide)
    kind = str(macros.get(param.ctype, param.ctype))
    if getattr(arg, "kind", type(arg)) is complex:
        raise Unsupported("a complex number")
    if isinstance(arg, Value):
        return ValueArg(_packer(kind, arg.get))
    return pack(kind, arg)


def _packer(kind: str, get: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], bytes]:
    seen: list[Any] = [None, b""]

    def packed(values: Sequence[Any]) -> bytes:
        value = get(values)
        last, data = seen
        # -0.0 == 0.0 and NaN != NaN: only integers and nonzero equal floats may reuse the bytes.
        if value == last and value and type(value) is type(last):
            return data  # type: ignore[no-any-return]
        data = pack(kind, value)
        seen[:] = [value, data]
        return data

    return packed
