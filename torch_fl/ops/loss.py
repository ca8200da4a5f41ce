"""Losses: negative log likelihood (native/nll.c), and losses of two tensors that are one expression and a sum.

The losses that are missing here (l1, hinge, cosine ...) are composed of other ops by torch.
"""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..errors import Unsupported
from ..kernels.norm import compute_dtype
from ..kernels.pointwise import emit, merge
from ..kernels.reduce import SUM, Reduction, emit_reduce
from ..kernels.types import ctype
from ..refs import Layout, Ref
from ..registry import kernel
from ..runtime.guard import code_of

NONE, MEAN, TOTAL = 0, 1, 2
"""torch's numbers for reduction="none", "mean", "sum"."""


# -- negative log likelihood -------------------------------------------------------------------------------------
def _samples(ref: Ref) -> tuple[Ref, int, int]:
    """(class 0 of every sample, number of classes, distance between classes) of [C] or [N, C, ...]."""
    dim = 1 if ref.ndim > 1 else 0
    return ref.select(dim, 0) if ref.shape[dim] else ref.narrow(dim, 0, 0), ref.shape[dim], ref.strides[dim]


def _nll_defines(b: Builder, acc: torch.dtype, weight: Ref | None, **dtypes: torch.dtype) -> dict[str, Any]:
    wt = weight.dtype if weight else acc
    defines = b.types(ACC_=acc, WT=wt, **dtypes)
    return defines | {"ACC": ctype(acc).compute, "WEIGHT(v)": "(v)" if weight else "1"}


@kernel("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss(b: Builder, self: Ref, target: Ref, weight: Ref | None, reduction: int, ignore_index: int) -> None:
    """(loss, total weight) of log probabilities [C], [N, C] or [N, C, H, W]."""
    acc, (x, classes, step) = compute_dtype(self.dtype), _samples(self)
    if not classes:
        raise Unsupported("no classes")
    term = b.out(0) if reduction == NONE else b.temp(target.shape, acc)
    share = b.temp(target.shape if reduction != NONE else (1,), acc)
    layout = Layout.of(*merge(target.shape, [x.strides, target.strides, term.strides]))
    defines = _nll_defines(b, acc, weight, T=self.dtype, INDEX=target.dtype, U=term.dtype)
    defines |= {"SHARES": int(reduction != NONE)}
    items, chunk = b.split(target.numel)
    weight = b.contiguous(weight) if weight else None
    args: list[Any] = [
        x,
        target,
        weight or share,
        term,
        share,
        b.guard(),
        target.numel,
        chunk,
        classes,
        step,
        ignore_index,
        code_of("nll_loss"),
        layout,
    ]
    b.launch("nll_forward.c", "nll_forward", items, args, defines)
    if reduction == NONE:
        b.fill(b.out(1), 0)
        return
    dims = tuple(range(target.ndim))
    total = b.out(1) if b.out(1).dtype == acc else b.temp((), acc)
    emit_reduce(b, total, share, dims, SUM, acc)
    emit_reduce(b, b.out(0), term, dims, Reduction(end="a / s") if reduction == MEAN else SUM, acc, total)
    if total is not b.out(1):
        b.copy(b.out(1), total)


@kernel("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def nll_loss_backward(
    b: Builder,
    grad_output: Ref,
    self: Ref,
    target: Ref,
    weight: Ref | None,
    reduction: int,
    ignore_index: int,
    total_weight: Ref,
) -> None:
    """Gradient of the log probabilities: zero but at the targets."""
    out, acc = b.out(), compute_dtype(self.dtype)
    b.fill(out, 0)
    dx, classes, step = _samples(out)
    if not classes:
        return
    grad = grad_output if reduction == NONE else grad_output.expand(target.shape)
    layout = Layout.of(*merge(target.shape, [grad.strides, target.strides, dx.strides]))
    dtypes = {"T": grad.dtype, "INDEX": target.dtype, "U": out.dtype, "S": total_weight.dtype}
    defines = _nll_defines(b, acc, weight, **dtypes) | {"MEAN": int(reduction == MEAN)}
    items, chunk = b.split(target.numel)
    weight = b.contiguous(weight) if weight else None
    samples = (target.numel, chunk, classes, step, ignore_index, layout)
    args: list[Any] = [grad, target, weight or total_weight, total_weight, dx, *samples]
    b.launch("nll_backward.c", "nll_backward", items, args, defines)


# -- losses of two tensors ---------------------------------------------------------------------------------------
# v: the input, z: the target, e: the loss's parameter, g: the gradient, ACC: the compute type.
_LOG = "log({0}) < -100 ? (ACC)-100 : log({0})"
_LOSSES = {
    "mse_loss": "(v - z) * (v - z)",
    "smooth_l1_loss": "fabs(v - z) < e ? (ACC)0.5 * (v - z) * (v - z) / e : fabs(v - z) - (ACC)0.5 * e",
    "huber_loss": "fabs(v - z) <= e ? (ACC)0.5 * (v - z) * (v - z) : e * (fabs(v - z) - (ACC)0.5 * e)",
    "binary_cross_entropy": f"(z - 1) * ({_LOG.format('1 - v')}) - z * ({_LOG.format('v')})",
}
_GRADIENTS = {
    "mse_loss": "2 * (v - z) * g",
    "smooth_l1_loss": "v - z <= -e ? -g : v - z >= e ? g : (v - z) * g / e",
    "huber_loss": "v - z <= -e ? -e * g : v - z >= e ? e * g : (v - z) * g",
    "binary_cross_entropy": "g * (v - z) / ((1 - v) * v > (ACC)1e-12 ? (1 - v) * v : (ACC)1e-12)",
}


def _pair(self: Ref, target: Ref) -> tuple[Ref, Ref, torch.dtype]:
    shape = torch.broadcast_shapes(self.shape, target.shape)
    wide = torch.promote_types(self.dtype, target.dtype)
    if not (self.dtype.is_floating_point and target.dtype.is_floating_point):
        raise Unsupported("a loss of integers")
    return self.expand(shape), target.expand(shape), compute_dtype(wide)


def _loss(b: Builder, name: str, self: Ref, target: Ref, weight: Ref | None, reduction: int, e: Any = 0) -> None:
    """One pass: the expression alone, or summed as it is computed."""
    if weight is not None:
        raise Unsupported("weights")
    x, z, acc = _pair(self, target)
    if reduction == NONE:
        emit(b, {"y": (b.out(), _LOSSES[name])}, {"v": x, "z": z}, {"e": e}, acc)
        return
    how = Reduction(map=_LOSSES[name], end="a / (ACC)count" if reduction == MEAN else "a")
    emit_reduce(b, b.out(), x, tuple(range(x.ndim)), how, acc, None, e, z)


def _gradient(
    b: Builder, name: str, grad: Ref, self: Ref, target: Ref, weight: Ref | None, reduction: int, e: Any = 0
) -> None:
    if weight is not None:
        raise Unsupported("weights")
    x, z, acc = _pair(self, target)
    out = b.out()
    if out.shape != x.shape:
        raise Unsupported("a broadcast input")
    share = 1 / max(1, x.numel) if reduction == MEAN else 1.0
    tensors, scalars = {"v": x, "z": z, "g": grad}, {"e": e, "share": share}
    emit(b, {"dx": (out, f"share * ({_GRADIENTS[name]})")}, tensors, scalars, acc)


@kernel("aten::mse_loss")
def mse_loss(b: Builder, self: Ref, target: Ref, reduction: int) -> None:
    """(x - target)^2."""
    _loss(b, "mse_loss", self, target, None, reduction)


@kernel("aten::mse_loss_backward")
def mse_loss_backward(b: Builder, grad_output: Ref, self: Ref, target: Ref, reduction: int) -> None:
    """Gradient of the input."""
    _gradient(b, "mse_loss", grad_output, self, target, None, reduction)


@kernel("aten::smooth_l1_loss", static=("beta",))
def smooth_l1_loss(b: Builder, self: Ref, target: Ref, reduction: int, beta: Any) -> None:
    """Quadratic below beta, linear above."""
    _loss(b, "smooth_l1_loss", self, target, None, reduction, beta)


@kernel("aten::smooth_l1_loss_backward", static=("beta",))
def smooth_l1_loss_backward(b: Builder, grad_output: Ref, self: Ref, target: Ref, reduction: int, beta: Any) -> None:
    """Gradient of the input."""
    _gradient(b, "smooth_l1_loss", grad_output, self, target, None, reduction, beta)


@kernel("aten::huber_loss", static=("delta",))
def huber_loss(b: Builder, self: Ref, target: Ref, reduction: int, delta: Any) -> None:
    """Quadratic up to delta, linear with slope delta above."""
    _loss(b, "huber_loss", self, target, None, reduction, delta)


@kernel("aten::huber_loss_backward", static=("delta",))
def huber_loss_backward(b: Builder, grad_output: Ref, self: Ref, target: Ref, reduction: int, delta: Any) -> None:
    """Gradient of the input."""
    _gradient(b, "huber_loss", grad_output, self, target, None, reduction, delta)


@kernel("aten::binary_cross_entropy")
def binary_cross_entropy(b: Builder, self: Ref, target: Ref, weight: Ref | None, reduction: int) -> None:
    """-target log(x) - (1 - target) log(1 - x), with logarithms of at least -100."""
    _loss(b, "binary_cross_entropy", self, target, weight, reduction)


@kernel("aten::binary_cross_entropy_backward")
def binary_cross_entropy_backward(
    b: Builder, grad_output: Ref, self: Ref, target: Ref, weight: Ref | None, reduction: int
) -> None:
    """Gradient of the input."""
    _gradient(b, "binary_cross_entropy", grad_output, self, target, weight, reduction)
