"""A program to run under Oclgrind, which watches each access of each work-item: `oclgrind python -m kernel_check gpu`.

It runs a few sizes around the edges of tiles, and the named cases of `faults`, on the simulated device; what
Oclgrind has to say goes to its log. The first argument is the shape of the kernels: `gpu` (one element per work-item)
or `cpu` (blocks and vectors); more arguments name the cases, `all` means every one.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

os.environ["TORCH_FL_BACKENDS"] = "opencl"

import faults
import torch
import torch_fl.backends._opencl_discovery as adapter
from faults import arange, ints, rnd

from torch_fl import set_fallback

F = torch.nn.functional


def products(d: Any) -> Any:
    """Matrices smaller and larger than a tile, in all four orders, and with a batch."""
    out = []
    for m, n, k in ((1, 1, 1), (3, 33, 5), (17, 9, 40), (35, 34, 33)):
        a, b = rnd(d, m, k), rnd(d, k, n, seed=1)
        out += [
            a @ b,
            a.t().contiguous().t() @ b,
            a @ b.t().contiguous().t(),
            torch.addmm(rnd(d, n), a, b),
            (a @ b).t() @ a,
        ]
    return [*out, torch.bmm(rnd(d, 3, 5, 7), rnd(d, 3, 7, 19, seed=1)), rnd(d, 9, 20) @ rnd(d, 20)]


def lines(d: Any) -> Any:
    """Reductions, scans and sorts of lines whose lengths stand around the widths of vectors and parts."""
    out: list[Any] = []
    for n in (1, 31, 32, 33, 100):
        x = rnd(d, 3, n)
        out += [
            x.sum(1),
            x.sum(0),
            x.max(1),
            x.cumsum(1),
            x.sort(dim=1),
            x.softmax(1),
            x.std(1, correction=0),
            x.t().amax(0),
        ]
        out += [
            x.topk(min(n, 3), 1),
            x.argmax(),
            x.logsumexp(1),
            F.layer_norm(x, (n,)),
            x.prod(1),
            x.cummax(1),
            x.half().sum(1),
        ]
    return out


def spaces(d: Any) -> Any:
    """Convolutions, pools and resizing in one, two and three dimensions."""
    x, v = rnd(d, 2, 3, 9, 7), rnd(d, 1, 2, 4, 5, 3)
    w = rnd(d, 4, 3, 3, 2, seed=1)
    return [
        F.conv2d(x, w, rnd(d, 4), 2, 1), F.conv_transpose2d(x, w.transpose(0, 1), stride=2, output_padding=1),
        F.conv1d(x[:, :, 0], w[..., 0], dilation=2), F.conv3d(v, rnd(d, 2, 1, 2, 2, 2), groups=2),
        F.max_pool2d(x, 3, 2, 1),
        F.avg_pool3d(v, 2), F.interpolate(x, size=(5, 12), mode="bilinear"),
        F.interpolate(x, size=(4, 4), mode="bicubic"),
        F.grid_sample(x, rnd(d, 2, 4, 4, 2), align_corners=False), F.unfold(x, 3, padding=1),
        F.pixel_shuffle(rnd(d, 1, 8, 3, 2), 2),
        F.adaptive_avg_pool2d(x, (2, 5)), F.fold(F.unfold(x, 2), (9, 7), 2),
    ]  # fmt: skip


def random_numbers(d: Any) -> Any:
    """Draws of odd counts; only where they are, not what they are."""
    x = torch.zeros(7, 5).to(d)[:, ::2]
    x.normal_(), x.uniform_(), x.exponential_(), x.random_(5), x.bernoulli_(0.5), x.geometric_(0.5), x.cauchy_()
    F.dropout(rnd(d, 13), 0.5), torch.randperm(9, device=d), torch.rand(3, device=d), torch.randn(130, device=d)
    (
        torch.multinomial(rnd(d, 3, 9).abs(), 4),
        torch.bernoulli(rnd(d, 11).abs().clamp(0, 1)),
    )
    torch.rand(5, device=d).half()
    return x.shape


def training(d: Any) -> Any:
    """Optimizer steps over parameters of odd sizes."""
    out = []
    for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        for extra in ({}, {"foreach": True}, {"fused": True}):
            ps = [rnd(d, n, seed=n).requires_grad_() for n in (1, 7, 33)]
            opt = make(ps, lr=0.1, **extra)
            sum((p * p).sum() for p in ps).backward()
            opt.step()
            out += ps
    return out


def embeddings(d: Any) -> Any:
    """Look-ups, bags, one-hot and attention."""
    w, at = rnd(d, 6, 5).requires_grad_(), ints(d, 1, 4, 4, 0, 5)
    q = rnd(d, 1, 2, 9, 8).requires_grad_()
    full = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return [
        faults.grads(F.embedding(at, w), w), faults.grads(F.embedding_bag(at, w, ints(d, 0, 2, 2)), w),
        faults.grads(full, q), F.one_hot(at, 7), torch.cdist(rnd(d, 5, 3), rnd(d, 4, 3)),
        arange(d, 4, 70).t().contiguous(),
    ]  # fmt: skip


EDGES: dict[str, Callable[[Any], Any]] = {
    f.__name__: f for f in (products, lines, spaces, random_numbers, training, embeddings)
}
CASES = {**EDGES, **faults.CASES}


def _kind(shape: str) -> Callable[..., str]:
    return lambda cl, device: shape


def run(shape: str, names: list[str]) -> None:
    """Run cases, and say the name of each before it starts."""
    adapter._kind = _kind(shape)
    set_fallback("allow")
    warnings.simplefilter("ignore")
    print(torch.npu.get_device_name(0), flush=True)
    for name in CASES if names == ["all"] else names or EDGES:
        print(f"-- {name}", flush=True)
        CASES[name](torch.device("npu", 0))
        torch.npu.synchronize()
    print("done")


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
