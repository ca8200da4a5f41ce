"""A PoCL older than the CPU it runs on compiles all the same, and for that CPU."""

from __future__ import annotations

import ctypes
import sys

import pytest

pytest.importorskip("torch_fl")
from torch_fl.backends import _pocl_target
from torch_fl.backends._pocl_target import _TARGETS, name_the_cpu

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

TRIPLE = b"x86_64-unknown-linux-gnu"


class Fake:
    """Something laid out like a driver's device: numbers, wild pointers, and pointers to the given strings."""

    def __init__(self, *texts: bytes) -> None:
        self.texts = [ctypes.create_string_buffer(t) for t in texts]
        self.words = (ctypes.c_uint64 * 256)(7, 0, 0xDEAD, 1 << 63, *(ctypes.addressof(t) for t in self.texts))
        self.pointer = ctypes.addressof(self.words)

    def text(self, i: int) -> bytes:
        return ctypes.string_at(self.words[4 + i])


def on_a_cpu_like(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's CPU has all that `target` has and nothing that a better target needs."""
    targets = list(_TARGETS)
    flags: set[str] = set().union(*(_TARGETS[name] for name in targets[targets.index(target) :]))
    monkeypatch.setattr(_pocl_target, "_cpu_flags", lambda: flags)


def test_an_unknown_cpu_gets_a_name() -> None:
    fake = Fake(b"generic", TRIPLE, b"generic", b"pthread")
    name = name_the_cpu(fake.pointer)
    assert name in _TARGETS
    assert [fake.text(i) for i in range(4)] == [b"generic", TRIPLE, name.encode(), b"pthread"]
    assert name_the_cpu(fake.pointer) == ""


@pytest.mark.parametrize(
    ("machine", "guess", "given"),
    [
        ("skylake-avx512", "znver3", "skylake-avx512"),
        ("skylake-avx512", "haswell", "skylake-avx512"),
        ("skylake-avx512", "x86-64", "skylake-avx512"),
        ("skylake-avx512", "znver4", ""),
        ("skylake-avx512", "icelake-server", ""),
        ("haswell", "znver3", ""),
        ("haswell", "haswell", ""),
        ("haswell", "bdver1", "haswell"),
        ("haswell", "generic", "haswell"),
        ("x86-64", "haswell", ""),
        ("x86-64", "generic", "x86-64"),
    ],
)
def test_a_cpu_is_not_taken_for_less(machine: str, guess: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_cpu_like(machine, monkeypatch)
    fake = Fake(TRIPLE, guess.encode())
    assert name_the_cpu(fake.pointer) == given
    assert fake.text(1).decode() == (given or guess)


@pytest.mark.parametrize(
    "texts",
    [
        (TRIPLE, b"skylake-avx512"),
        (b"x86_64-pc", b"generic", b"x86_64-pc", b"generic"),
        (b"arm64", b"generic"),
        (TRIPLE, b"riscv"),
        (),
    ],
)
def test_what_is_not_understood_is_left_alone(texts: tuple[bytes, ...]) -> None:
    fake = Fake(*texts)
    assert name_the_cpu(fake.pointer) == ""
    assert [fake.text(i) for i in range(len(texts))] == list(texts)


def test_an_address_that_is_not_mapped_is_no_crash() -> None:
    assert name_the_cpu(64) == ""
    assert name_the_cpu((1 << 47) + 8) == ""
