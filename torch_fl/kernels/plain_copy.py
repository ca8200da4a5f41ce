"""Builder.copy and Builder.fill for chips that compile nothing: through the host, with torch's CPU copy.

The chip's own `aten::copy_` kernel, where it registers one, is used for the op; this serves what other kernels need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..fallback import tensor_bytes
from ..refs import Ref, Value

if TYPE_CHECKING:
    from ..builder import Builder

Place = tuple[Any, int, "Ref"]
"""A Ref at replay: handle, offset in elements, and its metadata."""


def emit_plain_copy(builder: Builder, target: Ref, source: Ref | Value | float | int | bool) -> None:
    """target[...] = source (a tensor or a number), broadcast and cast."""
    backend = builder.device.backend

    def read(place: Place) -> tuple[torch.Tensor, memoryview]:
        handle, offset, ref = place
        flat = torch.empty(ref.extent, dtype=ref.dtype, device="cpu")
        raw = tensor_bytes(flat)
        backend.copy_d2h(raw, handle, offset * ref.dtype.itemsize)
        return flat.as_strided(ref.shape, ref.strides), raw

    def run(to: Place, value: Any) -> None:
        # What lies between the elements of `target` must survive, so it is read first.
        there, raw = read(to)
        there.copy_(read(value)[0] if isinstance(value, tuple) else torch.tensor(value, device="cpu"))
        backend.copy_h2d(to[0], to[1] * to[2].dtype.itemsize, raw)

    if target.numel:
        builder.function(run, target, source)
