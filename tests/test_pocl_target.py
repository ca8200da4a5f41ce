"""A PoCL older than the CPU it runs on compiles all the same."""

from __future__ import annotations

import ctypes
import sys

import pytest

pytest.importorskip("torch_fl")
from torch_fl.backends._pocl_target import _TARGETS, name_the_cpu

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Fake:
    """Something laid out like a driver's device: numbers, wild pointers, and pointers to the given strings."""

    def __init__(self, *texts: bytes) -> None:
        self.texts = [ctypes.create_string_buffer(t) for t in texts]
        self.words = (ctypes.c_uint64 * 256)(7, 0, 0xDEAD, 1 << 63, *(ctypes.addressof(t) for t in self.texts))
        self.pointer = ctypes.addressof(self.words)

    def text(self, i: int) -> bytes:
        return ctypes.string_at(self.words[4 + i])


def test_an_unknown_cpu_gets_a_name() -> None:
    fake = Fake(b"generic", b"x86_64-unknown-linux-gnu", b"generic", b"pthread")
    name = name_the_cpu(fake.pointer)
    assert name in _TARGETS
    assert [fake.text(i) for i in range(4)] == [b"generic", b"x86_64-unknown-linux-gnu", name.encode(), b"pthread"]


@pytest.mark.parametrize(
    "texts",
    [
        (b"x86_64-unknown-linux-gnu", b"skylake-avx512"),
        (b"x86_64-pc", b"generic", b"x86_64-pc", b"generic"),
        (b"arm64", b"generic"),
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
