"""Calls of kinds that other backends of torch have been reported to get wrong, each as one function of a device.

A case makes its inputs on the CPU from fixed numbers, moves them,
and returns what it computed (tensors and plain values,
nested); `test_faults.py` compares that with the same function on the CPU: values, dtypes, shapes and strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

F = torch.nn.functional
Case = Callable[[Any], Any]
INF, NAN = float("inf"), float("nan")
CASES: dict[str, Case] = {}


def case(fn: Case) -> Case:
    CASES[fn.__name__] = fn
    return fn


def rnd(d: Any, *shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers, the same on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(d)


def arange(d: Any, *shape: int) -> torch.Tensor:
    """0, 1, 2 ... as float32 of a shape."""
    return torch.arange(float(torch.Size(shape).numel())).view(shape).to(d)


def ints(d: Any, *numbers: Any) -> torch.Tensor:
    return torch.tensor(list(numbers)).to(d)


def grads(out: torch.Tensor, *leaves: torch.Tensor) -> Any:
    """The result and its gradients for an incoming gradient of different numbers."""
    weight = torch.linspace(-1, 2, out.numel()).view(out.shape).to(out)
    return out.detach(), torch.autograd.grad(out, leaves, weight, allow_unused=True)


# -- strides, offsets, views ---------------------------------------------------------------------------------------
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
def ops_that_ignored_strides(d: Any) -> Any:
    x = rnd(d, 32, 32).t()
    v = x[:, 1::2]
    return [x.topk(3, 1), x.topk(3, 0), v.sort(dim=0), v.argsort(dim=1), v.cumsum(1), v.flip(0), v.median(1), v.amax(0)]


@case
def weight_norm_of_a_transposed_weight(d: Any) -> Any:
    v, g = rnd(d, 6, 4).t().requires_grad_(), rnd(d, 4, 1, seed=1).requires_grad_()
    return grads(torch._weight_norm(v, g, 0), v, g)


@case
def halves_of_the_last_dimension(d: Any) -> Any:
    x = rnd(d, 2, 3, 4, 8)
    odd, even = x[..., 1::2], x[..., ::2]
    turned = torch.stack((-odd, even), -1).flatten(-2)
    return [turned, torch.cat((-x[..., 4:], x[..., :4]), -1), torch.cat([odd, even.transpose(1, 2).transpose(1, 2)], 1)]


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


@case
def uniques(d: Any) -> Any:
    x = torch.tensor([[3, 1, 1, 2], [1, 3, 3, 0], [3, 1, 1, 2]]).to(d)
    return [
        torch.unique(x, return_inverse=True, return_counts=True), torch.unique(x, dim=0, return_inverse=True),
        torch.unique_consecutive(x.t(), return_counts=True), torch.unique(x.t()[1:], dim=1, return_counts=True),
        torch.bincount(x.t().flatten(), minlength=6), torch.isin(x.t(), ints(d, 0, 3)),
    ]  # fmt: skip


# -- dtypes --------------------------------------------------------------------------------------------------------
@case
def numbers_and_tensors_promote(d: Any) -> Any:
    i, u, h, b = (
        ints(d, 1, 2),
        torch.tensor([1, 2], dtype=torch.uint8).to(d),
        torch.tensor([1.5, 2]).half().to(d),
        ints(d, True, False),
    )
    zero = torch.tensor(2.5, dtype=torch.float64).to(d)
    return [
        i + 1.5, i + True, u - 3, u + i, h * 2.5, h + zero, i + zero, b + 1, b * 2.5, b + b, i / 2, u // 2, i**2, 2**i,
        2.5 ** i,
        i > 1.5, h == 1.5, i * h, u * h, b * h, i.float() + zero, torch.tensor(3).to(d) + h, 1 - b.int(), i % 2.0,
        zero * i.int(),
    ]  # fmt: skip


@case
def reductions_choose_dtypes(d: Any) -> Any:
    u, b = torch.tensor([200, 100, 7], dtype=torch.uint8).to(d), ints(d, True, False, True)
    return [
        u.sum(), u.prod(), u.cumsum(0), b.sum(), b.cumsum(0), u.sum(dtype=torch.uint8), b.sum(dtype=torch.float32),
        u.max(),
        b.any(), u.any(), u.float().mean(dtype=torch.float64), u.mean(dtype=torch.float32), b.prod(),
        u.count_nonzero(), b.int().argmax(),
    ]  # fmt: skip


@case
def where_and_clamp_promote(d: Any) -> Any:
    i, f = ints(d, -3, 0, 9), ints(d, 0.5, 1.5, 2.5)
    return [
        torch.where(i > 0, i, f),
        torch.where(i > 0, 1, 2.5),
        i.clamp(0.5, 2),
        f.clamp(1, 2),
        i.clamp(min=f),
        torch.where(i > 0, f, 0),
        i.clamp(max=ints(d, 1)),
    ]


@case
def factories_choose_dtypes(d: Any) -> Any:
    x = ints(d, 1.5, 2)
    return [
        torch.arange(5, device=d), torch.arange(0, 1, 0.25, device=d), torch.arange(5, 0, -2, device=d),
        torch.full((2,), 3, device=d),
        torch.full((2,), 3.0, device=d), torch.full((2,), True, device=d), torch.linspace(0, 1, 5, device=d),
        x.new_full((2,), 7),
        torch.logspace(0, 2, 3, device=d), torch.eye(2, 3, device=d), x.new_tensor([1, 2]),
        torch.zeros_like(x, dtype=torch.int8),
        torch.tensor([[1, 2.5]], device=d), torch.tensor([True], device=d), torch.scalar_tensor(3, device=d),
        torch.arange(2.5, device=d),
        torch.linspace(0, 10, 3, dtype=torch.int64, device=d), torch.empty(0, device=d),
        torch.asarray([1, 2], device=d), x.new_zeros(2, 1),
    ]  # fmt: skip


@case
def assignment_casts(d: Any) -> Any:
    x, i = torch.zeros(6).to(d), torch.zeros(6, dtype=torch.int64).to(d)
    x[0], x[1], x[2:4] = True, 3, ints(d, 7, 8)
    i[0], i[1], i[2:4] = 2.9, True, ints(d, -1.5, 3.99)
    x[ints(d, 4, 5)] = 2
    i[ints(d, False, False, False, False, True, True)] = 5
    return x, i


# -- edges ---------------------------------------------------------------------------------------------------------
@case
def nothing_in_nothing_out(d: Any) -> Any:
    e, x = torch.empty(0, 3).to(d), rnd(d, 4, 3)
    none = torch.empty(0, dtype=torch.int64).to(d)
    return [
        e @ rnd(d, 3, 2), torch.ones(2, 0).to(d) @ torch.ones(0, 3).to(d), F.linear(e, x),
        F.conv2d(torch.empty(0, 1, 4, 4).to(d), rnd(d, 2, 1, 3, 3)),
        torch.cat([e, x, e]), e.softmax(1), e.mean(0), e.sum(0), e.amax(1), e.sort(dim=1), x.topk(0, 1), none.unique(),
        e.nonzero(),
        F.embedding(none, x), x[none], x[:, none], e.std(), F.mse_loss(e, e), x[none].sum(), e.view(3, 0).t(), e.any(),
        e.all(),
        F.layer_norm(e, (3,)), F.max_pool2d(torch.empty(0, 2, 4, 4).to(d), 2), torch.empty(0).to(d).cumsum(0),
        e.expand(2, 0, 3), e.norm(),
        F.cross_entropy(x, torch.full((4,), -100).to(d)), x.index_add(0, none, e), x.scatter(0, none.view(0, 3), 1.0),
        torch.stack([e, e]),
        torch.where(e > 0, e, 1), e.max(1), e.argmin(1), F.pad(e, (1, 1)),
        F.interpolate(torch.empty(0, 1, 2, 2).to(d), scale_factor=2.0),
    ]  # fmt: skip


@case
def tensors_without_dimensions(d: Any) -> Any:
    x = torch.tensor(2.5).to(d)
    zero = torch.tensor(0).to(d)
    y = torch.zeros(3).to(d)
    y[zero] = x
    y[zero + 2] += 1
    return [
        x.sort(), x.topk(1), x.max(0), x.cumsum(0), x.softmax(0), x.gather(0, zero), x.index_select(0, zero),
        x.flatten(), x.nonzero(),
        x.expand(2, 2), torch.stack([x, x]), x.sum(0), x.argmax(), x.unsqueeze(0), x[None], x[...], x[True], x[False],
        x.repeat(3), x.view(1, 1),
        y, x.squeeze(), x.t(), x.median(), x.std(correction=0), x.norm(), torch.atleast_2d(x), x.scatter(0, zero, 1.0),
        x.clamp(0, 1), x.roll(1),
        x.flip(()), x.fill_(3), x.logcumsumexp(0), torch.meshgrid(x, y, indexing="ij"),
    ]  # fmt: skip


@case
def extreme_arguments(d: Any) -> Any:
    x = ints(d, -1e4, -200.0, -90, -20, -1e-6, 0, 1e-6, 20, 90, 200, 1e4)
    return [
        x.sigmoid(), x.tanh(), F.softplus(x), F.logsigmoid(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x),
        F.mish(x), x.softmax(0),
        x.log_softmax(0), x.logsumexp(0), torch.log1p(x.abs()), torch.expm1(x), F.softsign(x), F.elu(x), F.selu(x),
        torch.logit(x.sigmoid(), 1e-6),
        F.hardtanh(x), F.tanhshrink(x), F.log_softmax(torch.stack([x, -x]), 0), torch.erf(x), torch.erfc(x),
        torch.sinc(x), x.logaddexp(-x),
    ]  # fmt: skip


@case
def losses_at_the_edge(d: Any) -> Any:
    p, t = ints(d, 0.0, 1.0, 0.5, 1e-20), ints(d, 1.0, 0.0, 0.5, 0.0)
    zero = torch.zeros(2, 3).to(d)
    return [
        F.binary_cross_entropy(p, t, reduction="none"), F.kl_div(p.log(), t, reduction="none"),
        F.cosine_similarity(zero, zero, 1), F.normalize(zero),
        F.kl_div(zero, zero.exp().log(), log_target=True, reduction="sum"), F.poisson_nll_loss(p, t, full=True),
        F.smooth_l1_loss(p, t, beta=0.0),
        F.gaussian_nll_loss(p, t, p + 1), F.hinge_embedding_loss(p, ints(d, 1, -1, 1, -1)),
        F.huber_loss(p * 9, t, delta=0.7), F.pairwise_distance(zero, zero),
        F.nll_loss(zero, ints(d, 2, 0), weight=ints(d, 0.0, 1, 2)),
        F.cross_entropy(zero, ints(d, 2, -100), label_smoothing=0.2, reduction="none"),
        F.cross_entropy(zero, zero.softmax(1)), F.multi_margin_loss(zero, ints(d, 0, 2)),
        F.triplet_margin_loss(zero, zero + 1, zero - 1),
    ]  # fmt: skip


@case
def gradients_at_the_edge(d: Any) -> Any:
    def at(*numbers: Any) -> torch.Tensor:
        return ints(d, *numbers).requires_grad_()

    x, z, one = at(2.0, 0, 3, 0), at(0.0, 0, 0), at(2.0, 0, 3)
    tie, edge = at(1.0, 3, 3, 2), at(-1.0, 0, 1, 2)
    return [
        grads(x.prod(), x), grads(one.prod(), one), grads(x.cumprod(0), x), grads(z.norm(), z), grads(z.sqrt(), z),
        grads(tie.amax(), tie),
        grads(tie.max(), tie), grads(tie.max(0)[0], tie), grads(edge.clamp(0, 1), edge), grads(z.abs(), z),
        grads(z**0, z), grads(z**2, z),
        grads(tie.median(), tie), grads(torch.minimum(tie, tie.detach()), tie),
        grads(torch.where(z > 0, z.log(), z), z), grads(edge.relu(), edge),
        grads(edge.sort(descending=True)[0], edge), grads(tie.std(), tie), grads(torch.atan2(z, z + 1), z),
        grads(edge.sign() * edge, edge),
        grads(F.hardtanh(edge), edge), grads(F.leaky_relu(edge, 0.1), edge), grads(tie.topk(2)[0], tie),
        grads(tie.logsumexp(0), tie), grads(z.sinc(), z),
    ]  # fmt: skip


@case
def halves_accumulate_in_float(d: Any) -> Any:
    ones = torch.ones(4, 4096).half().to(d)
    x = (rnd(d, 4, 64) * 100).half()
    big = torch.full((4096,), 60000.0).half().to(d)
    return [
        ones @ ones.t(),
        ones.sum(1),
        ones.bfloat16() @ ones.bfloat16().t(),
        x.softmax(1),
        F.layer_norm(x, (64,)),
        big.mean(),
        x.std(1),
        x.norm(dim=1),
        x.var(1),
    ]


@case
def counting(d: Any) -> Any:
    i, w = ints(d, 0, 3, 3, 7, 1), ints(d, 0.5, 1, 2, 3, 4)
    x = ints(d, -1.0, 0, 0.25, 0.5, 0.999, 1, 2, 0.5)
    return [
        torch.bincount(i), torch.bincount(i, w, minlength=10), torch.histc(x, 4, 0, 1), torch.histc(x, 3),
        torch.searchsorted(ints(d, 1, 3, 3, 5), ints(d, 0, 3, 6)),
        torch.searchsorted(ints(d, 1, 3, 3, 5), ints(d, 3, 5), right=True), torch.bucketize(x, ints(d, 0.0, 0.5, 1)),
        torch.bucketize(x, ints(d, 0.0, 0.5, 1), right=True),
        F.one_hot(i, 9), torch.cartesian_prod(i[:2], i[1:3]), torch.combinations(i[:4], 2),
        torch.tril_indices(3, 4, -1, device=d), torch.vander(w[:3]),
    ]  # fmt: skip


# -- indices -------------------------------------------------------------------------------------------------------
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


# -- training ------------------------------------------------------------------------------------------------------
@case
def writes_into_what_has_history(d: Any) -> Any:
    x = rnd(d, 3, 4).requires_grad_()
    y = x * 2
    y[:, 2:] = 0
    y[0].mul_(x[1])
    y.t()[1].add_(x[:, 0])
    y[x.detach() > 1] = 5
    (part, rest) = y.split(2, 1)
    return grads(torch.cat([part.exp(), rest], 1), x)


@case
def linear_output_partly_overwritten(d: Any) -> Any:
    w, x = rnd(d, 8, 4).requires_grad_(), rnd(d, 3, 4, seed=1)
    y = F.linear(x, w)
    y[:, :6] = 0
    return grads(y, w), w.grad


@case
def data_and_views(d: Any) -> Any:
    """x.data op= y writes for all views; x.data = z gives x other memory and leaves old views alone."""
    x = torch.zeros(6).to(d)
    seen = x.view(2, 3)
    x.data.add_(1.0)
    x.data += 1.0
    first = seen.clone()
    x.data = x.data + 5
    y = torch.zeros(8).to(d)
    y.data = torch.ones(2, 3).to(d)
    z = torch.arange(8.0).to(d)
    z.data = z.data[2:5]
    z.detach().mul_(2)
    return first, seen, x, y, z


@case
def gradients_add_up(d: Any) -> Any:
    w = rnd(d, 3).requires_grad_()
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    (w[1:] * 3).sum().backward()
    first = w.grad.clone()
    held = w.grad
    w.grad.zero_()
    (w**3).sum().backward()
    return first, w.grad, w.grad is held


@case
def hooks_and_functions(d: Any) -> Any:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2 + x * 0

    x = rnd(d, 2, 3).requires_grad_()
    seen: list[torch.Tensor] = []
    y = Double.apply(x)
    y.register_hook(lambda g: seen.append(g) or g * 10)
    y.retain_grad()
    y.sum().backward()
    return x.grad, y.grad, seen


@case
def higher_derivatives(d: Any) -> Any:
    x = rnd(d, 2, 3).requires_grad_()
    (g,) = torch.autograd.grad((x.sin() * x.exp()).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.square().sum(), x)

    def f(t: torch.Tensor) -> torch.Tensor:
        return (t**3).sum() + t[0].prod()

    v = rnd(d, 3)
    one = torch.func.jvp(lambda t: t * t.sum(), (v,), (torch.ones_like(v),))
    return g.detach(), h, torch.func.hessian(f)(rnd(d, 1, 3)), torch.func.jacrev(lambda t: t * t.sum())(v), one


@case
def modules_share_parameters(d: Any) -> Any:
    torch.manual_seed(3)
    m = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5))
    m[1].weight = m[0].weight
    m.register_buffer("steps", torch.zeros((), dtype=torch.int64))
    m.to(d)
    m.steps += 1
    F.cross_entropy(m(ints(d, 1, 2, 2)), ints(d, 0, 1, 4)).backward()
    return (
        m[0].weight.grad,
        m[1].bias.grad,
        m[0].weight is m[1].weight,
        len(list(m.parameters())),
        m.steps,
        m.half().steps.dtype,
        m[0].weight.dtype,
    )


@case
def clipping(d: Any) -> Any:
    ps = [rnd(d, 3, 2).requires_grad_(), rnd(d, 4, seed=1).requires_grad_(), rnd(d, 1, seed=2).requires_grad_()]
    sum((p**3).sum() for p in ps[:2]).backward()
    total = torch.nn.utils.clip_grad_norm_(ps, 0.5)
    first = [p.grad.clone() for p in ps[:2]]
    torch.nn.utils.clip_grad_value_(ps, 0.1)
    return total, first, [p.grad for p in ps[:2]], torch.nn.utils.parameters_to_vector(ps).detach()


@case
def running_statistics(d: Any) -> Any:
    bn, lazy = torch.nn.BatchNorm1d(3).to(d), torch.nn.BatchNorm2d(2, momentum=None, affine=False).to(d)
    for k in range(3):
        bn(rnd(d, 5, 3, seed=k))
        lazy(rnd(d, 2, 2, 3, 3, seed=k).to(memory_format=torch.channels_last))
    y = bn.eval()(rnd(d, 2, 3))
    return bn.running_mean, bn.running_var, bn.num_batches_tracked, lazy.running_mean, lazy.running_var, y.detach()


@case
def sequences_of_several_lengths(d: Any) -> Any:
    torch.manual_seed(5)
    rnn = torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True).to(d)
    x, lengths = rnd(d, 3, 5, 3).requires_grad_(), torch.tensor([5, 2, 3])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    y, (h, c) = rnn(packed)
    full, sizes = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
    return grads(full, x), h.detach(), c.detach(), sizes


@case
def attention_masks(d: Any) -> Any:
    q = rnd(d, 2, 2, 5, 4).requires_grad_()
    mask = torch.ones(5, 5, dtype=torch.bool).tril().to(d)
    key = ints(d, True, True, False, True, False).expand(2, 1, 1, 5)
    k, v = q[:, :1].expand(2, 2, 5, 4), q.transpose(1, 2).transpose(1, 2)
    att = F.scaled_dot_product_attention
    return (
        grads(att(q, q, q, mask), q),
        grads(att(q, k, v, is_causal=True), q),
        grads(att(q, q, q, key), q),
        att(q, q[:, :, :3], q[:, :, :3], scale=0.3).detach(),
    )


@case
def transformer_layer(d: Any) -> Any:
    torch.manual_seed(6)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(d)
    x = rnd(d, 2, 4, 8).requires_grad_()
    pad = torch.tensor([[False, False, False, True], [False, True, True, True]]).to(d)
    trained = grads(layer(x, src_key_padding_mask=pad)[0], x)
    with torch.no_grad():
        return trained, layer.eval()(x, src_key_padding_mask=pad)[0]


@case
def dropout_that_drops_all_or_nothing(d: Any) -> Any:
    x = rnd(d, 3, 4).requires_grad_()
    return [grads(F.dropout(x, p, training), x) for p, training in ((0.0, True), (1.0, True), (0.7, False))]


@case
def optimizers_from_a_checkpoint(d: Any) -> Any:
    out = []
    for make in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad):
        w = torch.linspace(-1, 1, 6).view(2, 3).to(d).requires_grad_()
        extra = {"momentum": 0.9, "nesterov": True} if make is torch.optim.SGD else {}
        opt = make([w], lr=0.1, weight_decay=0.01, **extra)
        for _ in range(3):
            (w**4).sum().backward()
            opt.step()
            opt.zero_grad()
            state = opt.state_dict()
            opt = make([w], lr=9.0)
            opt.load_state_dict(state)
        out.append(w.detach())
    return out


@case
def schedules_and_averages(d: Any) -> Any:
    w = torch.ones(3).to(d).requires_grad_()
    m = torch.nn.ParameterList([w])
    opt = torch.optim.Adam(m.parameters(), lr=torch.tensor(0.1), amsgrad=True)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)
    mean = torch.optim.swa_utils.AveragedModel(m)
    for _ in range(4):
        opt.zero_grad()
        (m[0] ** 2).sum().backward()
        opt.step(), plan.step(), mean.update_parameters(m)
    return m[0].detach(), mean.module[0].detach(), float(opt.param_groups[0]["lr"])


@case
def checkpointed_and_accumulated(d: Any) -> Any:
    torch.manual_seed(7)
    m = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)).to(d)
    x = rnd(d, 4, 3).requires_grad_()
    y = torch.utils.checkpoint.checkpoint(m, x, use_reentrant=False)
    return grads(y, x, *m.parameters())


@case
def parametrizations(d: Any) -> Any:
    torch.manual_seed(8)
    m = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4)).to(d)
    x = rnd(d, 2, 3)
    m(x).sum().backward()
    return m.weight.detach(), [p.grad for p in m.parameters()]


@case
def batched_functions(d: Any) -> Any:
    x, w = rnd(d, 4, 3), rnd(d, 3, 2, seed=1)
    per = torch.func.vmap(torch.func.grad(lambda w, x: (x @ w).square().sum()), (None, 0))(w, x)
    return (
        per,
        torch.vmap(lambda a, b: a.dot(b))(x, x),
        torch.vmap(torch.sort)(x),
        torch.func.functional_call(torch.nn.Linear(3, 2).to(d), {"weight": w.t(), "bias": w[0]}, (x,)).detach(),
    )


# -- mixed precision -----------------------------------------------------------------------------------------------
@case
def autocast_keeps_weights_and_gradients_in_float(d: Any) -> Any:
    w, x = rnd(d, 3, 4).requires_grad_(), rnd(d, 2, 4, seed=1)
    with torch.autocast(torch.device(d).type, torch.bfloat16):
        y = F.linear(x, w)
        loss = F.cross_entropy(y, ints(d, 0, 2))
        inner = (y.dtype, loss.dtype, (y + x[:, :3]).dtype, x.sum().dtype)
    loss.backward()
    return inner, w.grad.dtype, w.grad.float().round(decimals=1)


@case
def fused_pairs(d: Any) -> Any:
    a, b = [rnd(d, 2, 3).t(), rnd(d, 4, seed=1)], [rnd(d, 3, 2, seed=2), rnd(d, 8, seed=3)[::2]]
    c = [t.clone() for t in a]
    torch._foreach_mul_(c, 2.0)
    torch._foreach_addcdiv_(c, b, [t.abs() + 1 for t in b], 0.5)
    torch._foreach_lerp_(c, b, 0.25)
    return (
        torch._foreach_add(a, b, alpha=2),
        c,
        torch._foreach_norm(a),
        torch._foreach_sqrt([t.abs() for t in a]),
        torch._foreach_maximum(a, b),
    )
