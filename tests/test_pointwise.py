"""Pointwise ops against the CPU: special values, casts, layouts, and (marked `device`) OpInfo's samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_same

INF, NAN = math.inf, math.nan
_F = torch.nn.functional
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.7, -88.8, 89.0, 1e-40, 3e38, INF, -INF, NAN])
INTEGERS = torch.tensor([-9, -7, -1, 0, 1, 2, 5, 7, 8, 100])
_FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*_FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
Function = Callable[..., Any]


def _torch(names: str, module: Any = torch) -> dict[str, Function]:
    return {name: getattr(module, name) for name in names.split()}


UNARY = _torch(
    """exp sigmoid floor isnan round sign abs neg signbit ceil trunc frac sqrt rsqrt reciprocal expm1 log log1p tanh erf
    isinf isposinf isneginf logical_not nan_to_num atan sin relu exp2 log2"""
)
BINARY = {
    **_torch(
        """div maximum gt floor_divide add sub mul minimum fmax fmin eq ne lt le ge logical_and logical_or logical_xor
        copysign atan2 hypot xlogy logaddexp heaviside"""
    ),
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "clamp": lambda a, b: a.clamp(b, b + 1),
    "clamp_scalar": lambda a, b: a.clamp(-1, 2) + b,
    "where": lambda a, b: torch.where(a > b, a, b),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, -INF),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3) + torch.lerp(a, b, 0.7),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=-2),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=3),
}
INTEGER = {
    **_torch("floor_divide remainder add sub mul div fmod maximum minimum bitwise_and bitwise_or bitwise_xor gcd lcm"),
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "shift_far": lambda a, b: torch.bitwise_right_shift(a, 200) + torch.bitwise_left_shift(a, 70),
    "pow": lambda a, b: a**b,
    "pow_scalar": lambda a, b: a**3,
    "true_div_scalar": lambda a, b: a / 2,
    "add_float": lambda a, b: a + 1.5,
    "compare_float": lambda a, b: a > 1.5,
}
ACTIVATIONS = {
    "gelu": _F.gelu,
    **_torch(
        "relu silu relu6 mish softplus hardshrink softshrink hardsigmoid hardswish leaky_relu hardtanh selu celu", _F
    ),
    "gelu_tanh": lambda x: _F.gelu(x, approximate="tanh"),
    "elu": lambda x: _F.elu(x, 1.3),
    "elu_inplace": lambda x: _F.elu(x * 1, 1.3, inplace=True),
    "logsigmoid": _F.logsigmoid,
    "glu": lambda x: _F.glu(x, 0),
    "prelu": lambda x: _F.prelu(x, x.new_full((1,), 0.2)),
    "threshold": lambda x: _F.threshold(x, 0.1, 20),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "logit": lambda x: torch.logit(x, 0.2),
    "clamp": lambda x: x.clamp(-1, 1) + torch.clamp(x, min=x * x),
    "pow": lambda x: x**2 + x**3 + (x * x + 1) ** 0.5 + (x * x + 1) ** -0.5 + (x * x + 1) ** x,
}


def _some_fast(table: Any, fast: int) -> list[Any]:
    """The first `fast` cases always run; the others, one compiler run each, with the device checks."""
    return [c if i < fast else pytest.param(c, marks=pytest.mark.device) for i, c in enumerate(table)]


@pytest.mark.parametrize("name", _some_fast(UNARY, 3))
def test_unary_of_special_values(name: str, device: torch.device) -> None:
    assert_same(UNARY[name], SPECIAL, device=device)


@pytest.mark.parametrize("name", _some_fast(BINARY, 4))
def test_binary_of_special_values(name: str, device: torch.device) -> None:
    values = SPECIAL[SPECIAL.abs() != 1e-40]  # torch's vectorized fmod gives NaN for denormals
    assert_same(BINARY[name], values[:, None], values, device=device)


@pytest.mark.parametrize("dtype", _some_fast([torch.int64, torch.uint8, torch.int8], 1), ids=str)
@pytest.mark.parametrize("name", _some_fast(INTEGER, 2))
def test_integers(name: str, dtype: torch.dtype, device: torch.device) -> None:
    values = INTEGERS if dtype.is_signed else INTEGERS.abs()
    other = values[values != 0]
    if name in ("pow", "shift_left"):
        other = other[other > 0]
    assert_same(INTEGER[name], values.to(dtype)[:, None], other.to(dtype), device=device)


@pytest.mark.parametrize("name", _some_fast(ACTIVATIONS, 2))
def test_activation_and_gradient(name: str, device: torch.device) -> None:
    x = torch.linspace(-4, 4, 42).view(6, 7).requires_grad_()
    assert_same(ACTIVATIONS[name], x, device=device)


def test_halves_compute_in_float(device: torch.device) -> None:
    # A multiple of torch's vector length: its scalar tail rounds after every step, its vectors do not.
    for dtype in (torch.float16, torch.bfloat16):
        a, b = torch.randn(64).to(dtype), torch.randn(64).to(dtype)
        assert_same(lambda a, b: (a * b + b / a, _F.gelu(a), a > b, a.add(b, alpha=3)), a, b, device=device)


@pytest.mark.parametrize("source", _some_fast(DTYPES, 1), ids=str)
def test_casts(source: torch.dtype, device: torch.device) -> None:
    values = torch.tensor(
        [0.0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 100.7, 65504, 65520, 1e-8, 1 + 2**-11, 1 + 2**-9, NAN]
    )
    small = values[:9].abs() if source == torch.uint8 else values[:9]
    x = (values if source.is_floating_point else small).to(source)
    for target in DTYPES:
        limit = x[:9] if target == torch.uint8 else x
        y = limit.abs() if target == torch.uint8 and source.is_floating_point else limit
        assert_same(lambda t, d: t.to(d), y if target.is_floating_point else y[:9], target, device=device)


def test_integers_wrap_when_cast(device: torch.device) -> None:
    x = torch.tensor([255, 256, -129, 2**31, 2**40 + 1, -(2**63)])
    for target in (torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float32, torch.bfloat16):
        assert_same(lambda t, d: t.to(d), x, target, device=device)


@pytest.mark.parametrize("decimals", [0, 1, 3, -1])
def test_round_half_to_even(decimals: int, device: torch.device) -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, 0.25, 0.35, 14.999, 15.0, 25.0, -35.0])
    assert_same(lambda t: torch.round(t, decimals=decimals), x, device=device)


def test_layouts(device: torch.device) -> None:
    x = torch.randn(5, 4, 6, 7)
    views: list[Function] = [
        lambda t: t.transpose(0, 3),
        lambda t: t[1:, ::2, :, 3:],
        lambda t: t.permute(2, 0, 3, 1)[::2],
        lambda t: t[:, :1].expand(5, 3, 6, 7),
        lambda t: t.contiguous(memory_format=torch.channels_last),
        lambda t: t[2, 3, 1],
        lambda t: t[:0],
        lambda t: t[1, 2, 3, 4],
    ]
    for view in views:
        assert_same(lambda t, view=view: view(t) * 2 + view(t).relu(), x, device=device)
    assert_same(lambda t: t.transpose(1, 3) + t[:1, :1, :1].transpose(1, 3)[..., :1], x, device=device)


@pytest.mark.parametrize("n", [1, 7, 16, 4095, 4096, 4097, 32769])
def test_sizes_at_edges_of_work_items(n: int, device: torch.device) -> None:
    assert_same(lambda t: t * 2 + t[:1], torch.randn(n), device=device)
    assert_same(lambda t: t * 2, torch.randn(n, 3)[:, 1], device=device)


@pytest.mark.parametrize("sizes", [(16, 16), (31, 33), (64, 65), (100, 17), (15, 200), (0, 40)])
def test_transposing_copies(sizes: tuple[int, int], device: torch.device) -> None:
    def run(x: torch.Tensor) -> Any:
        views = (x.transpose(1, 2), x.permute(2, 1, 0), x.transpose(1, 2)[:, ::2], x[:, 1:].transpose(1, 2))
        return [(v.contiguous(), v.half().contiguous(), v.to(torch.int64)) for v in views]

    assert_same(run, torch.randn(3, *sizes) * 10, device=device)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.int64], ids=str)
def test_transposing_copies_of_any_width(dtype: torch.dtype, device: torch.device) -> None:
    x = (torch.randn(2, 49, 75) * 100).to(dtype)
    assert_same(
        lambda t: [t.mT.contiguous(), t[:, 1:, 2:].mT.contiguous(), t[:, :17].mT.contiguous()], x, device=device
    )


def test_more_dimensions_than_a_layout_holds(device: torch.device) -> None:
    x = torch.randn([2] * 11)
    y = torch.randn([2] * 11).permute(10, 8, 6, 4, 2, 0, 1, 3, 5, 7, 9)
    assert_same(lambda a, b: a + b, x, y, device=device)


def test_in_place_and_out(device: torch.device) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        a = x.clone().add_(y, alpha=2).mul_(3).clamp_(-1, 1)
        b = torch.empty(4, 3, device=x.device)
        torch.sub(x, y, out=b.t())
        c = x.half().add_(y)
        x[1:].mul_(x[:-1].clone())
        return a, b, c, x, x.t().gt_(0)

    assert_same(run, torch.randn(3, 4), torch.randn(4), device=device)


def test_numbers_make_no_new_plans(device: torch.device) -> None:
    from torch_fl import dispatch

    x = torch.randn(5, device=device)
    plans = dispatch.op_of(torch.ops.aten.add.Tensor).plans
    x + 1.0
    before = len(plans)
    for k in range(5):
        torch.testing.assert_close((x + float(k)).cpu(), x.cpu() + k)
    assert len(plans) == before


def test_a_wrong_expression_is_caught(device: torch.device) -> None:
    with pytest.raises(AssertionError):
        assert_same(lambda t: t.sin() if t.device.type == "npu" else t.cos(), torch.randn(3), device=device)
