"""Fourier transforms: lengths of every kind, dimensions, normalizations, accuracy, gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from conftest import assert_same

LENGTHS = (1, 2, 3, 4, 5, 8, 12, 30, 61, 64, 67, 134, 1000)
"""Small radices alone and mixed, the largest prime with passes of its own, and primes that need a convolution."""
ALL_LENGTHS = (6, 13, 16, 17, 49, 97, 100, 128, 256, 1009, 2310, 4096, 65536)


def _error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return ((got.cpu().to(exact.dtype) - exact).abs().max() / exact.abs().max()).item()


def _check(device: torch.device, n: int, dtype: torch.dtype) -> None:
    """Forward, inverse, real and Hermitian lines, against float64, which has rounding errors of its own."""
    x, z = torch.randn(2, n, dtype=dtype), torch.randn(2, n // 2 + 1, dtype=dtype.to_complex())
    bound = (4 if dtype == torch.float32 else 8) * torch.finfo(dtype).eps
    wide, wide_z = x.double(), z.to(torch.complex128)
    assert _error(torch.fft.fft(x.to(device)), torch.fft.fft(wide)) < bound
    assert _error(torch.fft.ifft(torch.fft.fft(x.to(device))), wide + 0j) < 2 * bound
    assert _error(torch.fft.rfft(x.to(device)), torch.fft.rfft(wide)) < bound
    assert _error(torch.fft.irfft(z.to(device), n=n), torch.fft.irfft(wide_z, n=n)) < bound


@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(device: torch.device, n: int) -> None:
    _check(device, n, torch.float32)


@pytest.mark.device
@pytest.mark.parametrize("n", [*LENGTHS, *ALL_LENGTHS])
def test_all_lengths_in_float64(device: torch.device, n: int) -> None:
    _check(device, n, torch.float64)


@pytest.mark.device
@pytest.mark.parametrize("n", ALL_LENGTHS)
def test_all_lengths(device: torch.device, n: int) -> None:
    _check(device, n, torch.float32)


TRANSFORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fftn": torch.fft.fftn,
    "fft of a middle dimension": lambda x: torch.fft.fft(x, dim=1, norm="ortho"),
    "ifft2 of a real tensor": lambda x: torch.fft.ifft2(x, dim=(0, 2), norm="forward"),
    "rfftn": lambda x: torch.fft.rfftn(x, dim=(2, 0), norm="forward"),
    "irfftn": lambda x: torch.fft.irfftn(torch.fft.rfftn(x), s=x.shape),
    "hfft": lambda x: torch.fft.hfft(torch.fft.ihfft(x, dim=0), n=x.shape[0], dim=0),
    "padded and cut": lambda x: torch.fft.rfft2(x, s=(9, 3)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_values_layouts_and_gradients(device: torch.device, name: str) -> None:
    x = torch.randn(4, 6, 5, dtype=torch.float64)
    for layout in (x, x.transpose(0, 2)):
        assert_same(lambda x: TRANSFORMS[name](x).resolve_conj(), layout.requires_grad_(), device=device)


def test_a_line_and_its_shift(device: torch.device) -> None:
    """Shifting a line turns its spectrum: no table is off by one."""
    x = torch.randn(67, dtype=torch.float64, device=device)
    turn = torch.polar(torch.ones(67, dtype=torch.float64), -2 * torch.pi * torch.arange(67, dtype=torch.float64) / 67)
    torch.testing.assert_close(torch.fft.fft(x.roll(1)), torch.fft.fft(x) * turn.to(device))


def test_out(device: torch.device) -> None:
    x = torch.randn(3, 8, dtype=torch.complex64)
    wide = torch.zeros(3, 16, dtype=torch.complex64, device=device)
    torch.fft.fft(x.to(device), out=wide[:, ::2])
    torch.testing.assert_close(wide[:, ::2].cpu(), torch.fft.fft(x))
    assert not wide[:, 1::2].cpu().any()
    there = x.to(device)
    torch.fft.fft(there, out=there)
    torch.testing.assert_close(there.cpu(), torch.fft.fft(x))


def test_short_time_spectra_and_back(device: torch.device) -> None:
    x, window = torch.randn(2, 300, requires_grad=True), torch.hann_window(64)

    def spectra(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, 64, 16, window=window, return_complex=True)

    assert_same(spectra, x, window, device=device, rtol=1e-5, atol=1e-5)
    back = torch.istft(spectra(x.to(device), window.to(device)), 64, 16, window=window.to(device), length=300)
    torch.testing.assert_close(back.cpu(), x, rtol=1e-5, atol=1e-5)
