"""nonzero: the one op of which others with data-dependent shapes are made. It waits for the device once, for a count.

The two halves are ops of our own (namespace torch_fl_impl), so that their plans are cached like those of any op.
"""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..dispatch import op_of, planned
from ..fallback import download
from ..refs import Layout, Ref, Value
from ..registry import handler, kernel
from ..spec import contiguous_strides, spec_of
from ..tensor import Tensor, empty_spec, wrap

_LIBRARY = torch.library.Library("torch_fl_impl", "FRAGMENT")
_LIBRARY.define("nonzero_counts(Tensor self) -> Tensor")
_LIBRARY.define("nonzero_places(Tensor self, Tensor counts, int room, Scalar n) -> Tensor")
_OPS = torch.ops.torch_fl_impl
MOST_CHUNKS = 4096


def _split(b: Builder, total: int) -> tuple[int, int]:
    chunk = b.split(total)[1] if b.is_cpu else -(-total // MOST_CHUNKS)
    return -(-total // max(chunk, 1)), max(chunk, 1)


@kernel("torch_fl_impl::nonzero_counts", infer=False)
def nonzero_counts(b: Builder, self: Ref) -> None:
    """Per chunk of the row-major elements, how many are not 0."""
    items, chunk = _split(b, self.numel)
    counts = b.new_out(0, (items,), torch.int64)
    b.launch("nonzero.c", "count", items, [b.contiguous(self), counts, self.numel, chunk], b.types(T=self.dtype))


@kernel("torch_fl_impl::nonzero_places", static=("room",), infer=False)
def nonzero_places(b: Builder, self: Ref, counts: Ref, room: int, n: Value) -> None:
    """The n places, coordinate by coordinate, in a buffer of `room` numbers."""
    items, chunk = _split(b, self.numel)
    out = b.new_out(0, (room,), torch.int64)
    steps = contiguous_strides(self.shape)
    layout = Layout(self.shape, (steps,))
    args: list[Any] = [b.contiguous(self), counts, out, self.numel, chunk, n, layout]
    b.launch("nonzero.c", "places", items, args, b.types(T=self.dtype))


def _room(n: int) -> int:
    """A size with few different values, so that plans are reused."""
    return 1 << max(n - 1, 0).bit_length()


@handler("aten::nonzero")
def nonzero(self: Tensor) -> Tensor:
    """Places of the elements that are not 0: int64 [n, self.dim()], column-major; waits for the device."""
    if self.dtype.is_complex:
        self = torch.ops.aten.ne.Scalar(self, 0)
    device, rank = self._spec.device, len(self._spec.shape)
    counts = planned(_COUNTS, (self,), {})
    n = int(download(counts).sum())
    if n == 0 or rank == 0:
        return empty_spec(spec_of((n, rank), (1, n), torch.int64, device))
    found = planned(_PLACES, (self, counts, _room(n * rank), n), {})
    return wrap(found._buffer, spec_of((n, rank), (1, n), torch.int64, device))


@handler("aten::nonzero_static")
def nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Any:
    """The first `size` places, filled up with `fill_value`: int64 [size, self.dim()]."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found: Any = nonzero(self)[:size]
    out = torch.ops.aten.new_full.default(found, [size, found.shape[1]], fill_value)
    out[: found.shape[0]].copy_(found)
    return out


def flat_places(mask: Tensor) -> Tensor:
    """Places of the true elements in the row-major order of `mask`: int64 [n]."""
    flat: Any = torch.ops.aten.reshape.default(mask, (-1,))
    found = nonzero(flat)
    return wrap(found._buffer, spec_of((found._spec.shape[0],), (1,), torch.int64, found._spec.device))


_COUNTS = op_of(_OPS.nonzero_counts.default)
_PLACES = op_of(_OPS.nonzero_places.default)
