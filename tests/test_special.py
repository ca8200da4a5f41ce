"""Special functions and orthogonal polynomials against float64 on the CPU, over their whole range."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

SPECIAL = torch.special
_ENDS = [float("inf"), -float("inf"), float("nan")]
EDGES = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1e-3, 0.5, 1.0, -1.0, 2.0, 5.0, 8.0, *_ENDS])
WAVES = ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0", "airy_ai"]
DECAYING = ["modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1"]
GROWING = ["modified_bessel_i0", "modified_bessel_i1"]


def sweep(low: float, high: float, count: int = 4001) -> torch.Tensor:
    """Numbers of the range, and some that are very small."""
    return torch.cat([torch.linspace(low, high, count), torch.logspace(-30, 0, 61), -torch.logspace(-30, 0, 61)])


def check(
    fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, device: torch.device, rtol: float, atol: float
) -> None:
    """float32 and float64 results on the device are those of float64 on the CPU."""
    want = fn(x.double())
    torch.testing.assert_close(fn(x.to(device)).cpu(), want.float(), rtol=rtol, atol=atol, equal_nan=True)
    torch.testing.assert_close(fn(x.double().to(device)).cpu(), want, rtol=1e-11, atol=1e-13, equal_nan=True)


@pytest.mark.device
@pytest.mark.parametrize("name", WAVES)
def test_functions_that_oscillate(device: torch.device, name: str) -> None:
    # float32 holds a large x to 1e-7 x only: what its neighbours differ by is no error
    check(getattr(SPECIAL, name), sweep(-20, 20), device, 1e-5, 2e-6)


@pytest.mark.device
@pytest.mark.parametrize("name", DECAYING)
def test_functions_that_decay(device: torch.device, name: str) -> None:
    check(getattr(SPECIAL, name), sweep(-1, 40), device, 2e-5, 1e-36)


@pytest.mark.device
@pytest.mark.parametrize("name", GROWING)
def test_functions_that_grow(device: torch.device, name: str) -> None:
    check(getattr(SPECIAL, name), sweep(-60, 60), device, 2e-5, 1e-36)


@pytest.mark.device
@pytest.mark.parametrize("name", [*WAVES, *DECAYING, *GROWING])
def test_edges(device: torch.device, name: str) -> None:
    fn = getattr(SPECIAL, name)
    want = fn(EDGES)
    torch.testing.assert_close(fn(EDGES.to(device)).cpu(), want, rtol=1e-5, atol=1e-6, equal_nan=True)
    whole = torch.arange(-3, 9)
    torch.testing.assert_close(fn(whole.to(device)).cpu(), fn(whole), rtol=1e-5, atol=1e-6, equal_nan=True)


def test_a_large_argument_keeps_its_phase(device: torch.device) -> None:
    x = torch.tensor([1e3, 12345.0, 5e5])
    for name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"):
        fn = getattr(SPECIAL, name)
        torch.testing.assert_close(fn(x.to(device)).cpu(), fn(x.double()).float(), rtol=1e-4, atol=1e-8)
