"""out= tensors of the wrong size get the right one, with the warning that torch's own kernels give."""

from __future__ import annotations

from collections.abc import Sequence

from .spec import Spec, contiguous_spec
from .telemetry.where import warn
from .tensor import Tensor, give_layout

_DEPRECATED = (
    "An output with one or more elements was resized since it had shape {had}, which does not match the required "
    "output shape {wanted}. This behavior is deprecated, and in a future PyTorch release outputs will not be resized "
    "unless they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero "
    "elements with t.resize_(0)."
)


def resize_out(out: Tensor, shape: Sequence[int], spec: Spec | None = None) -> None:
    """Give `out` the shape, in the layout `spec` (default row-major); nothing where it has it. Warns unless empty."""
    had, shape = out._spec, tuple(shape)
    if had.shape == shape:
        return
    if had.numel:
        warn(_DEPRECATED.format(had=list(had.shape), wanted=list(shape)), UserWarning)
    row_major = contiguous_spec(shape, had.dtype, had.device)
    give_layout(out, spec if spec is not None and spec.is_dense else row_major)
