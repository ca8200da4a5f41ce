"""Indices of all kinds, read and written."""

from __future__ import annotations

from typing import Any

import torch

from faults.base import arange, case, grads, ints, rnd

F = torch.nn.functional


@case
def places_named_twice(d: Any) -> Any:
    at, v = ints(d, 1, 1, 3, 1, -1), ints(d, 1.0, 2, 4, 8, 16)
    x = torch.ones(5).to(d)
    y = x.clone()
    y[at] += 1
    z = x.clone()
    z.index_put_((at,), v, accumulate=True)
    pos = at % 5
    return [
        y, z, x.index_add(0, pos, v, alpha=0.5), x.scatter_add(0, pos, v),
        x.scatter_reduce(0, pos, v, "mean", include_self=False),
        x.scatter_reduce(0, pos, v, "prod"), x.scatter_reduce(0, pos, v, "amax", include_self=False),
        x.put(at, v, True), x.index_reduce(0, pos, v, "amin"),
        x.index_reduce(0, pos, v, "mean", include_self=False),
        torch.zeros(5, dtype=torch.int64).to(d).scatter_add(0, pos, pos),
        torch.zeros(5).half().to(d).index_add(0, pos, v.half()),
        torch.zeros(5, 2).to(d).index_put((at,), v[:, None], accumulate=True),
    ]  # fmt: skip


@case
def all_ways_to_index(d: Any) -> Any:
    x = arange(d, 3, 4, 5)
    i, j, m = ints(d, 2, 0), ints(d, 1, -1), ints(d, True, False, True)
    return [
        x[None], x[..., None, 1], x[i], x[i, j], x[i, :, j], x[:, i, j], x[..., j], x[m], x[m, 1:], x[m, j],
        x[:, :, [4, 0]], x[True], x[False], x[[True, False, True]],
        x[i[:, None], j], x[i[:, None], :, j], x[0, ..., ::2], x[-1, 1:-1, -2:], x[torch.tensor(1).to(d)],
        x[torch.tensor(1).to(d), j], x[x > 50], x[:, (x > 7).any(0)],
        x[None, m, None, ..., 0], x[i, None, j], x[range(2)], x[torch.tensor([1, 2])], x[i.int()], x[:, i],
        x[..., 4:4], x[1:1],
    ]  # fmt: skip


@case
def all_ways_to_assign(d: Any) -> Any:
    out = []
    i, m = ints(d, 2, 0), ints(d, True, False, True)
    for key, value in (
        ((slice(None), i), 7.0), (m, arange(d, 4)), ((m, slice(1, 3)), ints(d, 5.0, 6.0)), ((i, i), torch.tensor(9.0)),
        (Ellipsis, 1), ((..., -1), arange(d, 3)),
        ((i[:, None], i), arange(d, 2, 2)), ((slice(None, None, 2), slice(1, None, 2)), arange(d, 2, 1)), (None, 3.0),
        ((m, i), 4), (True, 5), ((0, m[:2].repeat(2)), -1),
        (torch.tensor(1).to(d), 8), ((i.int(), 1), ints(d, 1.0, 2.0)), ([0, 2], arange(d, 2, 4)), ((slice(0, 0),), 3.0),
    ):  # fmt: skip
        x = arange(d, 3, 4)
        x[key] = value
        out.append(x)
    return out


@case
def gradients_of_indexing(d: Any) -> Any:
    x, v = rnd(d, 4, 5).requires_grad_(), rnd(d, 2, 5, seed=1).requires_grad_()
    i, j, m = ints(d, 1, 1), ints(d, 0, 4), rnd(d, 4, 5, seed=2) > 0
    return [
        grads(x[i], x), grads(x[i, j], x), grads(x[m], x), grads(x[:, j][1:], x),
        grads(x.gather(1, j.expand(4, 2)), x), grads(x.index_select(0, i), x), grads(x.take(j), x),
        grads(x.index_copy(0, ints(d, 3, 0), v), x, v), grads(x.index_add(0, i, v), x, v),
        grads(x.masked_fill(m, 2.0), x), grads(x.index_put((i,), v, True), x, v),
        grads(x.scatter(0, ints(d, [0, 1, 2, 3, 0]), 3.0), x),
        grads(x.scatter_add(0, i[:, None].expand(2, 5), v), x, v), grads(x[1:, ::2].t(), x), grads(x.diagonal(1), x),
        grads(x.unfold(1, 3, 2), x), grads(x.roll(2, 1), x), grads(x.flip(0), x), grads(torch.cat([x, v]), x, v),
        grads(x.repeat_interleave(ints(d, 1, 0, 2, 1), 0), x),
        grads(F.embedding(i, x, padding_idx=1), x), grads(x.masked_select(m), x), grads(x.index_fill(1, j, 0.0), x),
        grads(torch.where(m, x, v[0]), x, v), grads(x.tril(-1), x),
    ]  # fmt: skip
