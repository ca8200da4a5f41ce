"""Writes through views, and reads of what they share."""

from __future__ import annotations

from typing import Any

import torch

from faults.base import INF, NAN, arange, case, ints, rnd


@case
def bit_ops_in_place_on_columns(d: Any) -> Any:
    x = torch.arange(40, dtype=torch.int16).view(10, 4).to(d)
    x[:, 0] ^= 1
    x[1::3, 2] |= 64
    x[:, 1:3] &= 7
    x[::2, 3] <<= 2
    x.t()[3, 1::2] >>= 1
    return x


@case
def finiteness_of_a_column_slice(d: Any) -> Any:
    x = rnd(d, 50, 40)
    x[3, 7], x[8, 9], x[9, 4] = INF, NAN, -INF
    part = x[:, 4:11]
    return [torch.isfinite(part), torch.isinf(part), torch.isnan(part), torch.isneginf(part), part.nan_to_num(), x]


@case
def halves_of_the_last_dimension(d: Any) -> Any:
    x = rnd(d, 2, 3, 4, 8)
    odd, even = x[..., 1::2], x[..., ::2]
    turned = torch.stack((-odd, even), -1).flatten(-2)
    return [turned, torch.cat((-x[..., 4:], x[..., :4]), -1), torch.cat([odd, even.transpose(1, 2).transpose(1, 2)], 1)]


@case
def writes_through_permuted_slices(d: Any) -> Any:
    x = arange(d, 2, 3, 4)
    x.permute(2, 0, 1)[1:3] = -1
    x.transpose(0, 2)[0, ::2, 1] += 100
    x.movedim(1, 0)[2].copy_(rnd(d, 4, 2).t())
    x.unflatten(2, (2, 2))[..., 1, 0].mul_(2)
    return x


@case
def out_into_views(d: Any) -> Any:
    a, b = rnd(d, 3, 4), rnd(d, 4, 5, seed=1)
    c, e, f = torch.zeros(5, 3).to(d), torch.zeros(8, 3).to(d), torch.zeros(3, 9).to(d)
    torch.mm(a, b, out=c.t())
    torch.sum(rnd(d, 3, 4, 6), -1, out=e[::2].t())
    torch.cumsum(a, 1, out=f[:, 1:9:2])
    torch.sigmoid(a, out=e[1::2].t())
    return c, e, f


@case
def diagonals(d: Any) -> Any:
    x = arange(d, 4, 5)
    x.diagonal().fill_(-1)
    x.diagonal(1).add_(10)
    x[:, 1:].diagonal(-1).zero_()
    y = torch.zeros(5, 3).to(d).fill_diagonal_(7, wrap=True)
    return x, y, torch.diag_embed(rnd(d, 2, 3), 1), torch.diag(x.diagonal()), x.trace()


@case
def sliding_windows(d: Any) -> Any:
    x = arange(d, 10)
    w = x.unfold(0, 4, 2)
    return (
        w,
        w.sum(1),
        w @ ints(d, 1.0, 2, 3, 4),
        x.as_strided((4, 3), (2, 1), 1).mul(2),
        arange(d, 4, 6).unfold(1, 3, 1).amax(-1),
    )


@case
def bits_of_a_slice(d: Any) -> Any:
    x = rnd(d, 4, 6)
    return (
        x[1:, 2:4].view(torch.int32),
        x[2].view(torch.int16),
        x.view(torch.uint8)[3, 4:],
        x.half().view(torch.int16)[1::2],
    )


@case
def swaps_by_index(d: Any) -> Any:
    x = arange(d, 4, 4)
    x[[0, 1]] = x[[1, 0]]
    x[:, [0, 2]] = x[:, [2, 0]]
    x[1:3], x[3] = x[2:4].clone(), x[0].clone()
    return x


@case
def reshape_copies_where_it_must(d: Any) -> Any:
    x = arange(d, 2, 3)
    copied, seen = x.t().reshape(6), x.reshape(3, 2)
    copied.zero_()
    seen[0] = 9
    x.flatten()[5] = 8
    x.t().flatten()[0] = 7
    return x, copied, seen


@case
def expanded_indices(d: Any) -> Any:
    x, at = rnd(d, 4, 6), ints(d, 3, 0, 1)
    rows, columns = at[:, None].expand(3, 6), at[None].expand(4, 3)
    added = torch.zeros(4, 6).to(d).scatter_add(0, rows, x[:3].flip(1))
    return (
        x.gather(0, rows),
        x.gather(1, columns),
        added,
        torch.take_along_dim(x, columns, 1),
        x.t().gather(1, at.expand(6, 3)),
    )


@case
def in_place_with_operands_of_other_layouts(d: Any) -> Any:
    a, b, c = rnd(d, 3, 4).t(), rnd(d, 4, 3, seed=1), rnd(d, 8, 3, seed=2)[::2].abs() + 1
    x = a.clone().lerp_(b, c).addcmul_(b, c, value=-1).addcdiv_(b, c, value=2)
    y = a.clone().clamp_(min=-c, max=c).where(b > 0, c).copysign_(b)
    return x, y, a.clone().hypot_(c), torch.addcdiv(a, b, c, value=0.5)


@case
def repeats(d: Any) -> Any:
    x = arange(d, 2, 3).t()
    return [
        x.repeat(2, 1, 2), x.repeat_interleave(2, 0), x.repeat_interleave(ints(d, 0, 2, 1), 0), x.tile(2),
        torch.repeat_interleave(ints(d, 1, 0, 3)), x[:, None].expand(3, 4, 2).reshape(12, 2),
        x.expand(2, 3, 2).flatten(0, 1),
    ]  # fmt: skip


@case
def choices_of_views(d: Any) -> Any:
    x = rnd(d, 4, 6).t()
    mask = x > 0
    return [
        mask.nonzero(), x[mask], torch.where(mask, x, 0), torch.where(mask)[1], torch.masked_select(x, mask[:, :1]),
        torch.where(mask.any(1, keepdim=True), x, ints(d, -1)), x.masked_fill(mask[0], -1), torch.argwhere(mask[::2]),
    ]  # fmt: skip
