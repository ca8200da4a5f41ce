"""torch dtypes as C types: how an element is stored, in what type it is computed, and how one becomes the other.

Sixteen-bit floats are stored as `ushort` and computed in `float`, on every chip: no fp16 extension is needed, and
the arithmetic is the one torch's CPU kernels use (opmath).
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

import torch

from ..errors import Unsupported, unsupported_dtype


@dataclass(frozen=True)
class CType:
    """One dtype in C: storage type, compute type, and macros that convert an expression `v` between them."""

    store: str
    compute: str
    load: str = "(v)"
    save: str = "(v)"


_TYPES: dict[torch.dtype, CType] = {
    torch.float32: CType("float", "float", save="((float)(v))"),
    torch.float64: CType("double", "double", save="((double)(v))"),
    torch.float16: CType("ushort", "float", load="f16_to_f32(v)", save="f32_to_f16((float)(v))"),
    torch.bfloat16: CType("ushort", "float", load="bf16_to_f32(v)", save="f32_to_bf16((float)(v))"),
    torch.int64: CType("long", "long", save="((long)(v))"),
    torch.int32: CType("int", "int", save="((int)(v))"),
    torch.int16: CType("short", "int", save="((short)(int)(v))"),
    torch.int8: CType("char", "int", save="((char)(int)(v))"),
    torch.uint8: CType("uchar", "int", save="((uchar)(int)(v))"),
    torch.uint16: CType("ushort", "int", save="((ushort)(int)(v))"),
    torch.uint32: CType("uint", "uint", save="((uint)(long)(v))"),
    torch.uint64: CType("ulong", "ulong", save="((ulong)(v))"),
    torch.bool: CType("uchar", "int", load="((v) != 0)", save="((uchar)((v) != 0))"),
}


HALVES = (torch.float16, torch.bfloat16)


def widened(dtype: torch.dtype) -> torch.dtype:
    """The dtype that sums are kept in: float32 for halves, else the dtype itself."""
    return torch.float32 if dtype in HALVES else dtype


def ctype(dtype: torch.dtype) -> CType:
    """The C view of `dtype`. Raises Unsupported for dtypes kernels do not compute in (complex, quantized, float8)."""
    found = _TYPES.get(dtype)
    if found is None:
        raise unsupported_dtype(dtype)
    return found


_COMPLEX: dict[torch.dtype, CType] = {
    torch.complex64: CType("complex64", "complex64", save="to_complex64(v)"),
    torch.complex128: CType("complex128", "complex128", save="to_complex128(v)"),
}


def complex_ctype(dtype: torch.dtype) -> CType:
    """The C view of a complex dtype: a struct of native/complex.h. Raises Unsupported for halves."""
    found = _COMPLEX.get(dtype)
    if found is None:
        raise unsupported_dtype(dtype)
    return found


def raw_dtype(itemsize: int) -> torch.dtype:
    """The integer dtype that moves `itemsize` bytes unchanged. Raises Unsupported for other sizes."""
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
        if dtype.itemsize == itemsize:
            return dtype
    raise Unsupported(f"elements of {itemsize} bytes")


_PACK: dict[str, str] = {
    "float": "<f", "double": "<d", "long": "<q", "ulong": "<Q", "int": "<i", "uint": "<I", "short": "<h",
    "ushort": "<H", "char": "<b", "uchar": "<B",
}  # fmt: skip


def pack(ctype_name: str, value: float | int | bool) -> bytes:
    """`value` as the bytes of a C scalar; floats overflow to infinity and integers wrap, as C casts do."""
    form = _PACK[ctype_name]
    if ctype_name == "float":
        return bytes(ctypes.c_float(value))
    if ctype_name == "double":
        return struct.pack(form, value)
    bits = 8 * struct.calcsize(form)
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped.to_bytes(bits // 8, "little")
