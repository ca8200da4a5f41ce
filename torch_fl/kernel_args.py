"""What a launch passes for each parameter of a kernel: a buffer, the bytes of a number, or a number of each call."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .compat.untraced import untraced
from .errors import KernelError, Unsupported
from .kernels import source as sources
from .kernels.types import pack
from .refs import Addresses, Layout, Numbers, Ref, Value
from .runtime.adapter import AddressArg, BufferArg, Handle, KernelArg, ValueArg

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
    if isinstance(arg, bytes):
        return arg
    if isinstance(arg, Layout):
        return arg.pack(wide)
    if isinstance(arg, Addresses):
        return _addresses(arg)
    kind = str(macros.get(param.ctype, param.ctype))
    if isinstance(arg, Numbers):
        return _numbers(arg, str(macros.get(arg.ctype, arg.ctype)))
    if getattr(arg, "kind", type(arg)) is complex:
        raise Unsupported("a complex number")
    if isinstance(arg, Value):
        return ValueArg(untraced(_packer(kind, arg.get)), arg.steady)
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


def _addresses(arg: Addresses) -> AddressArg:
    """The addresses of Refs, one after the other; made anew only where a buffer is another than at the last launch."""
    form = struct.Struct(f"<{len(arg.refs)}Q")
    places = [(r.slot, r.offset, r.dtype.itemsize) for r in arg.refs]
    slots = sorted({r.slot for r in arg.refs})
    seen: list[Any] = [None, b""]

    def get(handles: Sequence[Handle], offsets: Sequence[int]) -> bytes:
        wanted = [handles[s].address for s in slots], [offsets[s] for s in slots]
        last, data = seen
        if wanted != last:
            data = form.pack(*[handles[s].address + (offsets[s] + extra) * size for s, extra, size in places])
            seen[:] = wanted, data
        return data  # type: ignore[no-any-return]

    return AddressArg(tuple(slots), form.size, get)


def _numbers(arg: Numbers, kind: str) -> KernelArg:
    """Numbers one after the other."""
    fixed = [v for v in arg.values if not isinstance(v, Value)]
    if len(fixed) == len(arg.values):
        return b"".join(pack(kind, v) for v in fixed)
    packers = [_packer(kind, v.get) if isinstance(v, Value) else _constant(pack(kind, v)) for v in arg.values]
    nbytes = len(packers) * len(pack(kind, 0))
    return ValueArg(lambda values: b"".join([p(values) for p in packers]), nbytes=nbytes)


def _constant(data: bytes) -> Callable[[Sequence[Any]], bytes]:
    return lambda values: data
