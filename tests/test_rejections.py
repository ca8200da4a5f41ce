"""Calls that torch refuses: the exception of its CPU in type and words, at once or at the next read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torch_fl import rejection
from torch_fl.errors import LateError

Call = Callable[[Any], Any]


def _error(call: Call, device: Any) -> Exception:
    try:
        result = call(lambda *data, **options: torch.tensor(*data, **options).to(device))
        result.cpu()
    except Exception as error:  # noqa: BLE001 - the subject
        return error
    raise AssertionError(f"accepted on {device}: {result}")


AT_ONCE: dict[str, Call] = {
    "broadcast": lambda t: t([1.0, 2.0]) + t([1.0, 2.0, 3.0]),
    "mm": lambda t: t([[1.0, 2.0]]) @ t([[1.0, 2.0]]),
    "dot": lambda t: torch.dot(t([1.0, 2.0]), t([1, 2])),
    "cat": lambda t: torch.cat([t([1.0]), t([[1.0]])]),
    "amax": lambda t: t([[]]).amax(1),
    "embedding": lambda t: F.embedding(t([0]), t([1.0])),
    "convolution": lambda t: F.conv1d(t([[[1.0, 2.0]]]), t([[[1.0]]]), dilation=0),
    "bias": lambda t: F.conv1d(t([[[1.0, 2.0]]]), t([[[1.0]]]), t([1.0, 2.0])),
    "dtype of statistics": lambda t: F.batch_norm(t([[1.0], [2.0]]), t([1]), t([1])),
    "index_copy": lambda t: t([1.0, 2.0]).index_copy(0, t([0]), t([1])),
    "masked_fill": lambda t: t([1.0]).masked_fill(t([True]), t([1.0])),
    "uniform_": lambda t: t([1.0]).uniform_(3, -1),
    "leaf": lambda t: t([1.0]).requires_grad_().add_(1),
    "integers": lambda t: t([1]).requires_grad_(),
    "expanded": lambda t: t([1.0]).expand(3).add_(1),
    "overlapping out": lambda t: torch.cumsum(t([1.0, 2.0]).expand(2, 2), 0, out=t([1.0, 2.0]).expand(2, 2)),
    "out= dtype": lambda t: torch.add(t([1.0]), t([1.0]), out=t([1])),
    "gather out=": lambda t: (lambda i: torch.gather(i, 0, i, out=i))(t([0, 1])),
    "dim": lambda t: t([3.0, 1.0]).sort(7)[0],
    "number zero": lambda t: t([5]) // 0,
    "remainder of zero": lambda t: t([5]) % 0,
    "bincount": lambda t: torch.bincount(t([-1])),
    "repeats": lambda t: torch.repeat_interleave(t([-1])),
    "powers": lambda t: t([2]).pow(-1),
}


@pytest.mark.parametrize("name", AT_ONCE)
def test_the_error_is_the_cpus(device: torch.device, name: str, allow_fallback: None) -> None:
    want, got = _error(AT_ONCE[name], "cpu"), _error(AT_ONCE[name], device)
    assert type(got) is type(want)
    assert str(got) == str(want)


LATE: dict[str, Call] = {
    "gather": lambda t: t([[1.0, 2.0]]).gather(1, t([[7]])),
    "scatter": lambda t: t([1.0, 2.0]).scatter(0, t([7]), 1.0),
    "take": lambda t: t([1.0, 2.0]).take(t([-9])),
    "index": lambda t: t([[1.0, 2.0]])[t([0]), t([7])],
    "index_put": lambda t: t([1.0, 2.0]).index_put((t([7]),), t([1.0])),
    "index_add": lambda t: t([[1.0, 2.0]]).index_add(1, t([7]), t([[1.0]])),
    "index_copy": lambda t: t([[1.0, 2.0]]).index_copy(1, t([7]), t([[1.0]])),
    "embedding": lambda t: F.embedding(t([7]), t([[1.0]])),
    "nll_loss": lambda t: F.nll_loss(t([[1.0, 2.0]]), t([5])),
    "div": lambda t: torch.div(t([5]), t([0]), rounding_mode="trunc"),
    "floor_divide": lambda t: t([5, 6]) // t([1, 0]),
    "%": lambda t: t([5], dtype=torch.uint8) % t([0], dtype=torch.uint8),
    "fmod": lambda t: torch.fmod(t([[5, 5]]), t([[1], [0]])),
}


@pytest.mark.parametrize("name", LATE)
def test_values_that_only_a_kernel_sees(device: torch.device, name: str) -> None:
    want, got = _error(LATE[name], "cpu"), _error(LATE[name], device)
    assert isinstance(got, LateError)
    assert isinstance(got, type(want))
    assert str(got).split("\n")[0] == str(want)
    assert torch.ones(1).to(device).cpu() == 1, "told once"


def test_division_without_elements_or_of_floats_is_no_error(device: torch.device) -> None:
    zero = torch.zeros(1, dtype=torch.int64).to(device)
    assert (zero[:0] // zero).cpu().numel() == 0
    assert (zero[:0] // 0).cpu().numel() == 0
    assert (torch.ones(1).to(device) // zero).cpu() == float("inf")


def test_mixed_devices(device: torch.device) -> None:
    x = torch.ones(2).to(device)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + torch.ones(3)


def test_generators_of_another_device(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="device type for generator"):
        torch.randn(2, device=device, generator=torch.Generator())


def test_numbers_of_the_host_are_the_same_after_an_error(device: torch.device) -> None:
    x = torch.ones(3).to(device)
    torch.manual_seed(5)
    want = torch.rand(2)
    torch.manual_seed(5)
    with pytest.raises(RuntimeError):
        x.uniform_(3, -1)
    assert torch.equal(torch.rand(2), want)


def test_a_call_that_only_the_meta_kernel_refuses_runs(device: torch.device, allow_fallback: None) -> None:
    a, b = torch.ones(2, 3, 4), torch.ones(4, 5)
    want = torch.matmul(a, b, out=torch.empty(2, 3, 5))
    got = torch.matmul(a.to(device), b.to(device), out=torch.empty(2, 3, 5).to(device))
    torch.testing.assert_close(got.cpu(), want)


def test_large_arguments_are_not_copied(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection, "MOST_BYTES", 8)
    small, large = torch.ones(1).to(device), torch.ones(64).to(device)
    assert "lambda=0.0" not in str(_error(lambda t: small.exponential_(0.0), device))
    with pytest.raises(RuntimeError, match=r"lambda=0\.0"):
        large.exponential_(0.0)


def test_tensors_that_went_over_can_still_be_resized(device: torch.device) -> None:
    x = torch.ones(3)
    y = x.to(device).cpu()
    assert x.resize_(100).numel() == y.resize_(100).numel() == 100
