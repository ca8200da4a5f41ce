"""Indices that kernels found out of bounds: noted on the device, raised at the next synchronising read.

A kernel cannot raise. It skips an index that is out of bounds (no buffer is ever read or written outside) and notes
the first one in four words of device memory: code of the op, index, size. Every read of device memory from the host
looks at these words if a kernel that may note something was launched since the last look.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .devices import Buffer, Device

_FORM = "<4q"
_NAMES: list[str] = [""]
NBYTES = struct.calcsize(_FORM)


def code_of(name: str) -> int:
    """The number that stands for an op in device memory (never 0)."""
    if name not in _NAMES:
        _NAMES.append(name)
    return _NAMES.index(name)


class Guard:
    """The four words of one device. `armed`: something was launched since they were last looked at."""

    def __init__(self, device: Device) -> None:
        self.buffer: Buffer = device.allocate(NBYTES)
        self.armed = False
        self._clear()

    def _clear(self) -> None:
        self.buffer.device.backend.copy_h2d(self.buffer.handle, 0, memoryview(bytearray(NBYTES)))

    def check(self) -> None:
        """Raise IndexError for the first index that was out of bounds since the last look."""
        if not self.armed:
            return
        self.armed = False
        words = bytearray(NBYTES)
        device = self.buffer.device
        device.backend.copy_d2h(memoryview(words), self.buffer.handle, 0)
        code, index, size, _ = struct.unpack(_FORM, words)
        if code:
            self._clear()
            raise IndexError(
                f"{_NAMES[code]}: index {index} is out of bounds for a dimension with size {size} "
                f"(npu:{device.index} computed this earlier; it is noticed at the first read)"
            )
