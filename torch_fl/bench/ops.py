"""What the benchmark measures of single ops: a table of works by group, each made for any device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .networks import MLP
from .timing import Case, Work

Shape = tuple[int, ...]
Op = Callable[..., Any]


def _inputs(device: torch.device, shapes: Sequence[Shape], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(shape).to(dtype).to(device) for shape in shapes]


def forward(op: Op, *shapes: Shape, dtype: torch.dtype = torch.float32) -> Case:
    """`op` of random tensors, without autograd."""

    def make(device: torch.device) -> Work:
        return partial(op, *_inputs(device, shapes, dtype))

    return Case(make)


def backward(op: Op, *shapes: Shape) -> Case:
    """`op` of random tensors and the gradients of all of them."""

    def make(device: torch.device) -> Work:
        inputs = [t.requires_grad_() for t in _inputs(device, shapes)]
        towards = torch.ones_like(op(*inputs))
        return lambda: torch.autograd.grad(op(*inputs), inputs, towards)

    return Case(make, grad=True)


def training(module: Callable[[], nn.Module], *shape: int) -> Case:
    """Forward and backward of a module, down to its parameters."""

    def make(device: torch.device) -> Work:
        model, x = module().to(device), torch.randn(shape).to(device)

        def run() -> None:
            for parameter in model.parameters():
                parameter.grad = None
            model(x).sum().backward()

        return run

    return Case(make, grad=True)


def indexed(op: Op, table: Shape, index: Shape, *, below: int, values: Shape | None = None) -> Case:
    """`op(table, index)` or `op(table, index, values)`, with random indices under `below`."""

    def make(device: torch.device) -> Work:
        found, where = _inputs(device, [table]), torch.randint(0, below, index).to(device)
        return partial(op, found[0], where, *(() if values is None else _inputs(device, [values])))

    return Case(make)


def optimizer(kind: Callable[..., torch.optim.Optimizer], **options: Any) -> Case:
    """One step over 100 tensors with 11M parameters in all."""
    shapes: list[Shape] = [(512, 1024)] * 20 + [(384, 128)] * 10 + [(1024,)] * 70

    def make(device: torch.device) -> Work:
        parameters = [nn.Parameter(t) for t in _inputs(device, shapes)]
        for p in parameters:
            p.grad = torch.randn(p.shape).to(device)
        return kind(parameters, lr=1e-3, **options).step

    return Case(make)


def _attend(causal: bool) -> Op:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _convolve(stride: int = 1, padding: int = 0, groups: int = 1) -> Op:
    return lambda x, weight: F.conv2d(x, weight, None, stride, padding, 1, groups)


def _both(table: dict[str, tuple[Op, tuple[Shape, ...]]]) -> dict[str, Case]:
    """Every op twice: forward, and forward with backward."""
    found = {}
    for name, (op, shapes) in table.items():
        found[name] = forward(op, *shapes)
        found[f"{name}, forward + backward"] = backward(op, *shapes)
    return found


_ROWS = (4096, 1024)
_16M = (4096, 4096)
_QKV = ((4, 8, 512, 64),) * 3

SMALL = {
    "add 4x4": forward(torch.add, (4, 4), (4, 4)),
    "mul 4x4": forward(torch.mul, (4, 4), (4, 4)),
    "mm 4x4": forward(torch.mm, (4, 4), (4, 4)),
    "softmax 4x4": forward(lambda x: torch.softmax(x, -1), (4, 4)),
    "layer norm 4x4": forward(lambda x, w, b: F.layer_norm(x, (4,), w, b), (4, 4), (4,), (4,)),
    "linear 4x4": forward(F.linear, (4, 4), (4, 4), (4,)),
    "MLP 3 x 8, forward + backward": training(MLP, 8, 8),
}

PRODUCTS = {
    "mm 512": forward(torch.mm, (512, 512), (512, 512)),
    "mm 1024": forward(torch.mm, (1024, 1024), (1024, 1024)),
    "mm 2048": forward(torch.mm, (2048, 2048), (2048, 2048)),
    "mm 511": forward(torch.mm, (511, 511), (511, 511)),
    "mm 1000x37x4096": forward(torch.mm, (1000, 37), (37, 4096)),
    "bmm 64x128x128x64": forward(torch.bmm, (64, 128, 128), (64, 128, 64)),
    "linear 512x384x1536": forward(F.linear, (512, 384), (1536, 384), (1536,)),
    "linear 1x384x1536": forward(F.linear, (1, 384), (1536, 384), (1536,)),
}

CONVOLUTIONS = _both(
    {
        "conv 3x3, 16x64x56x56": (_convolve(1, 1), ((16, 64, 56, 56), (64, 64, 3, 3))),
        "conv 1x1, 8x64x56x56 to 256": (_convolve(), ((8, 64, 56, 56), (256, 64, 1, 1))),
        "conv 7x7 stride 2, 8x3x224x224": (_convolve(2, 3), ((8, 3, 224, 224), (64, 3, 7, 7))),
        "conv 3x3 depthwise, 8x96x56x56": (_convolve(1, 1, 96), ((8, 96, 56, 56), (96, 1, 3, 3))),
    }
)

ATTENTION = _both(
    {
        "attention 4x8x512x64": (_attend(False), _QKV),
        "attention 4x8x512x64, causal": (_attend(True), _QKV),
    }
)

_REDUCTIONS: dict[str, Op] = {"sum": torch.sum, "mean": torch.mean, "var": torch.var, "argmax": torch.argmax}
_WHERE: dict[str, dict[str, Any]] = {"rows": {"dim": 1}, "columns": {"dim": 0}, "all": {}}

ROWS = {
    **_both(
        {
            "softmax 4096x1024": (lambda x: torch.softmax(x, -1), (_ROWS,)),
            "log_softmax 4096x1024": (lambda x: torch.log_softmax(x, -1), (_ROWS,)),
            "layer norm 4096x1024": (lambda x, w, b: F.layer_norm(x, (1024,), w, b), (_ROWS, (1024,), (1024,))),
            "rms norm 4096x1024": (lambda x, w: F.rms_norm(x, (1024,), w), (_ROWS, (1024,))),
            "batch norm 4096x1024": (
                lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
                (_ROWS, (1024,), (1024,)),
            ),
        }
    ),
    **{
        f"{name} 4096x1024 {where}": forward(partial(op, **how), _ROWS)
        for name, op in _REDUCTIONS.items()
        for where, how in _WHERE.items()
    },
}

ELEMENTS = {
    "add 16M": forward(torch.add, _16M, _16M),
    "mul 16M": forward(torch.mul, _16M, _16M),
    "gelu 16M": forward(F.gelu, _16M),
    "sum 16M": forward(torch.sum, _16M),
}

MOVEMENT = {
    "embedding 8192x384 by 1024": indexed(lambda t, i: F.embedding(i, t), (8192, 384), (4, 256), below=8192),
    "index_select 8192x384 by 4096": indexed(lambda t, i: t.index_select(0, i), (8192, 384), (4096,), below=8192),
    "gather 4096x1024": indexed(lambda t, i: t.gather(1, i), _ROWS, _ROWS, below=1024),
    "scatter_add 4096x1024": indexed(lambda t, i, v: t.scatter_add(1, i, v), _ROWS, _ROWS, below=1024, values=_ROWS),
    "cat 4 x 1024x1024, dim 1": forward(lambda *parts: torch.cat(parts, 1), *[(1024, 1024)] * 4),
    "transpose copy 4096x1024": forward(lambda x: x.t().contiguous(), _ROWS),
    "cast float32 to float16 4M": forward(Tensor.half, _ROWS),
    "cast float16 to float32 4M": forward(Tensor.float, _ROWS, dtype=torch.float16),
    "cast float32 to bfloat16 4M": forward(Tensor.bfloat16, _ROWS),
    "cast bfloat16 to float32 4M": forward(Tensor.float, _ROWS, dtype=torch.bfloat16),
    "cumsum 4096x1024": forward(lambda x: x.cumsum(-1), _ROWS),
    "cumsum 1M": forward(lambda x: x.cumsum(-1), (1 << 20,)),
    "topk 50 of 1M": forward(lambda x: x.topk(50), (1 << 20,)),
    "sort 1M": forward(lambda x: x.sort(), (1 << 20,)),
}

OPTIMIZERS = {
    "AdamW 11M, foreach": optimizer(torch.optim.AdamW, foreach=True),
    "AdamW 11M, fused": optimizer(torch.optim.AdamW, fused=True),
    "SGD momentum 11M, foreach": optimizer(torch.optim.SGD, momentum=0.9, foreach=True),
}
