"""Names the machine's CPU to a PoCL whose LLVM is older than the CPU.

Such a PoCL takes "generic" for the CPU's name, which its own clang then refuses ("unknown target CPU 'generic'"), and
nothing compiles; it has no setting to say another. The name is a C string that the device's struct points to, next to
the target triple. Here that pointer is found, read through the kernel (an address that is not mapped is an error, not
a crash), and set to a CPU that old LLVMs know and that has no instruction this one lacks.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

_TARGETS = {
    "skylake-avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi2", "adx", "aes"},
    "haswell": {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"},
    "sandybridge": {"avx", "aes", "pclmulqdq", "popcnt"},
    "x86-64": set(),
}
_STRUCT_BYTES = 1024
_WORD = struct.Struct("@Q")
_kept: list[ctypes.Array[ctypes.c_char]] = []
"""The names written into drivers: they live as long as the process."""


def name_the_cpu(pointer: int) -> str:
    """Name the CPU in the PoCL device at `pointer`, where PoCL does not know it; returns the name given, or ""."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            places = list(_unknown_cpus(memory.fileno(), pointer))
        flags = _cpu_flags()
    except OSError:
        return ""
    if len(places) != 1:
        return ""
    name = next(n for n, needed in _TARGETS.items() if needed <= flags)
    _kept.append(ctypes.create_string_buffer(name.encode()))
    ctypes.c_uint64.from_address(places[0]).value = ctypes.addressof(_kept[-1])
    return name


def _unknown_cpus(memory: int, pointer: int) -> Iterator[int]:
    words = [w for (w,) in _WORD.iter_unpack(os.pread(memory, _STRUCT_BYTES, pointer))]
    for i, (triple, cpu) in enumerate(pairwise(words)):
        if _text(memory, cpu) == b"generic" and _text(memory, triple).startswith(b"x86_64-"):
            yield pointer + (i + 1) * _WORD.size


def _text(memory: int, address: int) -> bytes:
    try:
        return os.pread(memory, 64, address).split(b"\0")[0]
    except (OSError, OverflowError):
        return b""


def _cpu_flags() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())
