"""Numbers at the edge: NaN, infinities, signed zeros, denormals, overflow, int64, rounding, long sums, far offsets."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import assert_same

INF, NAN = math.inf, math.nan
_F = torch.nn.functional
Function = Callable[..., Any]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WIDTHS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -3.0, 1e30, -1e30, INF, -INF, NAN])
TINY = torch.tensor([1e-45, -1e-45, 1e-40, -1e-40, 1.1754942e-38, 1.17549435e-38, -1.17549435e-38, 2e-38])


def _rare(table: dict[str, Function], fast: int) -> list[Any]:
    """The first `fast` cases always run, the others with the device checks."""
    return [n if i < fast else pytest.param(n, marks=pytest.mark.device) for i, n in enumerate(table)]


def _same_bits(fn: Function, *args: Any, device: torch.device) -> None:
    """The same as on the CPU, the sign of zero included; NaN's own sign and payload say nothing."""
    here = [a.to(device) if isinstance(a, torch.Tensor) else a for a in args]
    want, got = fn(*args), fn(*here).cpu()
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, check_stride=True)
    if want.dtype.is_floating_point:
        sign = torch.signbit(want) & ~want.isnan()
        torch.testing.assert_close(torch.signbit(got) & ~got.isnan(), sign, rtol=0, atol=0)


# -- floats --------------------------------------------------------------------------------------------------------
SIGNED: dict[str, Function] = {
    "copysign": torch.copysign,
    "signbit": lambda a, b: torch.signbit(a) ^ torch.signbit(b),
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "add": torch.add,
    "sub": torch.sub,
    "neg": lambda a, b: torch.where(b > 0, -a, a),
    "abs": lambda a, b: a.abs() + b.abs(),
    "sign": lambda a, b: a.sign() * b.sign(),
    "trunc": lambda a, b: torch.where(b > 0, a.trunc(), b.ceil()),
    "round": lambda a, b: torch.where(b > 0, a.round(), b.floor()),
    "div": torch.div,
    "floor_divide": torch.floor_divide,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "fmod": torch.fmod,
    "nextafter": torch.nextafter,
    "heaviside": torch.heaviside,
    "relu": lambda a, b: a.relu() + b.relu(),
    "where": lambda a, b: torch.where(a < b, a, b),
    "compare": lambda a, b: (a == b).int() + 2 * (a < b).int() + 4 * (a >= b).int() + 8 * (a != b).int(),
    "nan_to_num": lambda a, b: a.nan_to_num() * b.nan_to_num(1, 2, 3),
    "sqrt": lambda a, b: a.sqrt().copysign(b),
    "reciprocal": lambda a, b: torch.where(b > 0, a.reciprocal(), 1 / b),
    "frexp": lambda a, b: torch.frexp(a)[0] * b.sign(),
}


@pytest.mark.parametrize("name", _rare(SIGNED, 1))
def test_two_edges_meet(name: str, device: torch.device, allow_fallback: None) -> None:
    # The second operand is laid out in full: torch's kernels for one number and for many differ in places.
    first = EDGES[:, None].expand(13, 13).contiguous()
    second = EDGES.expand(13, 13).contiguous()
    _same_bits(SIGNED[name], first, second, device=device)
    _same_bits(SIGNED[name], first.double(), second.double(), device=device)


CLOSE: dict[str, Function] = {
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "clamp": lambda a, b: a.clamp(-2, 2).clamp(min=b),
    "pow": torch.pow,
    "atan2": torch.atan2,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "hypot": torch.hypot,
    "xlogy": torch.xlogy,
    "remainder": torch.remainder,
    "ldexp": lambda a, b: torch.ldexp(a, b.clamp(-20, 20).nan_to_num()),
    "addcdiv": lambda a, b: torch.addcdiv(a, b, a + 1, value=0.5),
    "lerp": lambda a, b: torch.lerp(a, b, 0.25),
}


@pytest.mark.parametrize("name", _rare(CLOSE, 0))
def test_two_edges_meet_in_a_function(name: str, device: torch.device, allow_fallback: None) -> None:
    first = EDGES[:, None].expand(13, 13).contiguous()
    second = EDGES.expand(13, 13).contiguous()
    for dtype in (torch.float32, torch.float64):
        assert_same(CLOSE[name], first.to(dtype), second.to(dtype), device=device)
    for number in (0, 1, 2, -1, 0.5, -0.5, 3.5, INF, -INF, NAN):
        if name == "pow":
            assert_same(lambda a, n=number: (a**n, n**a), EDGES, device=device)


UNARY = [
    "exp", "expm1", "log", "log1p", "log2", "log10", "exp2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "sqrt", "rsqrt", "reciprocal", "sigmoid", "erf", "erfc", "lgamma",
    "floor", "ceil", "round", "trunc", "frac", "sign", "signbit", "isnan", "isinf", "isfinite", "square",
]  # fmt: skip


@pytest.mark.device
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_edges(name: str, dtype: torch.dtype, device: torch.device) -> None:
    large = torch.tensor([88, -88, 89, -89, 104, -104, 710, -746, 1e4, -1e4, 0.999, -0.999, 1e-7, 1e-20])
    # Sines of arguments beyond float's resolution of a turn are noise.
    edges = EDGES[EDGES.abs() != 1e30] if name in ("sin", "cos", "tan") else EDGES
    assert_same(getattr(torch, name), torch.cat([edges, large]).to(dtype), device=device)


@pytest.mark.device
def test_denormals_are_kept(device: torch.device) -> None:
    _same_bits(lambda t: t.clone() * 1, TINY, device=device)
    _same_bits(lambda t: t + 0.0, TINY, device=device)
    _same_bits(lambda t: t / 2, TINY, device=device)
    _same_bits(lambda t: t * 1e30, TINY, device=device)
    _same_bits(lambda t: (t > 0).int() - (t < 0).int() + t.sign().int(), TINY, device=device)
    _same_bits(lambda t: t.double(), TINY, device=device)
    _same_bits(lambda t: t.float(), TINY.double() / 4, device=device)
    _same_bits(lambda t: t.sum(), TINY, device=device)
    _same_bits(lambda t: t.max() + t.min(), TINY, device=device)
    _same_bits(lambda t: torch.sort(t)[0], TINY, device=device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_round_to_nearest_even_and_overflow(dtype: torch.dtype, device: torch.device) -> None:
    """Every number that lies halfway between two of the narrow dtype, its neighbours, and the ends."""
    bits = torch.arange(0, 2**16 - 1, dtype=torch.int32).to(torch.int16)
    grid = bits.view(dtype)
    grid = grid[grid.isfinite()].float()
    between = ((grid[1:].double() + grid[:-1].double()) / 2).float()
    x = torch.cat([grid, between, torch.nextafter(between, grid[1:]), torch.nextafter(between, grid[:-1])])
    x = torch.cat([x, torch.tensor([65519.996, 65520, 65536, 1e38, 3.4e38, -3.4e38, INF, -INF, NAN, 1e-45])])
    _same_bits(lambda t: t.to(dtype), x, device=device)
    _same_bits(lambda t: t.to(dtype).float(), x, device=device)
    _same_bits(lambda t: t.to(dtype), x.double(), device=device)


@pytest.mark.device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_overflow_in_arithmetic(dtype: torch.dtype, device: torch.device) -> None:
    top = torch.finfo(dtype).max
    x = torch.tensor([top, -top, top / 2, 1.0] * 16, dtype=dtype)
    for fn in (lambda t: t * 2, lambda t: t + t, lambda t: t * 1.0001, lambda t: t - 1, lambda t: t / 0.5):
        _same_bits(fn, x, device=device)
    assert_same(lambda t: (t.sum(), t[::4].sum(), t.exp(), t.double().sum()), x, device=device)


def test_round_half_to_even(device: torch.device) -> None:
    x = torch.arange(-12, 13).double() / 2
    for dtype in FLOATS:
        _same_bits(torch.round, x.to(dtype), device=device)
    near = torch.tensor([0.49999997, 0.5, 0.50000006, 8388607.5, 8388608.5, -0.49999997, 4503599627370495.5]).double()
    _same_bits(torch.round, near, device=device)
    _same_bits(torch.round, near.float(), device=device)


# -- NaN has a place -----------------------------------------------------------------------------------------------
ORDER: dict[str, Function] = {
    "max": lambda t: (t.max(), t.max(1), t.amax(0), t.argmax(), t.argmax(1)),
    "min": lambda t: (t.min(), t.min(1), t.amin(0), t.argmin(), t.argmin(0)),
    "aminmax": lambda t: (t.aminmax(), t.aminmax(dim=1)),
    "sort": lambda t: (t.sort(dim=1, stable=True), t.sort(dim=0, descending=True, stable=True)),
    "topk": lambda t: (t.topk(3, 1)[0], t.topk(2, 0, largest=False)[0]),
    "median": lambda t: (t.median(), t.median(1)[0], t.nanmedian(), t.nanmedian(1)[0]),
    "kthvalue": lambda t: (t.kthvalue(2, 1)[0], t.kthvalue(4, 1)[0]),
    "cummax": lambda t: (t.cummax(1), t.cummax(0)),
    "cummin": lambda t: (t.cummin(1), t.cummin(0)),
    "cumsum": lambda t: (t.cumsum(1), t.cumprod(0), t.logcumsumexp(1)),
    "sum": lambda t: (t.sum(), t.nansum(), t.nanmean(), t.sum(1), t.prod(0), t.mean(1)),
    "any": lambda t: (t.any(), t.all(1), t.count_nonzero(0), t.isnan().sum()),
    "unique": lambda t: torch.unique(t[~t.isnan()]),
    "equal": lambda t: (t == t, t != t, torch.isclose(t, t, equal_nan=True), torch.isclose(t, t)),
    "norm": lambda t: (t.norm(), t.norm(p=INF), t.norm(p=1, dim=1), t.norm(p=0)),
    "var": lambda t: (t.var(1), t.std(0)),
    "quantile": lambda t: (torch.quantile(t, 0.5, dim=1), torch.nanquantile(t, 0.25, dim=1)),
    "softmax": lambda t: (t.softmax(1), t.log_softmax(1), t.logsumexp(1), t.logsumexp(0)),
    "searchsorted": lambda t: torch.searchsorted(t.sort(1)[0], t),
    "histc": lambda t: torch.histc(t.nan_to_num(0, 1, -1), 4, -2, 2),
}


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.device)], ids=str)
@pytest.mark.parametrize("name", _rare(ORDER, 1))
def test_order_with_nan_and_infinity(name: str, dtype: torch.dtype, device: torch.device, allow_fallback: None) -> None:
    x = torch.tensor(
        [
            [1.0, NAN, 3.0, -INF, 2.0],
            [INF, 1.0, -0.0, 0.0, -INF],
            [NAN, NAN, NAN, NAN, NAN],
            [-INF, -INF, -INF, -INF, -INF],
            [INF, INF, INF, INF, INF],
            [2.0, 5.0, -7.0, 0.5, 3.0],
        ]
    )
    if dtype == torch.bfloat16 and name == "quantile":
        pytest.skip("torch: quantile() input tensor must be either float or double dtype")
    assert_same(ORDER[name], x.to(dtype), device=device)


@pytest.mark.device
def test_softmax_of_masks(device: torch.device) -> None:
    x = torch.zeros(4, 70)
    x[0, 3:] = -INF
    x[1] = -INF
    x[2, 5] = INF
    x[3, 69] = 1e30
    assert_same(lambda t: (t.softmax(1), t.log_softmax(1), t.logsumexp(1), t.softmax(0)), x, device=device)
    assert_same(lambda t: _F.cross_entropy(t, torch.zeros(4, dtype=torch.int64, device=t.device), reduction="none"), x,
                device=device)  # fmt: skip


every_width = pytest.mark.parametrize(
    "dtype", [WIDTHS[0], *(pytest.param(d, marks=pytest.mark.device) for d in WIDTHS[1:])], ids=str
)


# -- integers ------------------------------------------------------------------------------------------------------
WRAPPING: dict[str, Function] = {
    "add": torch.add,
    "mul": torch.mul,
    "sub": torch.sub,
    "neg": lambda a, b: -a - b,
    "abs": lambda a, b: a.abs() ^ b,
    "alpha": lambda a, b: torch.add(a, b, alpha=3),
    "scalar": lambda a, b: a * 7 + (b - 100),
    "square": lambda a, b: a * a + b**3,
    "sum": lambda a, b: (a.sum() + b.sum(1)).to(a.dtype),
    "cumsum": lambda a, b: (a.cumsum(0) + b.cumprod(1)).to(a.dtype),
    "matmul": lambda a, b: a @ b,
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=2),
    "compare": lambda a, b: (a < b).to(a.dtype) + 2 * (a == b).to(a.dtype) + (a >= b).to(a.dtype),
    "bits": lambda a, b: (a & b) ^ (a | ~b),
    "maximum": lambda a, b: torch.maximum(a, b) - torch.minimum(a, b),
    "where": lambda a, b: torch.where(a > b, a, -b),
    "clamp": lambda a, b: a.clamp(3, 100) + b.clamp(max=5),
    "gcd": lambda a, b: torch.gcd(a // 2, b // 2),
    "reduce": lambda a, b: torch.stack([a.amax(1), b.amin(0), a.max(1)[0], b.prod(0).to(a.dtype)]),
    "sort": lambda a, b: a.flatten().sort()[0] - b.flatten().sort(descending=True)[0],
}


@every_width
@pytest.mark.parametrize("name", _rare(WRAPPING, 2))
def test_integers_wrap_around(name: str, dtype: torch.dtype, device: torch.device) -> None:
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    edge = torch.tensor([low, low + 1, high, high - 1, high // 2 + 1, 3, 100, 0], dtype=dtype)
    _same_bits(WRAPPING[name], edge[:, None].expand(8, 8).contiguous(), edge.expand(8, 8).contiguous(), device=device)


@pytest.mark.device
@every_width
def test_signs_of_division(dtype: torch.dtype, device: torch.device) -> None:
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    first = torch.tensor([low, low + 1, high, 7, 0, 100, 1] + ([-7, -1, -100] if low else []), dtype=dtype)
    second = torch.tensor([high, 2, 3, 7, 1] + ([low, -2, -3, -7] if low else []), dtype=dtype)  # low // -1 traps
    pairs = first[:, None].expand(len(first), len(second)).contiguous(), second.expand(len(first), -1).contiguous()
    for fn in (
        torch.remainder,
        torch.fmod,
        torch.floor_divide,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: a % 5 + b // 3,
    ):
        _same_bits(fn, *pairs, device=device)


@pytest.mark.device
@every_width
def test_shifts(dtype: torch.dtype, device: torch.device) -> None:
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x = torch.tensor([low, high, 1, 5, high // 3, 0] + ([-1, -5] if low else []), dtype=dtype)
    by = torch.arange(torch.iinfo(dtype).bits + 2, dtype=dtype)
    pairs = x[:, None].expand(len(x), len(by)).contiguous(), by.expand(len(x), -1).contiguous()
    _same_bits(torch.bitwise_left_shift, *pairs, device=device)
    _same_bits(torch.bitwise_right_shift, *pairs, device=device)
    _same_bits(lambda t: (t << 3) + (t >> 1), x, device=device)


@pytest.mark.device
def test_int64_beyond_the_precision_of_double(device: torch.device) -> None:
    big = 2**53
    x = torch.tensor([big, big + 1, big + 2, -big - 1, 2**62 + 1, 2**63 - 1, -(2**63), -(2**63) + 1])
    for fn in (
        lambda t: t + 1,
        lambda t: t * 3,
        lambda t: t - (2**53 + 1),
        lambda t: t // 3,
        lambda t: t % 1000003,
        lambda t: t == 2**53 + 1,
        lambda t: t > 2**53,
        lambda t: t.clamp(-(2**53) - 1, 2**53 + 1),
        lambda t: t.sum(),
        lambda t: t.cumsum(0),
        lambda t: t.sort()[0],
        lambda t: torch.stack([t.max(), t.min(), t.amax(0), t.median(), t.kthvalue(3)[0]]),
        lambda t: t.unique(),
        lambda t: t.to(torch.int32),
        lambda t: t.double(),
        lambda t: t.float(),
        lambda t: t.half(),
        lambda t: torch.full_like(t, 2**53 + 1),
        lambda t: t.masked_fill(t > 0, 2**62 + 1),
        lambda t: torch.where(t > 0, 2**53 + 1, t),
        lambda t: t.index_fill(0, torch.tensor([0], device=t.device), 2**61 + 1),
        lambda t: torch.arange(2**53, 2**53 + 5, device=t.device),
        lambda t: torch.arange(2**62 + 1, 2**62 + 30, 7, device=t.device),
        lambda t: torch.cat([t, t[:1]]),
        lambda t: t.abs(),
        lambda t: t.bitwise_xor(2**62 + 5),
        lambda t: t.prod(),
        lambda t: torch.searchsorted(t.sort()[0], t),
        lambda t: torch.isin(t, t[1:3]),
        lambda t: torch.zeros(8, dtype=torch.int64, device=t.device).scatter_add(0, t % 8, t),
        lambda t: torch.bucketize(t, t[:3]),
        lambda t: t.diff(),
        lambda t: torch.tensor(2**53 + 1, device=t.device) + t,
    ):
        _same_bits(fn, x, device=device)
    here = x.to(device)
    assert here.tolist() == x.tolist()
    assert here[1].item() == big + 1
    assert int(here[4]) == 2**62 + 1
    assert f"{here[5]}" == str(2**63 - 1)
    assert (here == x.to(device)).all()
    assert range(10)[torch.tensor(3, device=device)] == 3


@pytest.mark.device
def test_uint64_and_its_kin(device: torch.device, allow_fallback: None) -> None:
    for dtype, top in ((torch.uint64, 2**64 - 1), (torch.uint32, 2**32 - 1), (torch.uint16, 2**16 - 1)):
        x = torch.tensor([0, 1, top // 2, top // 2 + 1, top], dtype=dtype)
        assert x.to(device).tolist() == x.tolist()
        for fn in (lambda t: t.clone(), lambda t: t.to(torch.int64), lambda t: t.double(), lambda t: t == t[4]):
            _same_bits(fn, x, device=device)
        _same_bits(lambda t, dtype=dtype: t.to(dtype), torch.tensor([0, 1, -1, 300, 2**40 + 7]), device=device)


@pytest.mark.device
def test_float_to_integer_where_c_defines_it(device: torch.device) -> None:
    x = torch.tensor([0.99, -0.99, 1.5, -1.5, 2.5, 127.9, -128.0, 0.0, -0.0, 1e-45])
    for dtype in (*WIDTHS[:4], torch.bool):
        _same_bits(lambda t, dtype=dtype: t.to(dtype), x, device=device)
    _same_bits(lambda t: t.to(torch.uint8), x.abs() * 1.9, device=device)
    wide = torch.tensor([2.0**31 - 128, -(2.0**31), 2.0**24 + 2])
    _same_bits(lambda t: t.to(torch.int32), wide, device=device)
    _same_bits(lambda t: t.to(torch.int64), torch.tensor([2.0**62, -(2.0**63), 2.0**53]).double(), device=device)
    _same_bits(lambda t: t.bool(), torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-45]), device=device)


@pytest.mark.device
def test_bool_arithmetic(device: torch.device) -> None:
    a, b = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for fn in (
        torch.add, torch.mul, torch.div, torch.maximum, torch.minimum, torch.eq, torch.lt, torch.ge, torch.logical_xor,
        torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor,
        lambda a, b: a ^ b | ~a,
        lambda a, b: a + 1,
        lambda a, b: a * 2.5,
        lambda a, b: a.sum() + b.cumsum(0),
        lambda a, b: a.prod() + b.any(),
        lambda a, b: torch.where(a, b, ~b),
        lambda a, b: a.float() @ b.float(),
        lambda a, b: a.to(torch.uint8) - b.to(torch.uint8),
        lambda a, b: torch.cat([a, b]).sort(stable=True)[1],
        lambda a, b: a.all() | b.all(),
        lambda a, b: torch.stack([a.max(), b.min()]),
        lambda a, b: a.masked_fill(b, True),
    ):  # fmt: skip
        _same_bits(fn, a, b, device=device)
    for fn in (torch.sub, lambda a, b: -a):
        with pytest.raises(RuntimeError, match="bool"):
            fn(a.to(device), b.to(device))
    odd = torch.tensor([0, 2, 255, 1], dtype=torch.uint8)
    _same_bits(lambda t: t.bool().to(torch.int32) + (t.bool() & True), odd, device=device)


# -- long ----------------------------------------------------------------------------------------------------------
def test_long_sums_are_exact(device: torch.device) -> None:
    ones = torch.ones(2**24 + 3, device=device)
    assert ones.sum().item() == 2**24 + 4  # 2**24 + 3 rounds to even
    assert ones.mean().item() == 1.0
    assert ones.to(torch.float16).sum(dtype=torch.float32).item() == 2**24 + 4
    assert torch.ones(70000, dtype=torch.float16, device=device).sum().item() == INF
    assert torch.ones(60000, dtype=torch.float16, device=device).mean().item() == 1.0
    assert torch.ones(3000, 3, dtype=torch.bfloat16, device=device).sum(0).tolist() == [3008.0] * 3  # 3000 lies halfway
    assert ones.bool().sum().item() == 2**24 + 3
    assert ones[: 2**24].view(2**12, 2**12).sum(0).eq(2**12).all().item()
    assert ones.cumsum(0)[-4].item() == 2**24
    assert torch.full((2**16,), 2**20, dtype=torch.int32, device=device).sum().item() == 2**36
    assert torch.full((300,), 200, dtype=torch.uint8, device=device).sum().item() == 60000


@pytest.mark.device
def test_moments_of_numbers_far_from_zero(device: torch.device) -> None:
    noise = torch.randn(100_000, dtype=torch.float64)
    for offset, rtol in ((1e3, 1e-4), (1e4, 2e-2)):
        x = (noise + offset).float()
        exact = x.double()
        torch.testing.assert_close(x.to(device).var().cpu().double(), exact.var(), rtol=rtol, atol=0)
        torch.testing.assert_close(x.to(device).std().cpu().double(), exact.std(), rtol=rtol, atol=0)
        torch.testing.assert_close(x.to(device).mean().cpu().double(), exact.mean(), rtol=1e-6, atol=0)
        rows = x.view(100, 1000)
        got = torch.var_mean(rows.to(device), 1)
        torch.testing.assert_close(got[0].cpu().double(), rows.double().var(1), rtol=rtol, atol=0)
        got = _F.layer_norm(rows.to(device), (1000,)).cpu().double()
        torch.testing.assert_close(got, _F.layer_norm(rows.double(), (1000,)), rtol=0, atol=2e-3 * offset / 1e3)


@pytest.mark.device
def test_sums_do_not_lose_small_numbers(device: torch.device) -> None:
    x = torch.rand(2**22)
    exact = x.double().sum()
    torch.testing.assert_close(x.to(device).sum().cpu().double(), exact, rtol=1e-6, atol=0)
    columns = x.to(device).view(-1, 2).sum(0).cpu().double()
    torch.testing.assert_close(columns, x.double().view(-1, 2).sum(0), rtol=1e-6, atol=0)
    torch.testing.assert_close(x.to(device).norm().cpu().double(), x.double().norm(), rtol=1e-6, atol=0)
    torch.testing.assert_close(x.to(device).cumsum(0)[-1].cpu().double(), exact, rtol=1e-4, atol=0)


# -- far -----------------------------------------------------------------------------------------------------------
FAR = 2**31 + 70


def _free_memory() -> int:
    """Bytes that programs can still have, as Linux counts them; 0 elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


@pytest.fixture
def returned() -> Iterator[None]:
    """Memory goes back to the system: the pool would keep gigabytes for the rest of the run."""
    yield
    gc.collect()
    torch.npu.empty_cache()  # type: ignore[attr-defined]


@pytest.mark.device
@pytest.mark.usefixtures("returned")
def test_more_elements_than_an_int_counts(device: torch.device) -> None:
    """One int8 tensor of over 2**31 elements, and views at its far end."""
    if _free_memory() < 12 * 2**30:
        pytest.skip("takes about 10 GiB of memory")
    x = torch.zeros(FAR, dtype=torch.int8, device=device)
    x[-3:] = torch.tensor([1, 2, 3], dtype=torch.int8)
    x[5] = 7
    assert x[FAR - 2].item() == 2
    assert x[-70:].sum().item() == 6
    assert x.sum().item() == 13
    assert x.max().item() == 7
    assert x[2:].argmax().item() == 3
    assert x[10:].argmax().item() == FAR - 11
    assert x.count_nonzero().item() == 4
    assert torch.arange(FAR - 3, FAR, device=device).tolist() == [FAR - 3, FAR - 2, FAR - 1]
    assert x.index_select(0, torch.tensor([5, FAR - 1], device=device)).tolist() == [7, 3]
    assert x[torch.tensor([-1, 5, FAR - 3], device=device)].tolist() == [3, 7, 1]
    assert x[FAR - 8 :: 2].tolist() == x.as_strided((4,), (2,), FAR - 8).tolist() == [0, 0, 0, 2]
    x[2**31 :].add_(1)
    assert x[2**31 - 2 : 2**31 + 2].tolist() == [0, 0, 1, 1]
    x.mul_(2)
    assert x[-3:].tolist() == [4, 6, 8]
    assert x.view(2, -1)[1, -3:].tolist() == [4, 6, 8]
    x[:: 2**30] = 9
    assert x[torch.tensor([0, 2**30, 2**31], device=device)].tolist() == [9, 9, 9]
    mask = x == 9
    assert mask.nonzero().flatten().tolist() == [0, 2**30, 2**31]
    x.scatter_(0, torch.tensor([FAR - 1, 1], device=device), torch.tensor([11, 12], dtype=torch.int8, device=device))
    assert (x[1].item(), x[-1].item()) == (12, 11)
    assert x.expand(3, FAR)[:, -1].tolist() == [11, 11, 11]
    assert torch.cat([x[-2:], x[:2]]).tolist() == [6, 11, 9, 12]
    assert x[-4:].cpu().tolist() == [2, 4, 6, 11]
    assert x.flip(0)[0].item() == 11
