"""The CTC loss and its gradient (native/ctc.c).

The lengths are read on the host: torch takes them as lists or as tensors, and the shape of a result depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from ..builder import Builder
from ..dispatch import call
from ..errors import unsupported_dtype
from ..fallback import download
from ..kernels.indexed import check_index
from ..refs import Ref
from ..registry import handler, kernel
from ..runtime.guard import code_of
from ..tensor import Tensor
from .random import require

Lengths = Sequence[int] | torch.Tensor
_SOURCE = "ctc.c"

_library: Any = torch.library.Library("torch_fl", "FRAGMENT")
_library.define(
    "ctc_forward(Tensor log_probs, Tensor targets, Tensor lengths, int longest, int blank) -> (Tensor, Tensor)"
)
_library.define(
    "ctc_backward(Tensor grad, Tensor log_probs, Tensor targets, Tensor lengths, Tensor loss, Tensor alpha, int blank, "
    "bool zero_infinity) -> Tensor"
)
_FORWARD = torch.ops.torch_fl.ctc_forward.default
_BACKWARD = torch.ops.torch_fl.ctc_backward.default


def _defines(b: Builder, log_probs: Ref, targets: Ref) -> dict[str, object]:
    if log_probs.dtype not in (torch.float32, torch.float64):
        raise unsupported_dtype(log_probs.dtype)
    check_index(targets)
    return b.types(T=log_probs.dtype, TI=targets.dtype)


@kernel("torch_fl::ctc_forward", infer=False)
def ctc_forward(b: Builder, log_probs: Ref, targets: Ref, lengths: Ref, longest: int, blank: int) -> None:
    """(loss [N], logarithms of path weights [N, T, 2 * longest + 1]) of log_probs [T, N, C].

    Unlike torch's, the weights are relative to the largest of their time: float32 holds them better.
    """
    time, batch, classes = log_probs.shape
    width = 2 * longest + 1
    loss = b.new_out(0, (batch,), log_probs.dtype)
    alpha = b.new_out(1, (batch, time, width), log_probs.dtype)
    numbers = (batch, time, classes, width, targets.strides[-1], blank, code_of("ctc_loss"))
    args: list[Any] = [b.contiguous(log_probs), targets, lengths, loss, alpha, b.guard(), *numbers]
    b.launch(_SOURCE, "ctc_forward", batch, args, _defines(b, log_probs, targets))


@kernel("torch_fl::ctc_backward", infer=False)
def ctc_backward(
    b: Builder, grad: Ref, log_probs: Ref, targets: Ref, lengths: Ref, loss: Ref, alpha: Ref, blank: int,
    zero_infinity: bool,
) -> None:  # fmt: skip
    """Gradient of log_probs [T, N, C]; 0 beyond the length of an input."""
    (time, batch, classes), width = log_probs.shape, alpha.shape[2]
    out, beta = b.new_out(0, log_probs.shape, log_probs.dtype), b.temp((batch, 2, width), log_probs.dtype)
    numbers = (batch, time, classes, width, targets.strides[-1], blank, int(zero_infinity))
    args: list[Any] = [
        grad, b.contiguous(log_probs), targets, lengths, b.contiguous(loss), b.contiguous(alpha), beta, out, b.guard(),
        *numbers, grad.expand((batch,)).strides[0], code_of("ctc_loss"),
    ]  # fmt: skip
    b.launch(_SOURCE, "ctc_backward", batch, args, _defines(b, log_probs, targets))


def _numbers(lengths: Lengths) -> list[int]:
    if not isinstance(lengths, torch.Tensor):
        return list(lengths)
    return [int(n) for n in (download(lengths) if type(lengths) is Tensor else lengths).tolist()]


def _places(targets: torch.Tensor, target_lengths: list[int]) -> list[int]:
    """Where the target of each sequence starts: in one list of all, or in its row."""
    if targets.dim() == 1:
        return [n * targets.stride(0) for n in accumulate(target_lengths[:-1], initial=0)]
    return [n * targets.stride(0) for n in range(len(target_lengths))]


def _lengths(
    log_probs: torch.Tensor, targets: torch.Tensor, inputs: Lengths, labels: Lengths, blank: int
) -> tuple[torch.Tensor, int]:
    """Lengths and places [3, N] on the device, and the longest target. Raises RuntimeError for what does not fit."""
    input_lengths, target_lengths = _numbers(inputs), _numbers(labels)
    require(log_probs.numel() > 0, "log_probs tensor must not be empty")
    time, batch, classes = log_probs.shape
    require(0 <= blank < classes, "blank must be in label range")
    require(len(input_lengths) == batch, "input_lengths must be of size batch_size")
    require(len(target_lengths) == batch, "target_lengths must be of size batch_size")
    for name, numbers in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        low = min(numbers)
        require(low >= 0, f"Expected {name} to have value at least 0, but got value {low}")
    longest = max(target_lengths)
    require(max(input_lengths) <= time, f"Expected input_lengths to have value at most {time}, but got value "
            f"{max(input_lengths)}")  # fmt: skip
    room, wanted = (targets.shape[0], sum(target_lengths)) if targets.dim() == 1 else (targets.shape[1], longest)
    where = 0 if targets.dim() == 1 else 1
    fits = room == wanted if targets.dim() == 1 else room >= wanted
    require(fits, f"Expected targets to have size {wanted} at dimension {where}, but got size {room}")
    require(targets.dim() == 1 or targets.shape[0] == batch, "Expected targets to have one row for each sequence")
    rows = [input_lengths, target_lengths, _places(targets, target_lengths)]
    return torch.tensor(rows, dtype=torch.int64, device=log_probs.device), (longest if where == 0 else room)


@handler("aten::_ctc_loss", "aten::_ctc_loss.Tensor")
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, blank: int = 0,
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """(negative log likelihood [N], logarithms of path weights for the gradient); waits for lengths in tensors."""
    lengths, longest = _lengths(log_probs, targets, input_lengths, target_lengths, blank)
    return call(_FORWARD, (log_probs, targets.to(log_probs.device), lengths, longest, blank), {})


@handler("aten::_ctc_loss_backward", "aten::_ctc_loss_backward.Tensor")
def ctc_loss_backward(
    grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths,
    neg_log_likelihood: Tensor, log_alpha: Tensor, blank: int, zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """Gradient of log_probs."""
    lengths, _ = _lengths(log_probs, targets, input_lengths, target_lengths, blank)
    saved = (neg_log_likelihood, log_alpha, blank, zero_infinity)
    return call(_BACKWARD, (grad, log_probs, targets.to(log_probs.device), lengths, *saved), {})


def ctc_loss_of_tensors(
    log_probs: torch.Tensor, targets: torch.Tensor, input_lengths: torch.Tensor, target_lengths: torch.Tensor,
    blank: int = 0, reduction: int = 1, zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """ctc_loss with lengths in tensors on any device: torch divides by them where the result is."""
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        require(not lengths.dtype.is_floating_point and not lengths.dtype.is_complex, f"{name} must be integral")
    lists = (_numbers(input_lengths), _numbers(target_lengths))
    return torch.ops.aten.ctc_loss.IntList(log_probs, targets, *lists, blank, reduction, zero_infinity)


_aten_library: Any = torch.library.Library("aten", "IMPL")
_aten_library.impl("ctc_loss.Tensor", ctc_loss_of_tensors, "AutogradPrivateUse1")
handler("aten::ctc_loss.Tensor")(ctc_loss_of_tensors)
