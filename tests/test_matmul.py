"""Matrix products against the CPU: sizes around every tile edge, every layout, every dtype."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_same, to

import torch_fl
from torch_fl.kernels import gemm, gemm_cpu

EDGES = [
    (1, 1, 1), (4, 4, 4), (3, 5, 7), (8, 32, 16), (9, 33, 17), (7, 31, 15), (1, 129, 300), (1, 64, 4), (300, 129, 1),
    (2, 1000, 3), (64, 256, 128), (65, 257, 129), (63, 513, 33), (100, 300, 6), (6, 300, 100), (129, 40, 257),
    (64, 100, 200), (30, 97, 66), (5, 0, 3), (0, 4, 3), (5, 4, 0), (130, 3, 1030),
]  # fmt: skip
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8]


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small integers: every product is exact in every dtype, so a wrong index cannot hide in a tolerance."""
    return torch.randint(-3, 4, shape).to(dtype)


@pytest.mark.parametrize(("m", "k", "n"), EDGES)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_mm_edges(m: int, k: int, n: int, layout: str, device: torch.device) -> None:
    a = numbers(m, k) if layout[0] == "n" else numbers(k, m).t()
    x = numbers(k, n) if layout[1] == "n" else numbers(n, k).t()
    assert_same(torch.mm, a, x, device=device, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 37, 150), (5, 20, 9), (70, 90, 80)])
def test_mm_dtypes(m: int, k: int, n: int, dtype: torch.dtype, device: torch.device) -> None:
    assert_same(torch.mm, numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype), device=device)
    assert_same(torch.mm, numbers(m, k, dtype=dtype), numbers(n, k, dtype=dtype).t(), device=device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_half_is_read_right(dtype: torch.dtype, device: torch.device) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype).view(1, -1)
    got = torch.mm(torch.ones(1, 1, dtype=dtype, device=device), every.to(device)).cpu()
    torch.testing.assert_close(got, every, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_rounded_to_the_nearest(dtype: torch.dtype, device: torch.device) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype).view(1, -1)
    one, c = torch.ones(1, 1, dtype=dtype, device=device), torch.zeros(1, dtype=dtype, device=device)
    got = torch.addmm(c, one, every.to(device), alpha=0.3, beta=0)
    torch.testing.assert_close(got.cpu(), (every.float() * 0.3).to(dtype), equal_nan=True, rtol=0, atol=0)
    got = torch.addmm(c, one, every.to(device), alpha=-40, beta=3)
    torch.testing.assert_close(got.cpu(), (every.float() * -40).to(dtype), equal_nan=True, rtol=0, atol=0)


def test_strides_that_are_neither(device: torch.device) -> None:
    a, x = numbers(60, 140)[::2, ::3], numbers(94, 120)[::2, ::2]
    assert_same(lambda p, q: p[:, :47] @ q, a, x, device=device)
    assert_same(lambda p, q: p[3:4, :47] @ q, a, x, device=device)


def test_written_into_a_view(device: torch.device) -> None:
    def run(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(90, 200, device=a.device)
        torch.mm(a, x, out=out[3:83, 5:185:2])
        return out

    assert_same(run, numbers(80, 70), numbers(70, 90), device=device)


@pytest.mark.parametrize(("m", "k", "n"), [(4, 5, 6), (1, 40, 33), (70, 80, 90)])
@pytest.mark.parametrize("shape", ["n", "1n", "m1", "mn", ""])
def test_addmm(m: int, k: int, n: int, shape: str, device: torch.device) -> None:
    c = numbers(*[{"m": m, "n": n, "1": 1}[s] for s in shape])
    assert_same(torch.addmm, c, numbers(m, k), numbers(k, n), device=device)
    assert_same(torch.addmm, c, numbers(m, k), numbers(k, n), beta=0.5, alpha=-2, device=device)


def test_beta_zero_does_not_read(device: torch.device) -> None:
    nan = torch.full((5, 5), float("nan"))
    a = numbers(5, 5)
    assert_same(torch.addmm, nan, a, a, beta=0, device=device)
    assert_same(torch.addmv, nan[0], a, a[0], beta=0, device=device)
    assert_same(torch.addr, nan, a[0], a[1], beta=0, device=device)
    assert_same(torch.baddbmm, nan[None], a[None], a[None], beta=0, device=device)


def test_in_place(device: torch.device) -> None:
    c, a, x = numbers(40, 50), numbers(40, 60), numbers(60, 50)
    assert_same(lambda c, a, x: c.clone().addmm_(a, x, beta=2), c, a, x, device=device)
    square = numbers(20, 20)
    square = numbers(20, 20)
    onto_itself = square.to(device)
    torch.mm(onto_itself, onto_itself, out=onto_itself)
    torch.testing.assert_close(onto_itself.cpu(), square @ square)


@pytest.mark.parametrize(
    ("b", "m", "k", "n"), [(3, 4, 5, 6), (2, 1, 70, 40), (5, 70, 33, 90), (0, 2, 3, 4), (4, 3, 0, 2)]
)
def test_batches(b: int, m: int, k: int, n: int, device: torch.device) -> None:
    a, x, c = numbers(b, m, k), numbers(b, k, n), numbers(m, n)
    assert_same(torch.bmm, a, x, device=device)
    assert_same(torch.baddbmm, numbers(b, 1, n), a, x, beta=2, alpha=3, device=device)
    assert_same(torch.addbmm, c, a, x, beta=2, alpha=3, device=device)
    assert_same(torch.bmm, a[:1].expand(b, m, k), x.transpose(1, 2).contiguous().transpose(1, 2), device=device)


def test_vectors(device: torch.device) -> None:
    a, v, w = numbers(33, 70), numbers(70), numbers(33)
    assert_same(torch.mv, a, v, device=device)
    assert_same(torch.mv, numbers(70, 33).t(), v, device=device)
    assert_same(torch.addmv, w, a, v, beta=3, alpha=2, device=device)
    assert_same(torch.dot, v, v, device=device)
    assert_same(torch.vdot, v, v, device=device)
    assert_same(torch.dot, numbers(150)[::2], numbers(75), device=device)
    assert_same(torch.dot, v[:0], v[:0], device=device)
    assert_same(torch.outer, v, w, device=device)
    assert_same(torch.addr, a, w, v, beta=0.5, alpha=2, device=device)
    assert_same(torch.addr, a.int(), w.int(), v.int(), beta=3, alpha=2, device=device)


COMPOSITES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "matmul 1-1": (torch.matmul, [(7,), (7,)]),
    "matmul 1-3": (torch.matmul, [(7,), (2, 7, 3)]),
    "matmul 3-1": (torch.matmul, [(2, 3, 7), (7,)]),
    "matmul 3-2": (torch.matmul, [(2, 3, 7), (7, 5)]),
    "matmul 2-3": (torch.matmul, [(3, 7), (2, 7, 5)]),
    "matmul 4-3": (torch.matmul, [(4, 2, 3, 7), (2, 7, 5)]),
    "linear 1": (F.linear, [(7,), (5, 7), (5,)]),
    "linear 2": (F.linear, [(3, 7), (5, 7), (5,)]),
    "linear 3": (F.linear, [(2, 3, 7), (5, 7), (5,)]),
    "linear no bias": (F.linear, [(2, 3, 7), (5, 7)]),
    "linear 70": (F.linear, [(70, 80), (90, 80), (90,)]),
    "bilinear": (F.bilinear, [(3, 4), (3, 5), (6, 4, 5), (6,)]),
    "einsum": (lambda a, x: torch.einsum("bij,bkj->bik", a, x), [(2, 3, 4), (2, 5, 4)]),
    "einsum sum": (lambda a, x: torch.einsum("bij,kj->k", a, x), [(2, 3, 4), (5, 4)]),
    "tensordot": (lambda a, x: torch.tensordot(a, x, dims=2), [(2, 3, 4), (3, 4, 5)]),
    "kron": (torch.kron, [(2, 3), (4, 2)]),
    "chain_matmul": (lambda *m: torch.linalg.multi_dot(m), [(2, 30), (30, 4), (4, 5)]),
    "matrix_power": (lambda a: torch.matrix_power(a, 5), [(4, 4)]),
    "baddbmm": (torch.baddbmm, [(2, 1, 5), (2, 3, 4), (2, 4, 5)]),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_differentiate(name: str, device: torch.device) -> None:
    fn, shapes = COMPOSITES[name]
    inputs = [torch.randn(s, requires_grad=True) for s in shapes]
    assert_same(fn, *inputs, device=device, rtol=1e-4, atol=1e-4)
    with torch.inference_mode():
        assert_same(fn, *inputs, device=device, rtol=1e-4, atol=1e-4)


def test_addmm_activation(device: torch.device) -> None:
    args = [torch.randn(5), torch.randn(3, 4), torch.randn(4, 5)]
    for use_gelu in (False, True):
        assert_same(torch._addmm_activation, *args, use_gelu=use_gelu, device=device)


def test_wrong_calls_raise_as_on_the_cpu(device: torch.device) -> None:
    a, x = numbers(3, 4).to(device), numbers(5, 6).to(device)
    with pytest.raises(RuntimeError, match=r"same reduction dim|cannot be multiplied"):
        torch.mm(a, x)
    with pytest.raises(RuntimeError):
        torch.mm(a, numbers(4, 6, dtype=torch.float64).to(device))


def _narrow(patch: pytest.MonkeyPatch, rows: int, nbytes: int) -> None:
    patch.setattr(gemm_cpu, "registers", lambda dtype: {"MR": rows, "VL": nbytes // dtype.itemsize})


def _always(patch: pytest.MonkeyPatch, name: str) -> None:
    """The way of that name for whatever it is able to make."""
    choose = gemm_cpu.pick
    patch.setattr(gemm_cpu, "DEEP", 40)
    patch.setattr(
        gemm_cpu, "pick", lambda b, p: next((w for w in gemm_cpu.able_ways(b, p) if w.name == name), choose(b, p))
    )


WAYS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "other chips": lambda patch: patch.setattr(gemm, "_route", lambda b: gemm._tile_alone),
    "vectors of 32 bytes": lambda patch: _narrow(patch, 6, 32),
    "vectors of 16 bytes": lambda patch: _narrow(patch, 8, 16),
    **{w.name: partial(_always, name=w.name) for w in gemm_cpu.WAYS if w.name != "parts"},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_kernel(way: str, device: torch.device, new_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    WAYS[way](monkeypatch)
    for m, k, n in [(1, 1, 1), (5, 7, 9), (7, 300, 33), (49, 100, 65), (130, 260, 140), (1, 200, 70), (9, 300, 20)]:
        for layout in ("nn", "nt", "tn", "tt"):
            a = numbers(m, k) if layout[0] == "n" else numbers(k, m).t()
            x = numbers(k, n) if layout[1] == "n" else numbers(n, k).t()
            assert_same(torch.addmm, numbers(n), a, x, beta=2, alpha=3, device=device, rtol=0, atol=0)
            if (m, n) in ((7, 33), (49, 65)):
                assert_same(torch.mm, a.half(), x.half(), device=device, rtol=0, atol=0)
                assert_same(torch.mm, a.double(), x.double(), device=device, rtol=0, atol=0)
    batch = numbers(3, 20, 30), numbers(3, 30, 40)
    assert_same(torch.bmm, *batch, device=device, rtol=0, atol=0)
    assert_same(torch.bmm, batch[0], batch[1][:1].expand(3, 30, 40), device=device, rtol=0, atol=0)
    assert_same(torch.addbmm, numbers(20, 40), *batch, device=device, rtol=0, atol=0)
    assert_same(torch.mm, numbers(20, 30, dtype=torch.bfloat16), numbers(30, 40, dtype=torch.bfloat16), device=device)


@pytest.mark.parametrize("k", [80, 121, 1000])
def test_deep_products_in_parts(k: int, device: torch.device, new_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_cpu, "DEEP", 40)
    for m, n in [(1, 1), (3, 5), (5, 3), (8, 20)]:
        a, x = numbers(m, k), numbers(k, n)
        assert_same(torch.mm, a, x, device=device, rtol=0, atol=0)
        assert_same(torch.mm, a.half(), x.half(), device=device, rtol=0, atol=0)
        assert_same(torch.addmm, numbers(n), a, x, beta=2, alpha=3, device=device, rtol=0, atol=0)
    assert_same(torch.dot, numbers(k), numbers(k), device=device, rtol=0, atol=0)


def test_written_as_columns(device: torch.device) -> None:
    def run(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape[1], a.shape[0], device=a.device).t()
        return torch.mm(a, x, out=out)

    for m, k, n in [(40, 50, 60), (3, 50, 60), (200, 150, 170)]:
        assert_same(run, numbers(m, k), numbers(k, n), device=device, rtol=0, atol=0)


def test_a_wrong_kernel_is_caught(device: torch.device, new_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    right = gemm.emit_gemm
    monkeypatch.setattr(
        "torch_fl.ops.matmul.emit_gemm", lambda b, out, a, x, **how: right(b, out, a, x, alpha=2, **how)
    )
    with pytest.raises(AssertionError):
        assert_same(torch.mm, numbers(5, 6), numbers(6, 7) + 1, device=device)


@pytest.mark.parametrize("shape", [(1,), (3, 4), (3, 1), ()])
def test_a_bias_that_broadcasts_leaves_other_linears_whole(device: torch.device, shape: tuple[int, ...]) -> None:
    x, w, odd, bias = (torch.randn(s, requires_grad=True) for s in ((3, 5), (4, 5), shape, (4,)))
    assert_same(F.linear, x, w, odd, device=device)
    y = F.linear(*to((x, w, bias), device)).sum()
    with torch_fl.trace() as t:
        y.backward()
    assert "aten::linear_backward" in [r.op for r in t]
