"""Complex numbers: views of their parts, arithmetic, functions, reductions and products."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_same

COMPLEX = (torch.complex64, torch.complex128)


def _pair(*shape: int, dtype: torch.dtype = torch.complex64) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)


def test_parts_are_views(device: torch.device) -> None:
    cpu = _pair(4, 6)[0]
    there = cpu.to(device)
    for x in (cpu, there):
        x[1:, 2:].real.fill_(3)
        x[::2].imag.mul_(2)
        torch.view_as_real(x)[0, 0, 1] = -1
    torch.testing.assert_close(there.cpu(), cpu)
    assert there.real.data_ptr() == there.data_ptr()


def test_pairs_seen_as_complex_numbers(device: torch.device) -> None:
    pairs = torch.zeros(3, 5, 2, device=device)
    torch.view_as_complex(pairs[1:]).fill_(1 + 2j)
    assert pairs.cpu().tolist() == [[[0, 0]] * 5, [[1, 2]] * 5, [[1, 2]] * 5]


def test_gradients_through_parts(device: torch.device) -> None:
    x = torch.zeros(3, dtype=torch.complex64, device=device, requires_grad=True)
    (x.real.sum() + 2 * x.imag.sum() + torch.view_as_real(x).sum()).backward()
    assert x.grad is not None
    assert x.grad.cpu().tolist() == [2 + 3j] * 3


@pytest.mark.device
@pytest.mark.parametrize("dtype", COMPLEX)
def test_arithmetic(device: torch.device, dtype: torch.dtype) -> None:
    a, b = _pair(5, 7, dtype=dtype)
    real = torch.arange(1.0, 8)
    for fn in (
        lambda a, b, r: (a + b) * (a - 2 * b) / r,
        lambda a, b, r: torch.add(a, r, alpha=2j) - 3j * r + (1 - 1j) / b,
        lambda a, b, r: a.mul_(b).div_(r).sub_(b, alpha=0.5),
        lambda a, b, r: torch.addcmul(a, b, b, value=2) + torch.addcdiv(a, b, b + 3, value=1j),
        lambda a, b, r: torch.where(r > 3, a, b.t().contiguous().t()),
        lambda a, b, r: torch.lerp(a, b, 0.3).masked_fill(r > 3, 2j),
        lambda a, b, r: a.to(torch.complex64) * b.to(torch.complex128),
        lambda a, b, r: (a == b.real.to(dtype)) | (a != a),
        lambda a, b, r: torch.stack([a, b])[:, 1:].flip(0).conj(),
    ):
        assert_same(fn, a, b, real, device=device)


def test_operands_of_all_kinds(device: torch.device) -> None:
    """Layouts, broadcasts, real operands, and numbers that come at launch: one program, several plans."""
    a, b = _pair(5, 7)
    for x, y in ((a, b), (a.t(), b[0, :5]), (a[:, ::2], b[:, 1:2]), (a, b.real), (b.real[0], a)):
        assert_same(lambda x, y: x * y, x, y, device=device)
    for number in (2, 0.5, 1j, 3 - 2j):
        assert_same(lambda a, number=number: a.mul_(number), a, device=device)


def test_truth_is_written_into_complex_tensors(device: torch.device) -> None:
    a, b = _pair(5)
    assert_same(lambda a, b: a.eq_(b), a, a.clone(), device=device)
    assert_same(lambda a, b: a.logical_and_(b).logical_not_(), a, b, device=device)


def test_infinities_survive_addition(device: torch.device) -> None:
    """A real alpha is no complex factor: the imaginary part of an infinite number stays finite."""
    x = torch.tensor([complex(float("inf"), 1), complex(1, float("-inf"))], device=device)
    assert torch.add(x, x, alpha=2).cpu().tolist() == [complex(float("inf"), 3), complex(3, float("-inf"))]


@pytest.mark.device
def test_large_and_small_numbers(device: torch.device) -> None:
    x = torch.tensor([1e30 + 1e30j, 1e-30 - 1e-30j, 3e38 + 1j, 1e-38j])
    for fn in (torch.abs, torch.sqrt, torch.reciprocal, torch.log, torch.sgn, lambda x: x / x):
        assert_same(fn, x, device=device)


FUNCTIONS = """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sigmoid sin cos tan sinh cosh tanh asin
acos atan asinh acosh atanh sgn abs angle isnan isinf isfinite"""


@pytest.mark.device
@pytest.mark.parametrize("dtype", COMPLEX)
def test_functions(device: torch.device, dtype: torch.dtype) -> None:
    x = torch.cat([_pair(40, dtype=dtype)[0], torch.tensor([0, 1 + 1j, -1 - 1j, 30 + 2j, -30 + 2j, 0.01, 2j])])
    for name in FUNCTIONS.split():
        assert_same(getattr(torch, name), x, device=device)


def test_branch_cuts(device: torch.device) -> None:
    """The sign of a zero says on which side of a cut a number lies."""
    x = torch.tensor([complex(-2, 0.0), complex(-2, -0.0), complex(2, 0.0), complex(2, -0.0)])
    for name in ("sqrt", "log", "asin", "acos", "acosh", "atanh"):
        assert_same(getattr(torch, name), x, device=device)


@pytest.mark.device
def test_powers(device: torch.device) -> None:
    a, b = _pair(30)
    for exponent in (2, 3, -1, -2, 0.5, -0.5, 1.7, 2 - 1j, b):
        assert_same(lambda a, e: a**e, a, torch.as_tensor(exponent), device=device)
        if not isinstance(exponent, torch.Tensor):
            assert_same(lambda a, exponent=exponent: a**exponent, a, device=device)
    assert_same(lambda a: 2**a + (1 + 1j) ** a, a, device=device)


def test_casts(device: torch.device) -> None:
    x = _pair(6)[0]
    for dtype in (torch.complex128, torch.complex64, torch.bool):
        assert_same(lambda x, dtype=dtype: x.to(dtype), x, device=device)
    assert_same(lambda x: x.to(torch.complex64), torch.arange(4), device=device)
    assert_same(lambda x: torch.polar(x, x + 1) + torch.complex(x, 2 * x), torch.arange(4.0), device=device)


@pytest.mark.device
@pytest.mark.parametrize("dtype", COMPLEX)
def test_reductions(device: torch.device, dtype: torch.dtype) -> None:
    x = _pair(4, 33, 3, dtype=dtype)[0]
    for fn in (
        torch.sum,
        torch.mean,
        torch.prod,
        torch.var,
        torch.std,
        lambda x: x.sum((0, 2), keepdim=True),
        lambda x: x.mean(1),
        lambda x: x.prod(1, keepdim=True) + x.prod(1).unsqueeze(1),
        lambda x: x.prod(0),
        lambda x: x.cumsum(-2),
        lambda x: x.cumprod(1),
        lambda x: torch.var_mean(x, (0, 1), correction=0, keepdim=True)[1],
        lambda x: torch.linalg.vector_norm(x, 3, 1),
        lambda x: x.t().norm() if x.ndim == 2 else x.norm(),
        lambda x: torch.count_nonzero(x * (x.real > 0), 1),
        lambda x: x.any(1) & x.all(1),
        lambda x: x[:0].sum(0) + x[:0].prod(0),
    ):
        assert_same(fn, x, device=device)
    torch.testing.assert_close(torch.sum(x.real.to(device), 1, dtype=dtype).cpu(), torch.sum(x.real, 1, dtype=dtype))


@pytest.mark.device
def test_indexing_and_adding_at_places(device: torch.device) -> None:
    values, x = _pair(6, 4)
    places = torch.tensor([0, 1, 1, 4, 2, 1])
    for fn in (
        lambda x, v, i: x[i] + x.gather(0, i.unsqueeze(1).expand(6, 4)),
        lambda x, v, i: x.index_add(0, i, v),
        lambda x, v, i: x.scatter_add(0, i.unsqueeze(1).expand(6, 4), v),
        lambda x, v, i: x.index_put((i, i % 4), v[:, 0], accumulate=True),
        lambda x, v, i: x.index_put_((i[1:2],), v[:1]),
    ):
        assert_same(fn, x, values, places, device=device)


@pytest.mark.device
@pytest.mark.parametrize("dtype", COMPLEX)
def test_products(device: torch.device, dtype: torch.dtype) -> None:
    a, b = _pair(2, 5, 9, dtype=dtype)
    bias = _pair(5, dtype=dtype)[0]
    for fn in (
        lambda a, b, c: a[0] @ b[1].t(),
        lambda a, b, c: torch.bmm(a, b.mH),
        lambda a, b, c: torch.addmm(c, a[0], b[0].t(), beta=2, alpha=1 + 1j),
        lambda a, b, c: torch.addmm(c * float("nan"), a[0], b[0].t(), beta=0),
        lambda a, b, c: torch.baddbmm(c, a, b.mT, alpha=0.5),
        lambda a, b, c: torch.addbmm(c, a, b.mT),
        lambda a, b, c: torch.mv(a[0], b[0, 0]) + torch.addmv(c, a[0], b[0, 0], alpha=2),
        lambda a, b, c: torch.dot(a[0, 0], b[0, 0]) + 2 * torch.vdot(a[0, 0], b[0, 0]),
        lambda a, b, c: torch.outer(c, c) + torch.addr(a[0, :, :5], c, c, beta=1j),
        lambda a, b, c: torch.nn.functional.linear(a, b[0], c) + torch.nn.functional.linear(a, b[0]),
        lambda a, b, c: a[0, :, :0] @ b[0, :, :0].t(),
    ):
        assert_same(fn, a, b, bias, device=device)


def test_gradients(device: torch.device) -> None:
    found = []
    for where in (torch.device("cpu"), device):
        a, b = (t.to(where).requires_grad_() for t in _pair(4, 4))
        ((a @ b.conj()).exp() * a / b).abs().sum().backward()
        found.append([t.grad.cpu() for t in (a, b) if t.grad is not None])
    torch.testing.assert_close(*found)


def test_normal_numbers_have_the_variance_asked_for(device: torch.device) -> None:
    torch.manual_seed(0)
    x = torch.empty(20000, dtype=torch.complex64, device=device).normal_(0, 2)
    assert x.abs().square().mean().item() == pytest.approx(4, rel=0.05)
    assert x.real.var().item() == pytest.approx(2, rel=0.05)
    assert abs((x.real * x.imag).mean().item()) < 0.1
