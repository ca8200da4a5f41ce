"""Derivatives of gamma and Dirichlet samples by their parameters against closed forms and finite differences."""

from __future__ import annotations

import pytest
import torch

KINDS = pytest.mark.parametrize(
    ("dtype", "rtol"), [(torch.float64, 1e-6), (torch.float32, 2e-4)], ids=["float64", "float32"]
)


@KINDS
def test_gamma(device: torch.device, dtype: torch.dtype, rtol: float) -> None:
    a = torch.logspace(-1, 3, 21, dtype=torch.float64)[:, None]
    # differences are exact to 1e-7 where torch's gammainc does not change its method (x = 0.7 a)
    x = torch.cat([a * torch.tensor([0.3, 0.75, 0.95, 1.0, 1.1, 1.4, 2.0]), a + 0.3], 1)
    a, h, special = a.expand(x.shape), 1e-5 * a, torch.special
    lower = (special.gammainc(a + h, x) - special.gammainc(a - h, x)) / (2 * h)
    upper = (special.gammaincc(a - h, x) - special.gammaincc(a + h, x)) / (2 * h)
    slope = torch.where(special.gammainc(a, x) < 0.5, lower, upper)
    log_density = (a - 1) * x.log() - x - torch.lgamma(a)
    want, inside = -slope / log_density.exp(), log_density > -25
    got = torch._standard_gamma_grad(a.to(dtype).to(device), x.to(dtype).to(device)).cpu().double()
    torch.testing.assert_close(got[inside], want[inside], rtol=rtol, atol=0)


@KINDS
def test_beta(device: torch.device, dtype: torch.dtype, rtol: float) -> None:
    # the distribution function of Beta(a, 1) is x^a
    x, a = torch.linspace(0.02, 0.98, 25, dtype=torch.float64), torch.logspace(-1, 1, 9, dtype=torch.float64)[:, None]
    a, x = a.expand(9, 25), x.expand(9, 25)
    want = -x * x.log() / a / (1 - x)
    got = torch._dirichlet_grad(*(t.to(dtype).to(device) for t in (x, a, a + 1))).cpu().double()
    torch.testing.assert_close(got, want, rtol=rtol, atol=0)


def test_samples_have_gradients(device: torch.device) -> None:
    for make in (torch.distributions.Dirichlet, lambda c: torch.distributions.Gamma(c, torch.ones_like(c))):
        concentration = torch.tensor([0.4, 3.0, 20.0], device=device, requires_grad=True)
        sample = make(concentration).rsample()
        (grad,) = torch.autograd.grad(sample[1], concentration)
        assert grad.isfinite().all()
        assert grad[1] > 0


def test_ends(device: torch.device) -> None:
    one, zero = torch.ones(1, device=device), torch.zeros(1, device=device)
    torch.testing.assert_close(torch._standard_gamma_grad(one, zero).cpu(), torch.zeros(1))
    want = torch._dirichlet_grad(torch.ones(1), torch.full((1,), 0.3), torch.ones(1))
    torch.testing.assert_close(torch._dirichlet_grad(one, 0.3 * one, one).cpu(), want, rtol=1e-3, atol=1e-3)
