"""Edges: nothing, tensors without dimensions, extreme numbers."""

from __future__ import annotations

from typing import Any

import torch

from faults.base import case, grads, ints, rnd

F = torch.nn.functional


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
        F.interpolate(torch.empty(0, 1, 2, 2).to(d), scale_factor=2.0), (x[:0, 0] > 0).cumsum_(0),
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
