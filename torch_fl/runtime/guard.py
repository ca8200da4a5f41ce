"""Values that kernels may not take (an index out of bounds, a divisor of zero): noted on the device, raised at a read.

A kernel cannot raise. It skips an index that is out of bounds (no buffer is ever read or written outside) and notes
the first one in four words of device memory: code of the op, index, size. Every read of device memory from the host
looks at these words if a kernel that may note something was launched since the last look.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ..errors import LateError, message

if TYPE_CHECKING:
    from .devices import Buffer, Device

_FORM = "<4q"
NBYTES = struct.calcsize(_FORM)

_BOUNDS = "index {index} is out of bounds for dimension {dim} with size {size}"
_FLAT = "out of range: tried to access index {index} on a tensor of {size} elements."
_ROWS = "index out of range in self"
TEXTS = {
    "take": _FLAT,
    "put_": _FLAT,
    "index_select": _ROWS,
    "index_reduce": _ROWS,
    "embedding": _ROWS,
    "embedding_bag": _ROWS,
    "embedding_bag start": "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
    "position 0. However, got {index}",
    "embedding_bag end": "offsets[-1] can not be greater than input's length {size} but got offsets[-1] of {index}",
    "repeats": "repeats can not be negative",
    "repeat_interleave": "allocated size does not match required size",
    "segment_reduce": "Expected segment_length >= 0 to be true, but got false.",
    "one_hot": "Class values must be smaller than num_classes.",
    "index_copy": f"index_copy_(): {_BOUNDS}",
    "searchsorted": "torch.searchsorted(): sorter index out of range",
    "nll_loss": "Target {index} is out of bounds.",
    "division": "ZeroDivisionError",
    "lu_unpack": "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
    "Did you properly pass the result of lu_factor?",
    "bernoulli": "Expected p_in >= 0 && p_in <= 1 to be true, but got false.",
}
"""What torch's CPU says, by op; `_BOUNDS` for all others."""

_CODES: list[tuple[str, int]] = [("", 0)]


def code_of(op: str, dim: int = 0) -> int:
    """The number that stands for an op and the dimension it indexes in device memory (never 0)."""
    if (op, dim) not in _CODES:
        _CODES.append((op, dim))
    return _CODES.index((op, dim))


class Guard:
    """The four words of one device. `armed`: something was launched since they were last looked at."""

    def __init__(self, device: Device) -> None:
        self.buffer: Buffer = device.allocate(NBYTES)
        self.armed = False
        self._clear()

    def _clear(self) -> None:
        self.buffer.device.backend.copy_h2d(self.buffer.handle, 0, memoryview(bytearray(NBYTES)))

    def check(self) -> None:
        """Raise LateError for the first wrong value that was noted since the last look."""
        if not self.armed:
            return
        self.armed = False
        words = bytearray(NBYTES)
        device = self.buffer.device
        device.backend.copy_d2h(memoryview(words), self.buffer.handle, 0)
        code, index, size, _ = struct.unpack(_FORM, words)
        if code:
            self._clear()
            op, dim = _CODES[code]
            text = TEXTS.get(op, _BOUNDS).format(index=index, size=size, dim=dim)
            because = f"npu:{device.index} computed {op} earlier; wrong values are noticed at the first read"
            raise LateError(message(text, because=because))
