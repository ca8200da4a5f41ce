"""Names the machine's CPU to a PoCL whose LLVM does not know it.

LLVM takes a CPU that is newer than itself for an older one of the same make, whose code leaves half of each register
unused, or for "generic", which PoCL's own clang then refuses ("unknown target CPU 'generic'"), and nothing compiles;
PoCL has no setting to say another. The name is a C string that the device's struct points to, next to the target
triple. Here that pointer is found, read through the kernel (an address that is not mapped is an error, not a crash),
and set to a CPU that old LLVMs know and that has no instruction this one lacks. PoCL's cache on disk keeps programs by
this name, so none compiled for another CPU is found there.
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
"""CPUs that LLVM knows since long, best first, and what the machine's flags must have for each."""

_LESS_THAN = {
    "skylake-avx512": "haswell broadwell skylake alderlake raptorlake znver1 znver2 znver3 x86-64-v3",
    "haswell": "sandybridge ivybridge btver2 bdver1 bdver2 bdver3 x86-64-v2",
    "sandybridge": "nehalem westmere core2 penryn",
}
"""What an LLVM may take a CPU for that has all of the target's instructions: names of CPUs that have not."""

_STRUCT_BYTES = 1024
_WORD = struct.Struct("@Q")
_kept: list[ctypes.Array[ctypes.c_char]] = []
"""The names written into drivers: they live as long as the process."""


def name_the_cpu(pointer: int) -> str:
    """Name the CPU in the PoCL device at `pointer` where PoCL's own name says less; returns the name given, or ""."""
    try:
        flags = _cpu_flags()
        target = next(n for n, needed in _TARGETS.items() if needed <= flags)
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            places = list(_places(memory.fileno(), pointer, _understatements(target)))
    except OSError:
        return ""
    if len(places) != 1:
        return ""
    _kept.append(ctypes.create_string_buffer(target.encode()))
    ctypes.c_uint64.from_address(places[0]).value = ctypes.addressof(_kept[-1])
    return target


def _understatements(target: str) -> set[str]:
    """The names that say less than `target`: "generic", and those of CPUs below it."""
    levels = list(_TARGETS)[list(_TARGETS).index(target) :]
    return {"generic", *levels[1:], *(name for level in levels for name in _LESS_THAN.get(level, "").split())}


def _places(memory: int, pointer: int, names: set[str]) -> Iterator[int]:
    """Where the struct at `pointer` has one of these names of CPUs behind a target triple."""
    words = [w for (w,) in _WORD.iter_unpack(os.pread(memory, _STRUCT_BYTES, pointer))]
    for i, (triple, cpu) in enumerate(pairwise(words)):
        if _text(memory, triple).startswith("x86_64-") and _text(memory, cpu) in names:
            yield pointer + (i + 1) * _WORD.size


def _text(memory: int, address: int) -> str:
    try:
        return os.pread(memory, 64, address).split(b"\0")[0].decode("ascii", "replace")
    except (OSError, OverflowError):
        return ""


def _cpu_flags() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())
