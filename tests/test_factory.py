"""Factories against the CPU: values, dtypes, strides and the device of the result."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import torch_fl

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
DTYPES = [None, *FLOATS, *INTS]


def _same(make: Callable[[Any], torch.Tensor], device: torch.device) -> None:
    want = make("cpu")
    for _ in range(2):  # the second call replays the plan
        got = make(device)
        assert got.device == device
        assert got.requires_grad == want.requires_grad
        assert_close(got.detach().cpu(), want.detach(), check_stride=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "args", [(5,), (2, 9), (0, 10, 3), (10, 0, -3), (0.5, 5.5, 0.25), (1, 1), (5.7,), (0, 1.2, 0.1), (-3, 120, 1)]
)
def test_arange(args: tuple[float, ...], dtype: Any, device: torch.device) -> None:
    if dtype == torch.int64 and args[-1] in (0.1, 0.25):
        pytest.skip("int64 counts in whole steps, this one is 0")
    _same(lambda d: torch.arange(*args, dtype=dtype, device=d), device)


def test_long_arange(device: torch.device) -> None:
    for dtype in (torch.int64, torch.float32, torch.float64):
        _same(lambda d, dtype=dtype: torch.arange(-7, 100_003, 3, dtype=dtype, device=d), device)
    _same(lambda d: torch.arange(2**53, 2**53 + 5, device=d), device)


@pytest.mark.parametrize("args", [(0, 5, 0), (0, 5, -1), (5, 0, 1), (0, float("inf"), 1), (0, float("nan"), 1)])
def test_arange_refuses(args: tuple[float, ...], device: torch.device) -> None:
    with pytest.raises(RuntimeError) as want:
        torch.arange(*args)
    with pytest.raises(RuntimeError) as found:
        torch.arange(*args, device=device)
    assert str(found.value) == str(want.value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "args", [(0, 10, 5), (4.3, -3, 50), (-3, 3.5, 100), (5, 5, 3), (1, 2, 1), (1, 2, 0), (10, 0, 11)]
)
def test_linspace(args: tuple[Any, ...], dtype: Any, device: torch.device) -> None:
    _same(lambda d: torch.linspace(*args, dtype=dtype, device=d), device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("args", [(0, 2, 5), (-1, 1.5, 20), (1, 2, 1), (0, 1, 0)])
def test_logspace(args: tuple[Any, ...], dtype: Any, device: torch.device) -> None:
    _same(lambda d: torch.logspace(*args, dtype=dtype, device=d), device)
    _same(lambda d: torch.logspace(*args, base=2.0, dtype=dtype, device=d), device)


def test_ends_in_tensors(device: torch.device) -> None:
    _same(lambda d: torch.linspace(torch.tensor(0.0, device=d), torch.tensor(4.0, device=d), 5, device=d), device)


@pytest.mark.parametrize("size", [(3,), (2, 5), (5, 2), (0, 3), (1,)])
def test_eye(size: tuple[int, ...], device: torch.device) -> None:
    for dtype in (None, torch.int64, torch.bool, torch.float16):
        _same(lambda d, dtype=dtype: torch.eye(*size, dtype=dtype, device=d), device)


def test_triangles(device: torch.device) -> None:
    for rows, columns, diagonal in itertools.product((0, 1, 3, 5), (0, 1, 4, 6), (-7, -2, -1, 0, 1, 2, 5, 9)):
        for make in (torch.tril_indices, torch.triu_indices):
            want = make(rows, columns, diagonal)
            assert_close(make(rows, columns, diagonal, device=device).cpu(), want)
    assert torch.tril_indices(3, 3, dtype=torch.int32, device=device).dtype == torch.int32
    with pytest.raises(RuntimeError, match="row must be non-negative"):
        torch.tril_indices(-1, 3, device=device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants(dtype: Any, device: torch.device) -> None:
    makers: list[Callable[[Any], torch.Tensor]] = [
        lambda d: torch.zeros(2, 3, dtype=dtype, device=d),
        lambda d: torch.ones(2, 3, dtype=dtype, device=d),
        lambda d: torch.full((2, 3), 2.5, dtype=dtype, device=d),
        lambda d: torch.full((), 3, dtype=dtype, device=d),
        lambda d: torch.scalar_tensor(3, dtype=dtype, device=d),
        lambda d: torch.zeros_like(torch.empty(2, 3, dtype=dtype, device=d).t()),
        lambda d: torch.ones_like(torch.empty(2, 3, device=d), dtype=dtype),
        lambda d: torch.full_like(torch.empty(2, 3, device=d), 7, dtype=dtype),
        lambda d: torch.empty(2, device=d).new_full((3,), 7, dtype=dtype),
        lambda d: torch.empty(2, device=d).new_zeros((3,), dtype=dtype),
        lambda d: torch.empty(2, device=d).new_ones((3,), dtype=dtype),
        lambda d: torch.empty(2, device=d).new_empty((3,), dtype=dtype).zero_(),
        lambda d: torch.empty(2, device=d).new_empty_strided((2, 3), (1, 2), dtype=dtype).zero_(),
        lambda d: torch.empty(2, device=d).new_tensor([1, 2], dtype=dtype),
        lambda d: torch.tensor([[1, 2], [3, 4]], dtype=dtype, device=d),
        lambda d: torch.as_tensor([1, 2], dtype=dtype, device=d),
        lambda d: torch.asarray([1, 2], dtype=dtype, device=d),
        lambda d: torch.empty_permuted((2, 3, 4), (1, 0, 2), dtype=dtype, device=d).zero_(),
    ]
    for make in makers:
        _same(make, device)


def test_from_numpy(device: torch.device) -> None:
    for array in (np.arange(3), np.ones((2, 3), np.float32), np.array(True)):
        _same(lambda d, array=array: torch.as_tensor(array, device=d), device)
        _same(lambda d, array=array: torch.asarray(array, device=d), device)
        _same(lambda d, array=array: torch.from_numpy(array).to(d), device)


def test_requires_grad(device: torch.device) -> None:
    _same(lambda d: torch.zeros(3, device=d, requires_grad=True), device)
    _same(lambda d: torch.tensor([1.0], device=d, requires_grad=True), device)
    _same(lambda d: torch.linspace(0, 1, 3, device=d, requires_grad=True), device)
    assert torch.rand(3, device=device, requires_grad=True).is_leaf


def test_out_forms(device: torch.device) -> None:
    _same(lambda d: torch.arange(5, out=torch.empty(0, device=d)), device)
    _same(lambda d: torch.arange(6, out=torch.empty(2, 3, device=d)), device)
    _same(lambda d: torch.arange(0, 6, out=torch.empty(3, 2, device=d).t()), device)
    _same(lambda d: torch.linspace(0, 1, 6, out=torch.empty(0, device=d)), device)
    _same(lambda d: torch.logspace(0, 1, 6, out=torch.empty(6, device=d)), device)
    _same(lambda d: torch.eye(3, out=torch.empty(0, device=d)), device)
    _same(lambda d: torch.eye(3, 2, out=torch.empty(0, device=d)), device)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows(name: str, device: torch.device) -> None:
    make = getattr(torch, f"{name}_window")
    _same(lambda d: make(10, device=d), device)
    _same(lambda d: make(7, periodic=False, device=d), device)


def test_default_device(device: torch.device) -> None:
    with torch.device(device):
        made = [torch.arange(3), torch.zeros(3), torch.tensor([1.0]), torch.rand(2), torch.eye(2)]
        layer = torch.nn.Linear(2, 2)
    torch.set_default_device(device)
    try:
        made += [torch.linspace(0, 1, 3), torch.randn(2), torch.full((2,), 3), torch.as_tensor([1])]
    finally:
        torch.set_default_device(None)
    assert {t.device for t in [*made, layer.weight]} == {device}
    assert torch.zeros(1).device == torch.device("cpu")
    assert torch.zeros(1, device="npu").device == torch.device("npu", torch.npu.current_device())


@pytest.mark.parametrize("make", [torch.ones_like, torch.zeros_like])
def test_likes_are_one_op_where_the_tensor_is(device: torch.device, make: Any) -> None:
    x = torch.randn(3, 4, 5).to(device).permute(2, 0, 1)
    with torch_fl.trace() as seen:
        found = make(x)
    assert [r.route for r in seen] == ["portable"]
    assert found.stride() == x.stride()
    torch.testing.assert_close(found.cpu(), make(x.cpu()))
    assert make(x, device="cpu").device.type == "cpu"
    assert make(x, dtype=torch.int64, memory_format=torch.contiguous_format).stride() == (12, 4, 1)


@pytest.mark.parametrize(
    "make", [torch.empty, torch.zeros, torch.rand, lambda s, device: torch.ones(1, device=device).new_empty(s)]
)
def test_a_negative_size_is_refused_beside_a_size_of_zero(make: Any, device: torch.device) -> None:
    with pytest.raises(RuntimeError, match=r"negative"):
        make((0, -2), device=device)
