"""F.embedding_bag and max_norm against the CPU, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same

INDICES = torch.tensor([1, 2, 4, 1, 0, 2, 2])
OFFSETS = torch.tensor([0, 2, 2, 5])


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(device: torch.device, mode: Any, options: Any) -> None:
    for width in (3, 40):
        weight = torch.randn(6, width, requires_grad=True)
        assert_same(
            lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, **options), weight, INDICES, OFFSETS, device=device
        )


def test_gradient_by_frequency(device: torch.device) -> None:
    # not against the CPU's embedding_bag: it divides by the frequency of another index
    grad = torch.randn(2, 3)
    indices, weight = torch.tensor([[4, 2, 2], [1, 2, 0]]), torch.randn(5, 3, requires_grad=True)
    rows = F.embedding(indices, weight, scale_grad_by_freq=True)
    (want,) = torch.autograd.grad(rows.sum(1), weight, grad)
    there = weight.detach().to(device).requires_grad_()
    F.embedding_bag(indices.to(device), there, mode="sum", scale_grad_by_freq=True).backward(grad.to(device))
    assert there.grad is not None
    torch.testing.assert_close(there.grad.cpu(), want)


def test_rows_of_a_matrix_are_bags(device: torch.device) -> None:
    weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    indices = torch.tensor([[0, 1], [4, 4], [3, 0]], dtype=torch.int32)
    assert_same(lambda w, i: F.embedding_bag(i, w), weight, indices, device=device)


def test_last_offset_and_factors(device: torch.device) -> None:
    weight, factors = torch.randn(5, 4, requires_grad=True), torch.randn(7, requires_grad=True)
    offsets = torch.tensor([0, 2, 2, 7])

    def run(w: torch.Tensor, f: torch.Tensor, padding: int) -> torch.Tensor:
        where = w.device
        options: Any = {"mode": "sum", "include_last_offset": True, "padding_idx": padding}
        return F.embedding_bag(INDICES.to(where), w, offsets.to(where), per_sample_weights=f, **options)

    for padding in (0, 2):
        assert_same(lambda w, f, p=padding: run(w, f, p), weight, factors, device=device)


def test_halves_are_summed_in_float32(device: torch.device) -> None:
    weight = torch.full((1, 3), 0.1, dtype=torch.float16)
    got = F.embedding_bag(torch.zeros(1, 4096, dtype=torch.int64, device=device), weight.to(device), mode="sum").cpu()
    torch.testing.assert_close(got, (weight.float() * 4096).half())


def test_index_out_of_bounds(device: torch.device) -> None:
    weight = torch.randn(3, 2, device=device)
    with pytest.raises(IndexError):
        F.embedding_bag(torch.tensor([[0, 3]], device=device), weight).cpu()


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_renorm(device: torch.device, p: float) -> None:
    weight = torch.randn(6, 5) * torch.tensor([[0.1], [3], [1], [5], [0.2], [4]])
    indices = torch.tensor([[3, 3], [0, 1]])
    there = weight.to(device)
    want = F.embedding(indices, weight, max_norm=1.5, norm_type=p)
    got = F.embedding(indices.to(device), there, max_norm=1.5, norm_type=p)
    torch.testing.assert_close(got.cpu(), want)
    torch.testing.assert_close(there.cpu(), weight)


@pytest.mark.parametrize("bad", [-1, 6])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_wrong_index_is_an_error(mode: str, bad: int, device: torch.device) -> None:
    table = torch.ones(6, 3, device=device)
    with pytest.raises((IndexError, RuntimeError)):
        torch.nn.functional.embedding_bag(torch.tensor([[0, bad]], device=device), table, mode=mode).cpu()
