"""Distances between rows against the CPU, forward and backward."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_same

NORMS = [0.0, 0.7, 1.0, 1.5, 2.0, 3.0, float("inf")]


@pytest.mark.parametrize("p", NORMS)
def test_cdist(device: torch.device, p: float) -> None:
    for shape, other in (((5, 7), (6, 7)), ((2, 1, 40, 3), (3, 33, 3)), ((4, 65), (1, 65))):
        x, z = torch.randn(shape, requires_grad=True), torch.randn(other, requires_grad=True)
        assert_same(lambda x, z: torch.cdist(x, z, p=p), x, z, device=device, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("p", NORMS)
def test_pdist(device: torch.device, p: float) -> None:
    for shape in ((6, 4), (2, 70), (40, 1)):
        x = torch.randn(shape, requires_grad=True)
        assert_same(lambda x: torch.nn.functional.pdist(x, p=p), x, device=device, rtol=2e-5, atol=2e-5)


def test_rows_that_coincide_have_no_gradient(device: torch.device) -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 2.0]], requires_grad=True)
    for p in NORMS:
        assert_same(lambda x, p=p: torch.nn.functional.pdist(x, p=p), x, device=device)
        assert_same(lambda x, p=p: torch.cdist(x, x.detach(), p=p), x, device=device)


def test_nan_and_infinity(device: torch.device) -> None:
    x = torch.tensor([[1.0, float("nan")], [float("inf"), 2.0], [3.0, 2.0]])
    for p in NORMS[:-1]:
        assert_same(lambda x, p=p: torch.cdist(x, x.flip(0).contiguous(), p=p), x, device=device)
    # the CPU's vectors keep a NaN here, its scalars do not
    got = torch.cdist(x.to(device), x[2:].to(device), p=float("inf")).cpu()
    torch.testing.assert_close(got, torch.tensor([[float("nan")], [float("inf")], [0.0]]), equal_nan=True)


def test_close_rows_are_told_apart(device: torch.device) -> None:
    x = 1000 + torch.rand(64, 8)
    exact = "donot_use_mm_for_euclid_dist"
    got = torch.cdist(x.to(device), x.to(device), compute_mode=exact).cpu()
    want = torch.cdist(x.double(), x.double(), compute_mode=exact)
    torch.testing.assert_close(got, want.float(), rtol=1e-5, atol=1e-5)


def test_nothing(device: torch.device) -> None:
    for rows, columns, width in ((0, 3, 2), (3, 0, 2), (3, 2, 0)):
        x, z = torch.randn(rows, width), torch.randn(columns, width)
        assert_same(torch.cdist, x, z, device=device)
    assert_same(torch.nn.functional.pdist, torch.randn(1, 3), device=device)
    assert_same(torch.nn.functional.pdist, torch.randn(3, 0), device=device)
