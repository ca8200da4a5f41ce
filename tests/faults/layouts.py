"""Operands of other layouts: transposed, sliced, broadcast, channels last."""

from __future__ import annotations

from typing import Any

import torch

from faults.base import INF, NAN, case, grads, ints, rnd

F = torch.nn.functional


@case
def activations_after_moveaxis(d: Any) -> Any:
    x = torch.linspace(-1, 1, 6).view(2, 3).to(d).moveaxis(0, 1)
    return [
        F.softplus(x),
        F.selu(x),
        F.prelu(x, ints(d, 0.25)),
        F.threshold(x, 0, 9),
        F.elu(x),
        F.gelu(x),
        F.hardswish(x),
    ]


@case
def ops_that_ignored_strides(d: Any) -> Any:
    x = rnd(d, 32, 32).t()
    v = x[:, 1::2]
    return [x.topk(3, 1), x.topk(3, 0), v.sort(dim=0), v.argsort(dim=1), v.cumsum(1), v.flip(0), v.median(1), v.amax(0)]


@case
def weight_norm_of_a_transposed_weight(d: Any) -> Any:
    v, g = rnd(d, 6, 4).t().requires_grad_(), rnd(d, 4, 1, seed=1).requires_grad_()
    return grads(torch._weight_norm(v, g, 0), v, g)


@case
def linear_with_any_weight(d: Any) -> Any:
    x, w = rnd(d, 2, 5, 6), rnd(d, 6, 4, seed=1)
    bias = rnd(d, 8, seed=2)[::2]
    wide = rnd(d, 4, 12, seed=3)[:, ::2]
    return [
        F.linear(x, w.t(), bias),
        F.linear(x[:, ::2], wide),
        F.linear(x[..., 0, :], w.t()),
        F.linear(x.transpose(0, 1), wide, bias),
    ]


@case
def channels_last_everywhere(d: Any) -> Any:
    x = rnd(d, 2, 4, 6, 5).contiguous(memory_format=torch.channels_last)
    w = rnd(d, 8, 4, 3, 3, seed=1).contiguous(memory_format=torch.channels_last)
    return [
        x.relu(), x + 1, x * x.mean((2, 3), keepdim=True), F.avg_pool2d(x, 2), x.clone(), torch.empty_like(x).copy_(x),
        F.interpolate(x, scale_factor=2.0), x.flip(1), x.roll(1, 2), F.conv2d(x, w).contiguous(), x.sum(1),
        x.to(torch.half),
        F.layer_norm(x, (6, 5)), F.softmax(x, 1), torch.cat([x, x], 1),
    ]  # fmt: skip


@case
def convolutions_of_slices(d: Any) -> Any:
    x = rnd(d, 2, 8, 9, 9)[:, ::2, 1:, :].transpose(2, 3).requires_grad_()
    w = rnd(d, 3, 3, 6, 4, seed=1).permute(2, 3, 0, 1).requires_grad_()
    return grads(F.conv2d(x, w, stride=2, padding=1), x, w), grads(F.conv2d(x, w[:4, :1], groups=4, dilation=2), x)


@case
def blur_pool_backwards(d: Any) -> Any:
    x = rnd(d, 1, 3, 8, 8).requires_grad_()
    padded = F.pad(x, (1, 2, 1, 2), mode="reflect")
    kernel = (ints(d, 1.0, 3, 3, 1)[:, None] * ints(d, 1.0, 3, 3, 1)).expand(3, 1, 4, 4) / 64
    return grads(F.conv2d(padded, kernel, stride=2, groups=3)[..., 1:, ::2], x)


@case
def products_broadcast_over_batches(d: Any) -> Any:
    a, b = rnd(d, 2, 1, 3, 4), rnd(d, 5, 4, 2, seed=1)
    v, w = rnd(d, 4, seed=2), rnd(d, 3, seed=3)
    e = rnd(d, 4, 3, seed=4).expand(6, 4, 3)
    return [
        a @ b,
        a @ v,
        w @ a,
        v @ b,
        torch.bmm(e, e.transpose(1, 2)),
        e.transpose(1, 2) @ v,
        v @ v,
        torch.linalg.multi_dot([a[0, 0], b[0]]),
    ]


@case
def einsums(d: Any) -> Any:
    a, b, s = rnd(d, 2, 3, 4), rnd(d, 2, 5, 4, seed=1), rnd(d, 4, 4, seed=2)
    return [
        torch.einsum("bij,bkj->bik", a, b), torch.einsum("ii->i", s), torch.einsum("ii", s),
        torch.einsum("bij->jib", a),
        torch.einsum("i,j->ij", s[0], s[1]), torch.einsum("...ij,jk->...ik", a, s), torch.einsum("bij,bij->b", a, a),
        torch.einsum("bhqd,bkhd->bqkh", a[:, None], b[:, :, None]),
    ]  # fmt: skip


@case
def beta_zero_hides_nan(d: Any) -> Any:
    bad, a, b = torch.full((3, 5), NAN).to(d), rnd(d, 3, 4), rnd(d, 4, 5, seed=1)
    three = torch.full((2, 3, 5), INF).to(d)
    batch = torch.baddbmm(three, a.expand(2, 3, 4), b.expand(2, 4, 5), beta=0)
    return [
        torch.addmm(bad, a, b, beta=0),
        torch.addmv(bad[:, 0], a, b[:, 0], beta=0, alpha=2),
        batch,
        torch.addmm(bad[0], a, b, beta=0),
    ]


@case
def norms_of_views(d: Any) -> Any:
    x = rnd(d, 4, 6, 5).transpose(0, 1)
    g, b = rnd(d, 10, seed=1)[::2], rnd(d, 5, seed=2)
    y = x.permute(2, 0, 1)[None]
    return [
        F.layer_norm(x, (5,), g, b), F.group_norm(y, 5, g, b), F.instance_norm(y), F.normalize(x, dim=0),
        F.batch_norm(y, torch.zeros(5).to(d), torch.ones(5).to(d), g, b), F.rms_norm(x, (5,), g), x.norm(dim=(0, 2)),
        torch.linalg.vector_norm(x, 3, dim=1), F.local_response_norm(y, 2),
    ]  # fmt: skip


@case
def softmax_along_far_dimensions(d: Any) -> Any:
    x = rnd(d, 3, 4, 5).permute(2, 0, 1).requires_grad_()
    return grads(x.softmax(0), x), grads(x.log_softmax(1).transpose(0, 2), x), grads(x.logsumexp((0, 2)), x)


@case
def pooling_of_slices(d: Any) -> Any:
    x = -rnd(d, 2, 6, 9, 11).abs()[:, ::2].transpose(2, 3)
    top, at = F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True)
    low = F.max_pool2d(x, 2, return_indices=True)
    return [
        top,
        at,
        F.max_unpool2d(*low, 2, output_size=x.shape[-2:]),
        F.avg_pool2d(x, 3, 2, 1, True, False),
        F.adaptive_avg_pool2d(x, (3, 4)),
        F.adaptive_max_pool2d(x, 4),
    ]


@case
def padding_of_views(d: Any) -> Any:
    x = rnd(d, 1, 3, 5, 6).transpose(2, 3)
    pads = [F.pad(x, (1, 2, 2, 1), mode=m) for m in ("constant", "reflect", "replicate", "circular")]
    return [
        *pads,
        F.pad(x, (-1, 2, 0, -2), value=7.0),
        F.pad(x.long(), (1, 1), value=-3),
        F.pad(x > 0, (1, 0), value=True),
    ]


@case
def uniques(d: Any) -> Any:
    x = torch.tensor([[3, 1, 1, 2], [1, 3, 3, 0], [3, 1, 1, 2]]).to(d)
    return [
        torch.unique(x, return_inverse=True, return_counts=True), torch.unique(x, dim=0, return_inverse=True),
        torch.unique_consecutive(x.t(), return_counts=True), torch.unique(x.t()[1:], dim=1, return_counts=True),
        torch.bincount(x.t().flatten(), minlength=6), torch.isin(x.t(), ints(d, 0, 3)),
    ]  # fmt: skip
