"""Decisions per element that read a tensor: dropout, Bernoulli of a tensor of chances, randomized leaky ReLU."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..refs import Ref, Value
from ..registry import handler, kernel
from ..runtime.guard import code_of
from ..tensor import Tensor
from .random import bernoulli_float, checked_chance, draw_key, fill_dense, lanes_of, number, random_source
from .rows import pointwise


def _bernoulli_of(b: Builder, target: Ref, chance: Ref, generator: Any) -> None:
    chances = b.contiguous(chance.expand(target.shape))
    lanes = lanes_of(b)
    macros = {**b.types(T=chance.dtype, X=target.dtype), "LANES": lanes, "WORDS": 1}

    def write(dense: Ref) -> None:
        items, chunk = b.split(-(-dense.numel // (4 * lanes)), 64)
        seed, offset = draw_key(b, generator, -(-dense.numel // 4))
        args: list[Any] = [chances, dense, b.guard(), dense.numel, chunk, seed, offset, code_of("bernoulli")]
        b.launch(random_source("dropout.c"), "bernoulli", items, args, macros)

    fill_dense(b, target, write)


@kernel("aten::bernoulli_.Tensor")
def bernoulli_tensor_(b: Builder, self: Ref, p: Any, generator: Any) -> None:
    """1 with the chance in `p`, which broadcasts to self."""
    if isinstance(p, Ref):
        _bernoulli_of(b, b.out(), p, generator)
    else:
        bernoulli_float(b, self, p, generator)


@kernel("aten::bernoulli")
def bernoulli(b: Builder, self: Ref, generator: Any) -> None:
    """1 with the chance in self."""
    _bernoulli_of(b, b.out(), self, generator)


# -- dropout -------------------------------------------------------------------------------------------------------
@kernel("aten::native_dropout")
def native_dropout(b: Builder, input: Ref, p: Value, train: bool | None) -> None:
    """(input * mask / (1 - p), mask): an element is kept with chance 1 - p; outside training all are."""
    result, mask = b.out(0), b.out(1)
    if train is False or result.numel == 0:
        b.copy(result, input)
        b.fill(mask, True)
        return
    source = b.contiguous(input)
    dense = [b.row_major(r) for r in (result, mask)]
    lanes = lanes_of(b)
    items, chunk = b.split(-(-source.numel // (4 * lanes)), 64)
    seed, offset = draw_key(b, None, -(-source.numel // 4))
    keep = checked_chance(number(p).map(lambda v: 1.0 - v, float))
    scale = number(p).map(lambda v: 0.0 if v == 1 else 1.0 / (1.0 - v), float)
    macros = {**b.types(T=input.dtype, X=mask.dtype), "LANES": lanes, "WORDS": 1}
    args: list[Any] = [source, *dense, source.numel, chunk, seed, offset, keep, scale]
    b.launch(random_source("dropout.c"), "dropout", items, args, macros)
    for target, made in zip((result, mask), dense):
        b.deliver(target, made)


pointwise("aten::native_dropout_backward", "grad_output * mask * scale", promote=("grad_output",))


@handler("aten::rrelu_with_noise")
def rrelu_with_noise(
    self: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> torch.Tensor:
    """self times a slope where negative: uniform in [lower, upper), kept in `noise`; outside training their mean."""
    if not training:
        return torch.nn.functional.leaky_relu(self, (lower + upper) / 2)
    slopes = torch.empty_like(noise).uniform_(lower, upper, generator=generator)
    noise.copy_(torch.where(self <= 0, slopes, 1))
    return self * noise


@handler("aten::rrelu_with_noise_")
def rrelu_with_noise_(self: Tensor, noise: Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The same in place."""
    return self.copy_(rrelu_with_noise(self, noise, *args, **kwargs))
