"""Faults of the kinds publicly reported for other backends of torch: none of them is here.

`faults` holds what can be compared with the CPU; here is what has to be looked at: memory, errors, random
numbers, copies, devices.
"""

from __future__ import annotations

import copy
import gc
import io
import pickle
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from faults import CASES, rnd
from torch.testing import assert_close

pytestmark = pytest.mark.device  # each case compiles kernels of its own
OTHER_LAYOUT = ("attention_masks",)
"""Cases with results that torch lays out in one way on the CPU alone, whose attention is one op with a gradient."""
FAST = (
    "bit_ops_in_place_on_columns",
    "writes_through_permuted_slices",
    "reshape_copies_where_it_must",
    "data_and_views",
)


def _seen(value: Any, layout: bool) -> Any:
    """Tensors as (strides that say something, values on the CPU), everything else as it is, nested."""
    if isinstance(value, torch.Tensor):
        strides = [s for s, n in zip(value.stride(), value.shape) if n > 1] if value.numel() and layout else []
        return strides, value.detach().cpu().contiguous()
    if isinstance(value, (list, tuple)):
        return [_seen(v, layout) for v in value]
    return value


def _compare(got: Any, want: Any, path: str) -> None:
    """Nested results agree."""
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want), path
        for i, (g, w) in enumerate(zip(got, want)):
            _compare(g, w, f"{path}[{i}]")
    elif isinstance(want, torch.Tensor):
        assert_close(got, want, equal_nan=True, msg=lambda m: f"{path}: {m}")
    else:
        assert got == want, path


def compare(name: str, device: torch.device) -> None:
    """A case gives on the device what it gives on the CPU."""
    got, want = (_seen(CASES[name](d), name not in OTHER_LAYOUT) for d in (device, torch.device("cpu")))
    _compare(got, want, name)


@pytest.mark.filterwarnings("ignore")  # of torch itself, on the CPU as well
@pytest.mark.parametrize("name", CASES)
def test_is_as_on_the_cpu(name: str, device: torch.device, allow_fallback: None) -> None:
    compare(name, device)


def bags(d: Any, offsets: list[int]) -> torch.Tensor:
    table, at = torch.ones(4, 2).to(d), torch.tensor([0, 1, 2]).to(d)
    return torch.nn.functional.embedding_bag(at, table, torch.tensor(offsets).to(d), mode="max").cpu()


# -- what must be refused ------------------------------------------------------------------------------------------
REFUSED: dict[str, Any] = {
    "int plus float in place": lambda d: torch.ones(2, dtype=torch.int64).to(d).add_(1.5),
    "int divided in place": lambda d: torch.ones(2, dtype=torch.int64).to(d).div_(2),
    "int times float tensor in place": lambda d: torch.ones(2, dtype=torch.int64).to(d).mul_(torch.ones(2).to(d)),
    "bool minus bool": lambda d: torch.ones(2).bool().to(d) - torch.ones(2).bool().to(d),
    "bool shifted by int in place": lambda d: torch.ones(2).bool().to(d).__ilshift__(1),
    "a whole number that is none": lambda d: torch.logspace(
        torch.tensor(99.0).to(d), 1, 1, dtype=torch.int64, device=d
    ),
    "int to a negative power": lambda d: torch.ones(2, dtype=torch.int64).to(d) ** -1,
    "mean of integers": lambda d: torch.ones(2, dtype=torch.int64).to(d).mean(),
    "float matrix times int matrix": lambda d: torch.ones(2, 2).to(d) @ torch.ones(2, 2, dtype=torch.int64).to(d),
    "largest of nothing": lambda d: torch.empty(0).to(d).max(),
    "largest along nothing": lambda d: torch.empty(2, 0).to(d).amax(1),
    "itself transposed in place": lambda d: (x := torch.ones(3, 3).to(d)).add_(x.t()),
    "its neighbour in place": lambda d: (x := torch.ones(4).to(d))[1:].copy_(x[:-1]).add_(x[:3]),
    "an expanded tensor in place": lambda d: torch.ones(1).to(d).expand(3).add_(1),
    "a leaf in place": lambda d: torch.ones(2).to(d).requires_grad_().add_(1),
    "a view over a hole": lambda d: torch.ones(3, 4).to(d).t().view(12),
    "shapes that do not fit": lambda d: torch.ones(3).to(d) + torch.ones(4).to(d),
    "output that does not fit": lambda d: torch.ones(3).to(d).add_(torch.ones(2, 3).to(d)),
    "index too large": lambda d: torch.ones(3).to(d)[torch.tensor([3]).to(d)].cpu(),
    "index too small": lambda d: torch.ones(3).to(d)[torch.tensor([-4]).to(d)].cpu(),
    "gather too large": lambda d: torch.ones(3).to(d).gather(0, torch.tensor([5]).to(d)).cpu(),
    "scatter too large": lambda d: torch.ones(3).to(d).scatter_(0, torch.tensor([5]).to(d), 1.0).cpu(),
    "embedding too large": lambda d: torch.nn.functional.embedding(
        torch.tensor([5]).to(d), torch.ones(3, 2).to(d)
    ).cpu(),
    "class too large": lambda d: torch.nn.functional.nll_loss(torch.zeros(1, 3).to(d), torch.tensor([3]).to(d)).cpu(),
    "one-hot class too large": lambda d: torch.nn.functional.one_hot(torch.tensor([3]).to(d), 3).cpu(),
    "one-hot class below zero": lambda d: torch.nn.functional.one_hot(torch.tensor([-1]).to(d), 3).cpu(),
    "bags that start late": lambda d: bags(d, [1, 2]),
    "bags that leave the list": lambda d: bags(d, [0, 9]),
    "bags that start before it": lambda d: bags(d, [0, -1, 2]),
    "more repeats than said": lambda d: (
        torch.tensor([1, 2]).to(d).repeat_interleave(torch.tensor([1, 2]).to(d), output_size=2).cpu()
    ),
    "repeats below zero": lambda d: torch.repeat_interleave(torch.tensor([3, -1]).to(d), output_size=2).cpu(),
    "segments below zero": lambda d: torch.segment_reduce(
        torch.ones(4).to(d), "sum", lengths=torch.tensor([2, -1, 3]).to(d), unsafe=True
    ).cpu(),
    "integer wanted": lambda d: torch.ones(3).to(d)[1.5],
    "mask of another shape": lambda d: torch.ones(3, 2).to(d)[torch.ones(2).bool().to(d)],
    "more dimensions than there are": lambda d: torch.ones(3).to(d)[0, 0],
    "negative step": lambda d: torch.ones(3).to(d)[::-1],
    "one element wanted": lambda d: torch.ones(3).to(d).item(),
    "truth of many": lambda d: bool(torch.ones(3).to(d)),
    "a graph walked twice": lambda d: [y.backward() for y in [torch.ones(1).to(d).requires_grad_().exp()] * 2],
    "saved tensor changed": lambda d: ((y := torch.ones(2).to(d).requires_grad_().exp()).mul_(2), y.sum().backward()),
    "gradient of integers": lambda d: torch.ones(2, dtype=torch.int64).to(d).requires_grad_(),
    "iteration over a number": lambda d: list(torch.tensor(1.0).to(d)),
    "concatenation of other shapes": lambda d: torch.cat([torch.ones(2, 3).to(d), torch.ones(2, 2).to(d)]),
    "concatenation of numbers": lambda d: torch.cat([torch.tensor(1.0).to(d)] * 2),
    "kernel larger than the input": lambda d: torch.nn.functional.conv2d(
        torch.ones(1, 1, 2, 2).to(d), torch.ones(1, 1, 3, 3).to(d)
    ),
    "probabilities below zero": lambda d: torch.multinomial(torch.tensor([-1.0, 2]).to(d), 1).cpu(),
    "bernoulli above one": lambda d: torch.bernoulli(torch.tensor([1.5]).to(d)).cpu(),
    "reflection wider than the input": lambda d: torch.nn.functional.pad(
        torch.ones(1, 1, 3).to(d), (3, 0), mode="reflect"
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name: str, device: torch.device, allow_fallback: None) -> None:
    """The CPU raises, the device raises the same type (or a RuntimeError for what it sees late), and lives on."""
    with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)) as wanted:
        REFUSED[name](torch.device("cpu"))
    with pytest.raises((wanted.type, RuntimeError)):
        REFUSED[name](device)
    assert (torch.ones(2, device=device) + 1).tolist() == [2.0, 2.0]


# -- memory --------------------------------------------------------------------------------------------------------
RANDOM_WRITES: dict[str, Any] = {
    "normal_": lambda t: t.normal_(5, 0.1),
    "uniform_": lambda t: t.uniform_(1, 2),
    "exponential_": lambda t: t.exponential_().add_(1e-6),
    "bernoulli_": lambda t: t.bernoulli_(0.5).add_(1),
    "random_": lambda t: t.random_(1, 9),
    "cauchy_": lambda t: t.cauchy_(),
    "log_normal_": lambda t: t.log_normal_(),
    "geometric_": lambda t: t.geometric_(0.5),
}


@pytest.mark.parametrize("name", RANDOM_WRITES)
def test_random_writes_fill_a_view_and_nothing_else(name: str, device: torch.device, allow_fallback: None) -> None:
    base = torch.zeros(6, 7, device=device)
    view = base.t()[1::2, 2:5]
    RANDOM_WRITES[name](view)
    mask = torch.zeros(6, 7, dtype=torch.bool)
    mask.t()[1::2, 2:5] = True
    assert base.cpu()[mask].ne(0).all()
    assert base.cpu()[~mask].eq(0).all()
    assert name in ("bernoulli_", "geometric_", "random_") or base.cpu()[mask].unique().numel() > 5


def test_sources_may_be_dropped_or_changed_at_once(device: torch.device) -> None:
    made = []
    for i in range(40):
        source = torch.full((300,), float(i))
        made.append(source.to(device, non_blocking=True) * 1)
        source.fill_(-1)
        back = made[-1].to("cpu", non_blocking=True)
        torch.npu.synchronize()
        assert back.eq(i).all()
    assert torch.stack(made)[:, 7].tolist() == [float(i) for i in range(40)]


def test_freed_memory_is_not_read_again(device: torch.device) -> None:
    """Temporaries die in Python while kernels that read them still wait."""
    total = torch.zeros(1000, device=device)
    for i in range(100):
        total += (torch.full((1000,), 1.0, device=device) * i + i) / 2 - i * 0.5
    assert_close(total.cpu(), torch.full((1000,), 50.0 * 99 / 2 + 0.0) * 1.0 * 1.0, rtol=0, atol=1e-2)


def test_results_do_not_depend_on_what_was_freed_before(device: torch.device) -> None:
    a, b = rnd(device, 25, 40), rnd(device, 40, 25, seed=1)
    first = (a.t().contiguous().t() @ b).cpu()
    for n in (7, 1000, 100_000, 3):
        junk = torch.full((n,), float("nan"), device=device)
        del junk
        gc.collect()
        for got in (a @ b, a.t().contiguous().t() @ b, torch.empty_like(first, device=device).copy_(a @ b)):
            assert_close(got.cpu(), first, rtol=0, atol=0)


def test_nothing_is_left_behind(device: torch.device) -> None:
    def step() -> None:
        x = rnd(device, 8, 8).requires_grad_()
        y = (x @ x.t()).softmax(1)[1:, ::2]
        y.sum().backward()
        held = [weakref.ref(x), weakref.ref(y)]
        del x, y
        gc.collect()
        assert all(r() is None for r in held)

    step()
    gc.collect()
    before = torch.npu.memory_allocated(device)
    for _ in range(5):
        step()
    gc.collect()
    assert torch.npu.memory_allocated(device) <= before


def test_a_view_keeps_its_memory(device: torch.device) -> None:
    view = torch.arange(1000.0, device=device)[10:13]
    gc.collect()
    torch.npu.empty_cache()
    filler = torch.zeros(1000, device=device)
    assert view.tolist() == [10.0, 11.0, 12.0]
    assert filler.sum().item() == 0


# -- copies and files ----------------------------------------------------------------------------------------------
def test_deep_copies_are_independent(device: torch.device) -> None:
    m = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)]).to(device)
    m[1].weight = m[0].weight
    m[0](rnd(device, 2, 3)).sum().backward()
    twin = copy.deepcopy(m)
    assert twin[1].weight is twin[0].weight
    assert twin[0].weight.device == device
    assert isinstance(twin[0].weight, torch.nn.Parameter)
    assert_close(twin[0].weight.grad, m[0].weight.grad)
    with torch.no_grad():
        twin[0].weight.zero_()
        twin[0].weight.grad.zero_()
    assert m[0].weight.abs().sum().item() > 0
    assert m[0].weight.grad.abs().sum().item() > 0
    shallow = copy.copy(m[0].weight)
    assert_close(shallow.cpu(), m[0].weight.cpu())


def test_files_keep_sharing_dtype_and_layout(device: torch.device) -> None:
    base = rnd(device, 4, 5)
    given = {
        "base": base,
        "view": base.t()[1:],
        "half": base.half(),
        "mask": base > 0,
        "scalar": base.sum(),
        "none": base[:0],
    }
    data = io.BytesIO()
    torch.save(given, data)
    data.seek(0)
    for where in (device, torch.device("cpu")):
        data.seek(0)
        read = torch.load(data, map_location=where)
        for name, t in given.items():
            assert read[name].device == where
            assert_close(read[name].cpu(), t.cpu(), rtol=0, atol=0)
    back = pickle.loads(pickle.dumps(base.t()))
    assert_close(back.cpu(), base.t().cpu(), rtol=0, atol=0)


def test_numpy_and_lists(device: torch.device) -> None:
    source = np.arange(12, dtype=np.float64).reshape(3, 4)
    t = torch.from_numpy(source.T).to(device)
    source[0, 0] = 99
    assert t[0, 0].item() == 0
    assert torch.tensor(source, device=device).dtype == torch.float64
    assert t[1:, ::2].tolist() == source.T[1:, ::2].tolist()
    assert_close(torch.as_tensor(source[::2], device=device).cpu(), torch.from_numpy(source[::2].copy()))
    for wrong in (lambda: t.numpy(), lambda: np.asarray(t)):
        with pytest.raises(TypeError, match="cpu"):
            wrong()
    assert t.cpu().numpy().shape == (4, 3)
    assert torch.tensor([t[0, 1], t[1, 0]]).tolist() == [4.0, 1.0]
    assert [float(v) for v in t[:, 0]] == [0.0, 1.0, 2.0, 3.0]
    assert (len(t), 5.0 in t, 77.0 in t) == (4, True, False)
    assert f"{t[0, 1]:.1f} {int(t[1, 2])} {t.shape[0]}" == "4.0 9 4"


def test_batches_from_a_loader(device: torch.device) -> None:
    data = torch.utils.data.TensorDataset(rnd(device, 10, 3), torch.arange(10, device=device))
    seen = [(x, y) for x, y in torch.utils.data.DataLoader(data, batch_size=4, shuffle=False)]
    assert [len(y) for _, y in seen] == [4, 4, 2]
    assert torch.cat([y for _, y in seen]).tolist() == list(range(10))
    assert all(x.device == device for x, _ in seen)


# -- where things are ----------------------------------------------------------------------------------------------
def test_things_are_where_they_were_asked_for(device: torch.device) -> None:
    x = torch.ones(2, 3, device=device)
    for made in (
        torch.zeros_like(x), x.new_zeros(2), torch.empty_like(x), torch.rand_like(x), x[0], x.t(), x.sum(), x > 0,
        x.clone(),
        x.detach(), x.to(torch.half), x.to(device), x.nonzero(), torch.where(x > 0)[0], torch.arange(3, device=device),
        x.long(), x.argmax(),
        torch.full_like(x, 2), x.new_tensor([1.0]), torch.randint_like(x, 5), x.type_as(x),
        torch.linspace(0, 1, 3, device=x.device),
        torch.randperm(4, device=device), torch.nn.Linear(2, 2, device=device).weight, torch.nn.Parameter(x),
        torch.as_tensor(x), x.bool(),
        torch.tensor(3.0, device=device), torch.eye(2, device=device), x.repeat(2, 1), torch.cat([x, x]),
        x.split(1)[1], x.unbind(1)[0],
    ):  # fmt: skip
        assert made.device == device
    for made in (x.new([2, 3]), x.new(2, 3), x.new(), x.new(torch.Size([2])), x.new(x)):
        assert (made.device, made.dtype) == (device, x.dtype)
    assert x.new([2, 3]).tolist() == [2, 3]
    assert x.to(device) is x
    assert x.to(x) is x
    assert x.float() is x
    assert x.contiguous() is x
    assert x.to(device, copy=True) is not x
    assert x.cpu().device.type == "cpu"
    assert (x.is_cpu, x.cpu().is_cpu, x.get_device(), x.layout) == (False, True, device.index, torch.strided)
    m = torch.nn.BatchNorm1d(3).to(device, torch.float64)
    assert (m.running_mean.dtype, m.num_batches_tracked.dtype, m.weight.device) == (torch.float64, torch.int64, device)
    with torch.device(device):
        assert torch.ones(2).device == device
        assert torch.nn.Linear(2, 2).bias.device == device


def test_devices_are_not_mixed_in_silence(device: torch.device) -> None:
    x, y = torch.ones(3, device=device), torch.ones(3)
    for fn in (
        lambda: x + y, lambda: x @ y, lambda: torch.cat([x, y]), lambda: x.mul_(y), lambda: torch.where(x > 0, x, y),
        lambda: y.add_(x),
        lambda: torch.nn.functional.linear(x, torch.ones(2, 3)), lambda: torch.stack([y, x]),
        lambda: torch.add(x, x, out=y), lambda: y[x.long()],
        lambda: torch.nn.functional.mse_loss(x, y), lambda: x.lerp(y, 0.5), lambda: torch.maximum(y, x),
        lambda: x.masked_fill_(y > 0, 1.0),
    ):  # fmt: skip
        with pytest.raises((RuntimeError, ValueError)):
            fn()
    assert (x + torch.tensor(2.0)).tolist() == [3.0] * 3
    assert torch.where(x > 0, x, torch.tensor(0.0)).device == device
    x[0] = torch.tensor(9.0)
    x[1:] = torch.tensor([4.0, 5.0])
    y[:] = x
    assert x.tolist() == y.tolist() == [9.0, 4.0, 5.0]


# -- random numbers ------------------------------------------------------------------------------------------------
def test_seeds_and_generators(device: torch.device) -> None:
    def draw(**given: Any) -> list[torch.Tensor]:
        return [
            torch.rand(5, device=device, **given), torch.randn(3, device=device, **given),
            torch.randint(0, 99, (4,), device=device, **given),
            torch.randperm(6, device=device, **given), torch.empty(4, device=device).exponential_(1, **given),
            torch.bernoulli(torch.full((9,), 0.5, device=device), **given),
            torch.multinomial(torch.ones(9, device=device), 4, **given),
            torch.normal(torch.zeros(3, device=device), 1.0, **given),
        ]  # fmt: skip

    g = torch.Generator(device=device).manual_seed(11)
    first = draw(generator=g)
    state = g.get_state()
    second = draw(generator=g)
    g.manual_seed(11)
    assert_close(draw(generator=g), first, rtol=0, atol=0)
    g.set_state(state)
    assert_close(draw(generator=g), second, rtol=0, atol=0)
    assert not torch.equal(first[0], second[0])
    torch.manual_seed(4)
    third = draw()
    torch.manual_seed(4)
    g.manual_seed(123)  # its own stream: the default one does not notice
    assert_close(draw(), third, rtol=0, atol=0)
    drawn = torch.rand(1000, device=device)
    assert 0 <= drawn.min().item() <= drawn.max().item() < 1
    assert sorted(torch.randperm(50, device=device).tolist()) == list(range(50))
    assert set(torch.randint(3, 6, (200,), device=device).tolist()) == {3, 4, 5}
    assert set(torch.multinomial(torch.tensor([0.0, 1, 0, 2], device=device), 100, True).tolist()) == {1, 3}


def test_dropout_drops_the_same_forwards_and_backwards(device: torch.device) -> None:
    x = torch.ones(1000, device=device, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert_close(x.grad, y.detach(), rtol=0, atol=0)
    kept = y.detach().ne(0).float().mean().item()
    assert 0.65 < kept < 0.85
    assert set(y.detach().unique().cpu().mul(3).round().tolist()) == {0.0, 4.0}


# -- gradient scaling, versions, warnings --------------------------------------------------------------------------
def test_scaled_training_skips_steps_that_overflow(device: torch.device) -> None:
    w = torch.ones(2, device=device, requires_grad=True)
    opt, scaler = torch.optim.SGD([w], lr=0.5), torch.amp.GradScaler(device.type, init_scale=4.0, growth_interval=1)
    for factor, moves in ((1.0, True), (float("inf"), False), (1.0, True)):
        before = w.detach().clone()
        opt.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(opt)
        scaler.update()
        assert torch.equal(before, w.detach()) is not moves
    assert scaler.get_scale() == 8.0
    assert w.tolist() == [0.0, 0.0]


def test_versions_count_every_write(device: torch.device) -> None:
    x = torch.ones(4, device=device)
    view = x[1:]
    for write in (
        lambda: x.add_(1), lambda: view.mul_(2), lambda: x.__setitem__(0, 5.0), lambda: torch.add(x, 1, out=x),
        lambda: x.copy_(torch.ones(4)),
        lambda: torch._foreach_add_([x], 1.0), lambda: x.index_put_((torch.tensor([0], device=device),),
        torch.tensor(1.0, device=device)),
        lambda: x.zero_(), lambda: x.normal_(), lambda: x.masked_fill_(x > 0, 2.0), lambda: x.t_(),
        lambda: x.clamp_(0, 1), lambda: x.relu_(),
    ):  # fmt: skip
        before = x._version
        write()
        assert x._version > before
        assert view._version == x._version


def test_ordinary_use_warns_of_nothing(device: torch.device) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
        ).to(device)
        opt = torch.optim.AdamW(m.parameters(), foreach=True)
        m(rnd(device, 2, 1, 8, 8)).square().mean().backward()
        opt.step()
        assert "npu" in repr(m[0].weight)
        assert torch.utils.data.default_collate([m[0].bias.detach()] * 2).shape == (2, 4)
