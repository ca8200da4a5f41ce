"""cat, stack, flip, roll, triangles, repeats: elements moved, none computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_same


def _x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_()


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cat": (lambda *x: torch.cat(x), (_x(2, 3), _x(4, 3), _x(1, 3))),
    "cat negative dim": (lambda *x: torch.cat(x, -1), (_x(2, 3), _x(2, 1))),
    "cat legacy empty": (lambda *x: torch.cat(x, 1), (torch.empty(0), _x(2, 3), _x(2, 1))),
    "cat empty": (lambda *x: torch.cat(x, 1), (_x(2, 0), _x(2, 3))),
    "cat promotes": (lambda *x: torch.cat(x), (_x(3), torch.arange(4), torch.ones(2).half())),
    "cat strided": (lambda x, y: torch.cat([x.t(), y[::2].expand(2, 3)], 0), (_x(3, 4), _x(2, 3))),
    "cat channels_last": (
        lambda x: torch.cat([x, x], 1),
        (_x(2, 3, 4, 5).detach().to(memory_format=torch.channels_last),),
    ),
    "cat of many": (lambda x: torch.cat([x[i : i + 1] for i in range(30)]), (_x(30, 5),)),
    "stack": (lambda *x: torch.stack(x, 1), (_x(2, 3), _x(2, 3))),
    "flip": (lambda x: x.flip(0, 2), (_x(2, 3, 4),)),
    "flip strided": (lambda x: x.t()[::2].flip(1), (_x(6, 5),)),
    "flip 0-dim": (lambda x: x.flip(0), (_x(),)),
    "roll": (lambda x: x.roll((1, -5, 2), (0, 1, 0)), (_x(4, 3),)),
    "roll flat": (lambda x: x.t().roll(5), (_x(4, 3),)),
    "tril": (lambda x: x.tril(-1), (_x(2, 5, 7),)),
    "triu strided": (lambda x: x.t().triu(2), (_x(5, 7),)),
    "tril in place": (lambda x: x.clone().tril_(), (_x(5, 7),)),
    "repeat": (lambda x: x.repeat(2, 1, 3), (_x(4, 3),)),
    "tile": (lambda x: x.tile(2), (_x(4, 3),)),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1), (_x(4, 3),)),
    "pad": (lambda x: torch.nn.functional.pad(x, (1, -1, 2, 0), value=2), (_x(4, 3),)),
    "split": (lambda x: [y * 2 for y in x.split(2)], (_x(5, 3),)),
    "diag_embed": (lambda x: x.diag_embed(1), (_x(4, 3),)),
    "rot90": (lambda x: x.rot90(1, (0, 1)), (_x(4, 3),)),
    "trace": (lambda x: x.trace(), (_x(4, 3),)),
    "block_diag": (lambda x, y: torch.block_diag(x, y), (_x(4, 3), _x(2, 2))),
    "permute_copy": (lambda x: torch.permute_copy(x, (1, 0)), (_x(4, 3),)),
    "unbind_copy": (lambda x: torch.unbind_copy(x, 1), (_x(4, 3),)),
    "pixel_shuffle": (lambda x: torch.nn.functional.pixel_shuffle(x, 2), (_x(1, 8, 2, 3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_moves(name: str, device: torch.device) -> None:
    fn, args = CASES[name]
    assert_same(fn, *args, device=device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8, torch.bool, torch.complex64])
def test_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.arange(60).view(3, 4, 5).to(dtype)
    assert_same(
        lambda x: [x.flip(1), x.roll(1, 0), x.tril(), x.transpose(0, 2).triu(1), torch.stack([x, x]), x[1:].flip(0)],
        x,
        device=device,
    )


def test_errors_are_torchs(device: torch.device) -> None:
    x = torch.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        torch.cat([x, torch.ones(3, 3, device=device)], 1)
    with pytest.raises(IndexError, match="out of range"):
        torch.cat([x, x], 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.float16, torch.complex128], ids=str)
@pytest.mark.parametrize("shape", [(3, 17), (5, 64), (7, 129), (2, 1023), (300, 500)], ids=str)
def test_copies_of_runs(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    x = (torch.randn(shape) * 10).to(dtype)
    d = x.to(device)
    for cut in (slice(1, None), slice(None, -1), slice(2, -1)):
        assert torch.equal(d[:, cut].contiguous().cpu(), x[:, cut])
        into = torch.zeros_like(d)
        into[:, cut] = d[:, cut]
        want = torch.zeros_like(x)
        want[:, cut] = x[:, cut]
        assert torch.equal(into.cpu(), want)
    assert torch.equal(d.flip(0).cpu(), x.flip(0))
    assert torch.equal(d.repeat(2, 3).cpu(), x.repeat(2, 3))
    assert torch.equal(d[:, None].expand(-1, 3, -1).contiguous().cpu(), x[:, None].expand(-1, 3, -1))
    for dim in (0, 1, -1):
        assert torch.equal(
            torch.cat([d, d[:1].expand(shape), d], dim).cpu(), torch.cat([x, x[:1].expand(shape), x], dim)
        )
        assert torch.equal(torch.stack([d, d.flip(0), d], dim).cpu(), torch.stack([x, x.flip(0), x], dim))


def test_cat_of_many(device: torch.device) -> None:
    for count in (100, 128, 129, 200):
        rows = [torch.randn(3, k % 4) for k in range(count)]
        assert torch.equal(torch.cat([r.to(device) for r in rows], 1).cpu(), torch.cat(rows, 1))
        numbers = [torch.tensor(float(k)) for k in range(count)]
        assert torch.equal(torch.stack([n.to(device) for n in numbers]).cpu(), torch.stack(numbers))


def test_every_float16(device: torch.device) -> None:
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    torch.testing.assert_close(halves.to(device).float().cpu(), halves.float(), rtol=0, atol=0, equal_nan=True)
    edges = torch.tensor([0.0, -0.0, 65504.0, 65519.0, 65520.0, -65520.0, 5.97e-8, 2.98e-8, 2.99e-8, 6.1e-5, torch.inf])
    floats = torch.cat([edges, torch.tensor([torch.nan, 1e-45]), torch.randn(100_003), torch.randn(9999) * 1e-5])
    for x in (floats, floats[1:], floats[:7], floats[::3]):
        torch.testing.assert_close(x.to(device).half().cpu(), x.half(), rtol=0, atol=0, equal_nan=True)
