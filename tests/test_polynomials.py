"""Orthogonal polynomials against the CPU: all degrees that take another way, inside, at and beyond the ends."""

from __future__ import annotations

import pytest
import torch

NAMES = [
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
]  # fmt: skip
POINTS = torch.cat([
    torch.linspace(-1.5, 1.5, 61), torch.tensor([-0.0, 1e-20, 0.999999, -0.999999, float("inf")])
])  # fmt: skip


@pytest.mark.device
@pytest.mark.parametrize("name", NAMES)
def test_values(device: torch.device, name: str) -> None:
    fn = getattr(torch.special, name)
    degrees = torch.tensor([-3.0, -0.5, 0, 1, 2, 3.7, 5, 6, 7, 8, 9, 12, 30])[:, None]
    want = fn(POINTS.double(), degrees.double())
    got = fn(POINTS.double().to(device), degrees.double().to(device)).cpu()
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9, equal_nan=True)
    single = fn(POINTS.to(device), degrees.to(device)).cpu()
    # float32: rounding grows with the degree; the CPU's own float32 results are as far from float64
    near = (fn(POINTS, degrees).double() - want).abs().nan_to_num(0, 0, 0).amax(1, keepdim=True)
    far = (single.double() - want).abs()
    same = (single.double() == want) | (single.isnan() & want.isnan()) | want.isinf()
    assert torch.all(same | (far <= 4 * near + 2e-6 + 2e-5 * want.abs())), name


@pytest.mark.device
@pytest.mark.parametrize("name", NAMES)
def test_numbers_in_the_place_of_tensors(device: torch.device, name: str) -> None:
    fn = getattr(torch.special, name)
    x, n = torch.linspace(-0.9, 0.9, 7), torch.arange(7)
    for here, there in (((x, 4), (x.to(device), 4)), ((0.3, n), (0.3, n.to(device)))):
        torch.testing.assert_close(fn(*there).cpu(), fn(*here), rtol=2e-5, atol=2e-5)


def test_nan_stays(device: torch.device) -> None:
    x, n = torch.full((4,), float("nan"), device=device), torch.tensor([1, 2, 8, 20], device=device)
    assert torch.special.legendre_polynomial_p(x, n).isnan().all()
    assert torch.special.chebyshev_polynomial_u(x, n).isnan().all()


def test_a_degree_that_is_no_number(device: torch.device) -> None:
    n = torch.tensor([float("nan"), float("inf"), -float("inf")], device=device)
    got = torch.special.hermite_polynomial_h(torch.ones(3, device=device), n)
    torch.testing.assert_close(got.cpu(), torch.zeros(3))
