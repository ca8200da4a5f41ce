"""Indexing, scatter and embedding: values, gradients, dtypes, and indices out of bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same

Case = Callable[..., Any]


def _x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 8
    return made.to(dtype).requires_grad_(dtype.is_floating_point)


def _i(high: int, *shape: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(2))


READS: dict[str, tuple[Case, tuple[Any, ...]]] = {
    "rows": (lambda x, i: x[i], (_x(5, 7), _i(5, 9))),
    "negative": (lambda x, i: x[i], (_x(5, 7), _i(5, 9, low=-5))),
    "columns": (lambda x, i: x[:, i], (_x(5, 7, 3), _i(7, 2, 4))),
    "two": (lambda x, i, j: x[i, j], (_x(5, 7, 3), _i(5, 4, 1), _i(7, 6))),
    "two apart": (lambda x, i, j: x[i, :, j], (_x(5, 7, 3), _i(5, 4, 1), _i(3, 6))),
    "int32": (lambda x, i: x[i.int()], (_x(5, 7), _i(5, 9))),
    "strided": (lambda x, i: x.t()[1:, ::2][i], (_x(6, 5), _i(4, 3))),
    "expanded": (lambda x, i: x.expand(4, 5, 7)[i], (_x(5, 7), _i(4, 3))),
    "mask": (lambda x: x[x > 0], (_x(5, 7),)),
    "row mask": (lambda x, m: x[m], (_x(5, 7), _i(2, 5).bool())),
    "mask and index": (lambda x, m, i: x[m, i], (_x(4, 7), torch.ones(4).bool(), _i(7, 4))),
    "nothing": (lambda x, i: x[i], (_x(5, 7), _i(5, 0))),
    "gather": (lambda x, i: x.gather(1, i), (_x(5, 7), _i(7, 4, 9))),
    "gather 0-dim": (lambda x, i: x.gather(0, i), (_x(), _i(1))),
    "index_select": (lambda x, i: x.index_select(-1, i), (_x(5, 7), _i(7, 20))),
    "take": (lambda x, i: x.t().take(i), (_x(5, 7), _i(35, 2, 3, low=-35))),
    "take_along_dim": (lambda x, i: x.take_along_dim(i, 0), (_x(5, 7), _i(5, 1, 7))),
    "masked_select": (lambda x, m: x.masked_select(m), (_x(5, 7), _i(2, 7).bool())),
    "embedding": (lambda i, w: F.embedding(i, w, padding_idx=2), (_i(5, 3, 4), _x(5, 7))),
    "embedding by frequency": (lambda i, w: F.embedding(i, w, None, None, 2.0, True), (_i(5, 3, 4), _x(5, 7))),
    "select, slice": (lambda x: x[2, 1::2] * x.narrow(1, 0, 3)[1], (_x(5, 7),)),
    "unfold": (lambda x: x.unfold(0, 3, 2) * 2, (_x(9, 4),)),
    "diagonal": (lambda x: x.diagonal(1) * 2, (_x(5, 7),)),
}


@pytest.mark.parametrize("name", READS)
def test_read(name: str, device: torch.device) -> None:
    fn, args = READS[name]
    assert_same(fn, *args, device=device)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.int64, torch.bool, torch.uint8, torch.complex64, torch.complex128]
)
def test_any_dtype_is_moved(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.arange(35).view(5, 7).to(dtype)

    def move(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        y = x.clone()
        y[:, 1][i] = x[0, 1]
        y[2:, i] = x[:3, :3]
        return [x[i], x[:, i], x.gather(0, i[:, None].expand(3, 7)), torch.cat([x.t(), x.t()], 1), y]

    assert_same(move, x, torch.tensor([4, 0, 2]), device=device)


def _put(x: torch.Tensor, *args: Any, accumulate: bool = False) -> torch.Tensor:
    return x.clone().index_put_(args[:-1], args[-1], accumulate)


UNIQUE = torch.tensor([4, 0, 2])
WRITES: dict[str, tuple[Case, tuple[Any, ...]]] = {
    "rows": (_put, (_x(5, 7), UNIQUE, _x(3, 7))),
    "broadcast": (_put, (_x(5, 7), UNIQUE, _x(1))),
    "accumulate": (lambda *a: _put(*a, accumulate=True), (_x(5, 7), _i(5, 30), _x(30, 7))),
    "accumulate two": (lambda *a: _put(*a, accumulate=True), (_x(5, 7), _i(5, 30), _i(7, 30), _x(30))),
    "mask": (lambda x, m, v: _put(x, m, v), (_x(5, 7), torch.tensor([1, 0, 1, 0, 1]).bool(), _x(3, 7))),
    "scatter": (lambda x, i, s: x.scatter(0, i, s), (_x(5, 7), UNIQUE[:, None].expand(3, 7), _x(3, 7))),
    "scatter value": (lambda x, i: x.scatter(1, i, 2.5), (_x(5, 7), _i(7, 5, 2))),
    "scatter_add": (lambda x, i, s: x.scatter_add(1, i, s), (_x(5, 7), _i(7, 5, 90), _x(5, 90))),
    "scatter_add 0-dim": (lambda x, i, s: x.scatter_add(0, i, s), (_x(), _i(1), _x())),
    "index_add": (lambda x, i, s: x.index_add(0, i, s, alpha=2), (_x(5, 70), _i(5, 90), _x(90, 70))),
    "index_copy": (lambda x, i, s: x.index_copy(1, i, s), (_x(5, 7), UNIQUE, _x(5, 3))),
    "index_fill": (lambda x, i: x.index_fill(1, i - 3, 4), (_x(5, 7), UNIQUE)),
    "put": (lambda x, i, s: x.put(i, s, True), (_x(5, 7), _i(35, 4, 5), _x(5, 4))),
    "masked_scatter": (lambda x, m, s: x.masked_scatter(m, s), (_x(5, 7), _i(2, 5, 7).bool(), _x(6, 7))),
    "select_scatter": (lambda x, s: x.select_scatter(s, 0, 1), (_x(5, 7), _x(7))),
    "slice_scatter": (lambda x, s: x.slice_scatter(s, 1, 1, 7, 2), (_x(5, 7), _x(5, 3))),
    "diagonal_scatter": (lambda x, s: x.diagonal_scatter(s, -1), (_x(5, 7), _x(4))),
    "as_strided_scatter": (lambda x, s: x.as_strided_scatter(s, (2, 3), (7, 2), 1), (_x(5, 7), _x(2, 3))),
}


@pytest.mark.parametrize("name", WRITES)
def test_write(name: str, device: torch.device) -> None:
    fn, args = WRITES[name]
    assert_same(fn, *args, device=device, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(reduce: str, include_self: bool, device: torch.device) -> None:
    x, s = _x(5, 7).detach(), _x(9, 7).detach()
    s[3, 3] = float("nan")
    for dtype in (torch.float32, torch.int64):
        a, b = x.nan_to_num().to(dtype), (s if dtype.is_floating_point else s.nan_to_num()).to(dtype)
        assert_same(
            lambda x, i, s: x.scatter_reduce(0, i, s, reduce, include_self=include_self),
            a,
            _i(5, 9, 7),
            b,
            device=device,
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_summed_in_float(dtype: torch.dtype, device: torch.device) -> None:
    source = torch.full((5000, 2), 0.25, dtype=dtype)
    index = torch.zeros(5000, 2, dtype=torch.int64)
    for target in (torch.zeros(3, 2, dtype=dtype), torch.zeros(2, 3, dtype=dtype).t()):
        assert_same(lambda x, i, s: x.scatter_add(0, i, s), target, index, source, device=device)
        assert_same(lambda x, i, s: x.clone().scatter_add_(0, i, s), target, index, source, device=device)


def test_assignment_by_mask_and_slice(device: torch.device) -> None:
    def assign(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[y > 3] = 0
        y[1:3, ::2] = 5
        y[:, i] = y[:, :3] + 1
        y[i] += 1
        y[y < 0] = y[y < 0] * 2
        return y

    assert_same(assign, _x(5, 7), UNIQUE, device=device)


@pytest.mark.parametrize("made", [lambda y: y, lambda y: y.view(4), lambda y: y.view(2, 2).view(4)])
def test_source_and_index_in_the_written_buffer(device: torch.device, made: Callable[[Any], Any]) -> None:
    for place in ("cpu", device):
        y = torch.tensor([2, 0, 3, 1]).to(place)
        for write in (lambda y: y.index_put_((made(y),), made(y)), lambda y: y.index_fill_(0, made(y), 9)):
            with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
                write(y)
        assert y.tolist() == [2, 0, 3, 1]


def test_cpu_indices_and_cpu_tensors(device: torch.device) -> None:
    x = torch.arange(12.0).view(3, 4)
    y = x.to(device)
    torch.testing.assert_close(y[torch.tensor([2, 0])].cpu(), x[[2, 0]])
    torch.testing.assert_close(y[torch.tensor([True, False, True])].cpu(), x[::2])
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        x[torch.tensor([0], device=device)]


OUT_OF_BOUNDS: dict[str, Case] = {
    "index": lambda x, i: x[i],
    "index two": lambda x, i: x[i, i],
    "index negative": lambda x, i: x[-i - 1],
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "gather negative": lambda x, i: x.gather(0, -i[:, None]),
    "index_select": lambda x, i: x.index_select(0, i),
    "take": lambda x, i: x.take(i * 100),
    "embedding": lambda x, i: F.embedding(i, x),
    "index_put_": lambda x, i: x.index_put_((i,), torch.ones(4, device=x.device)),
    "scatter": lambda x, i: x.scatter(0, i[:, None], x),
    "scatter_add_": lambda x, i: x.scatter_add_(0, i[:, None], x.clone()),
    "index_add_": lambda x, i: x.index_add_(0, i, x.clone()),
    "index_copy_": lambda x, i: x.index_copy_(0, i, x.clone()),
    "index_fill_": lambda x, i: x.index_fill_(0, i, 1),
    "put_": lambda x, i: x.put_(i * 100, torch.ones(3, device=x.device)),
}


@pytest.mark.parametrize("name", OUT_OF_BOUNDS)
def test_out_of_bounds_raises_at_the_next_read(name: str, device: torch.device) -> None:
    x = torch.ones(3, 4, device=device)
    bad = torch.tensor([1, 7, 0], device=device)
    result = OUT_OF_BOUNDS[name](x.clone(), bad)
    with pytest.raises(IndexError, match=r"out of (bounds|range)"):
        result.sum().item()
    torch.testing.assert_close(x.sum().item(), 12.0)


def test_out_of_bounds_touches_nothing_else(device: torch.device) -> None:
    buffer = torch.zeros(100, device=device)
    middle = buffer[40:60]
    middle.index_fill_(0, torch.tensor([-30, 19, 25], device=device), 1)
    with pytest.raises(IndexError, match="index_fill"):
        buffer.cpu()
    want = torch.zeros(100)
    want[59] = 1
    torch.testing.assert_close(buffer.cpu(), want)


def test_parallel_chips_add_with_atomics(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of chips with many work-items, on the chips there are."""
    from torch_fl.dispatch import op_of
    from torch_fl.runtime.devices import device_at

    ops = [op_of(torch.ops.aten.index_add.default), op_of(torch.ops.aten.scatter_reduce.two)]
    for op in ops:
        monkeypatch.setattr(op, "plans", {})
    monkeypatch.setattr(device_at(device.index), "is_cpu", False)
    i, s = _i(3, 2000), _i(9, 2000, 5).float()
    assert_same(lambda x, i, s: x.index_add(0, i, s), torch.zeros(3, 5), i, s, device=device)
    assert_same(
        lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
        torch.zeros(3, 5),
        i[:, None].expand(2000, 5),
        s,
        device=device,
    )


def test_nonzero(device: torch.device) -> None:
    for shape in [(), (0,), (1,), (5, 7), (3, 0, 2), (2, 3, 4), (20000,)]:
        x = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(3))
        assert_same(lambda x: (x.nonzero(), torch.argwhere(x > 0)), x, device=device)
    assert_same(lambda x: torch.where(x > 0), _x(5, 7).detach(), device=device)
    for size in (0, 3, 50):
        assert_same(lambda x, n: torch.nonzero_static(x > 0, size=n), _x(5, 7).detach(), size, device=device)


def test_kv_cache_step(device: torch.device) -> None:
    """What a decoder does per token: write into a cache, grow one by cat, pick the next token."""

    def step(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor, logits: torch.Tensor) -> list[torch.Tensor]:
        cache = cache.clone()
        cache.index_copy_(2, at, new)
        cache[:, :, 5:6] = new * 2
        grown = torch.cat([cache, new], dim=2)
        best, where = torch.topk(logits, 3)
        masked = logits.masked_fill(logits < best[:, -1:], float("-inf"))
        order, index = torch.sort(logits, descending=True)
        kept = (order.softmax(-1).cumsum(-1) > 0.9).scatter(1, index, order.softmax(-1).cumsum(-1) > 0.9)
        return [grown, where, masked.argmax(-1), kept, logits.gather(1, where)]

    args = (_x(2, 3, 8, 4).detach(), _x(2, 3, 1, 4).detach(), torch.tensor([3]), _x(2, 50).detach())
    assert_same(step, *args, device=device)


@pytest.mark.parametrize("width", [255, 256, 257, 600])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool], ids=str)
def test_blocks_of_indices(width: int, dtype: torch.dtype, device: torch.device) -> None:
    x, source = ((torch.randn(5, width) * 3).to(dtype) for _ in range(2))
    for dim, size in ((1, width), (0, 5)):
        index = torch.randint(0, size, (5, width))
        d, i, s = x.to(device), index.to(device), source.to(device)
        assert torch.equal(d.gather(dim, i).cpu(), x.gather(dim, index))
        assert torch.equal(d.t().contiguous().t().gather(dim, i).cpu(), x.gather(dim, index))
        torch.testing.assert_close(d.scatter_add(dim, i, s).cpu(), x.scatter_add(dim, index, source))
    wrapped = torch.randint(-width, width, (700,))
    assert torch.equal(x.to(device)[:, wrapped.to(device)].cpu(), x[:, wrapped])


@pytest.mark.parametrize("bad", [1000, -1001, 2**33])
def test_one_bad_index_among_blocks(bad: int, device: torch.device) -> None:
    index = torch.arange(1000)
    index[700] = bad
    with pytest.raises(IndexError):
        torch.randn(1000, device=device)[index.to(device)].cpu()
    with pytest.raises(RuntimeError):
        torch.zeros(1000, device=device).scatter_add(0, index.to(device), torch.ones(1000, device=device)).cpu()


@pytest.mark.parametrize("alpha", [1, 2, 0.5])
def test_index_add_scales(alpha: float, device: torch.device) -> None:
    x, index, rows = torch.randn(9, 33), torch.randint(0, 9, (40,)), torch.randn(40, 33)
    found = x.to(device).index_add(0, index.to(device), rows.to(device), alpha=alpha)
    torch.testing.assert_close(found.cpu(), x.index_add(0, index, rows, alpha=alpha))
