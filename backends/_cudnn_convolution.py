"""Convolutions and their gradients as cuDNN takes them: one layout for all operands, groups folded into the channels.

Arguments are those of torch_fl/kernels/conv.py's functions. The bias is added by a kernel of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch_fl.builder import Builder
from torch_fl.errors import Unsupported
from torch_fl.kernels.pointwise import emit
from torch_fl.kernels.window import Window
from torch_fl.refs import Ref
from torch_fl.spec import is_row_major

from ._cudnn_call import call
from ._cudnn_graphs import convolution, packed_strides

if TYPE_CHECKING:
    from ._cudnn_plans import CuDNN, Switches


def multiplications(name: str, made: Ref, first: Ref, second: Ref, *rest: object) -> int:
    """Of the whole layer: the same for the result and both gradients."""
    outputs, weight = {
        "convolution": (made, second),
        "convolution input gradient": (first, second),
        "convolution weight gradient": (first, made),
    }[name]
    return outputs.numel * weight.numel // (weight.shape[0] * weight.shape[1])


def emit_forward(
    b: Builder, library: CuDNN, now: Switches, y: Ref, x: Ref, w: Ref, bias: Ref | None, window: Window
) -> None:
    """y = convolution of x with w, plus bias."""
    _emit(b, library, now, "convolution", y, x, _whole(w), window)
    _add(b, y, bias)


def emit_input_grad(
    b: Builder, library: CuDNN, now: Switches, gx: Ref, gy: Ref, w: Ref, bias: Ref | None, window: Window
) -> None:
    """gx = the transpose of the convolution applied to gy, plus bias."""
    _emit(b, library, now, "convolution input gradient", gx, gy, _whole(w), window)
    _add(b, gx, bias)


def emit_weight_grad(b: Builder, library: CuDNN, now: Switches, gw: Ref, gy: Ref, x: Ref, window: Window) -> None:
    """gw = gradient of the weight."""
    _emit(b, library, now, "convolution weight gradient", _whole(gw), x, gy, window)


def _whole(w: Ref) -> Ref:
    """[G * O, I, ...] from [G, O, I, ...]; a view."""
    groups, channels = w.shape[:2]
    if groups > 1 and w.strides[0] != channels * w.strides[1]:
        raise Unsupported("groups that are not next to each other")
    return w.as_strided((groups * channels, *w.shape[2:]), w.strides[1:])


def _emit(
    b: Builder, library: CuDNN, now: Switches, name: str, made: Ref, first: Ref, second: Ref, window: Window
) -> None:
    if {first.dtype, second.dtype} != {made.dtype}:
        raise Unsupported("several dtypes")
    _check_sizes(*_IMAGES[name](made, first, second), window)
    flat = window.kernel[0] == 1 and first.shape[2] == second.shape[2] == made.shape[2] == 1
    if flat and not window.padding[0]:
        made, first, second = (r.select(2, 0) for r in (made, first, second))
    last = _is_last(first) if name == "convolution weight gradient" else _is_last(made)
    plan = library.plan(convolution(name, made, first, second, window, last), now)
    target = made if _is_packed(made, last) else _room(b, made, last)
    call(b, library, plan, [_as_packed(b, first, last), _as_packed(b, second, last), target])
    b.deliver(made, target)


_IMAGES: dict[str, Callable[[Ref, Ref, Ref], tuple[Ref, Ref]]] = {
    "convolution": lambda y, x, w: (x, y),
    "convolution input gradient": lambda gx, gy, w: (gx, gy),
    "convolution weight gradient": lambda gw, x, gy: (x, gy),
}
"""What is convolved, and what comes out, among the result and the two operands."""


def _check_sizes(x: Ref, y: Ref, window: Window) -> None:
    """Raise Unsupported where y is not what a convolution of x has: torch's transposed ones may be padded further."""
    for n, made, k, s, p, d in zip(
        x.shape[2:], y.shape[2:], window.kernel, window.stride, window.padding, window.dilation
    ):
        if (n + 2 * p - d * (k - 1) - 1) // s + 1 != made:
            raise Unsupported("more padding than a convolution has")


def _add(b: Builder, y: Ref, bias: Ref | None) -> None:
    if bias is not None:
        emit(b, {"y": (y, "y + bias")}, {"y": y, "bias": bias.view(1, -1, 1, 1, 1)}, {}, y.dtype)


def _turned(ref: Ref) -> Ref:
    """[N, ..., C]."""
    return ref.permute(0, *range(2, ref.ndim), 1)


def _is_last(ref: Ref) -> bool:
    return not ref.is_contiguous and _turned(ref).is_contiguous


def _is_packed(ref: Ref, last: bool) -> bool:
    return is_row_major(*((_turned(ref).shape, _turned(ref).strides) if last else (ref.shape, ref.strides)))


def _room(b: Builder, ref: Ref, last: bool) -> Ref:
    """A temporary in one piece."""
    return b.temp(ref.shape, ref.dtype).as_strided(ref.shape, packed_strides(ref.shape, last))


def _as_packed(b: Builder, ref: Ref, last: bool) -> Ref:
    if _is_packed(ref, last):
        return ref
    copy = _room(b, ref, last)
    b.copy(copy, ref)
    return copy
