"""segment_reduce and its gradient: runs of a dimension, given by lengths or offsets (native/segment.c)."""

from __future__ import annotations

from typing import Any

from ..builder import Builder
from ..dispatch import op_of, planned
from ..errors import Unsupported
from ..fallback import download
from ..kernels.indexed import check_index
from ..kernels.wrong import note_wrong
from ..refs import Ref
from ..registry import find_overload, handler, kernel
from ..tensor import Tensor
from .random import require

_SOURCE = "segment.c"
_MODES = {"sum": 0, "mean": 1, "max": 2, "min": 3, "prod": 4}
_STARTS = {"sum": 0.0, "mean": 0.0, "max": float("-inf"), "min": float("inf"), "prod": 1.0}
_TILE = 32


def _runs(b: Builder, lengths: Ref | None, offsets: Ref | None) -> tuple[Ref, int]:
    """(ends of runs along the last dimension, whether the first start stands before them)."""
    if lengths is not None:
        check_index(lengths)
        return b.contiguous(b.call("aten::cumsum", lengths, lengths.ndim - 1)), 0
    if offsets is None:
        raise Unsupported("neither lengths nor offsets")
    check_index(offsets)
    return b.contiguous(offsets), 1


def _launch(b: Builder, name: str, ends: Ref, first: int, tensors: list[Ref], out: Ref, reduce: str, more: Any) -> None:
    """`tensors`: the data last; `more`: the kernel's arguments after the number of tiles."""
    data, axis = tensors[-1], ends.ndim - 1
    if not data.dtype.is_floating_point:
        raise Unsupported(f"dtype {data.dtype}")
    segments, size = ends.shape[axis] - first, data.shape[axis]
    inner, outer = 1, 1
    for n in data.shape[axis + 1 :]:
        inner *= n
    for n in data.shape[:axis]:
        outer *= n
    tile = _TILE if b.is_cpu else 1
    tiles = -(-inner // tile)
    defines = {**b.types(T=data.dtype, TI=ends.dtype), "MODE": _MODES[reduce], "OFFSETS": first, "TILE": tile}
    buffers = [*(b.contiguous(t) for t in tensors), ends, out]
    b.launch(_SOURCE, name, outer * segments * tiles, [*buffers, size, segments, inner, tiles, *more], defines)


@kernel("aten::segment_reduce", static=("initial",))
def segment_reduce(
    b: Builder, data: Ref, reduce: str, lengths: Ref | None, offsets: Ref | None, initial: float | None
) -> None:
    """The reduction of each run of `data` [..., size, ...]: [..., segments, ...]."""
    if lengths is not None:
        check_index(lengths)
        note_wrong(b, lengths, "v < 0", "segment_reduce")
    ends, first = _runs(b, lengths, offsets)
    start = _STARTS[reduce] if initial is None else float(initial)
    _launch(b, "segment_reduce", ends, first, [data], b.out(), reduce, [start, int(initial is not None)])


@kernel("aten::_segment_reduce_backward", static=("initial",))
def segment_reduce_backward(
    b: Builder, grad: Ref, output: Ref, data: Ref, reduce: str, lengths: Ref | None, offsets: Ref | None,
    initial: float | None,
) -> None:  # fmt: skip
    """Gradient of the data; 0 outside all runs."""
    ends, first = _runs(b, lengths, offsets)
    start, out = 1.0 if initial is None else float(initial), b.out()
    b.fill(out, 0)
    _launch(b, "segment_reduce_backward", ends, first, [grad, output, data], out, reduce, [start])


@handler("aten::segment_reduce")
def checked_segment_reduce(data: Tensor, reduce: str, **options: Any) -> Any:
    """segment_reduce; unless `unsafe`, waits for the lengths and raises RuntimeError where they do not fit."""
    lengths = options.get("lengths")
    if lengths is not None and not options.get("unsafe") and type(lengths) is Tensor and lengths.dim() <= data.dim():
        found, size = download(lengths), data.shape[lengths.dim() - 1]
        require(bool((found >= 0).all()), "lengths contains negative value!")
        require(
            bool((found.sum(-1) == size).all()),
            "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
            "!unsafe.",
        )
    return planned(op_of(_FUNC), (data, reduce), options)


_FUNC: Any = find_overload("aten::segment_reduce")
