"""out=: what is resized, what is cast, what is refused, and what is left alone, as on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch


def test_a_wrong_size_is_resized_with_torchs_warning(device: torch.device) -> None:
    a = torch.arange(3.0, device=device)
    calls: list[Callable[..., Any]] = [
        torch.neg,
        lambda x, out: torch.mm(x[:, None], x[None], out=out),
        lambda x, out: torch.sum(x[None], 0, out=out),
    ]
    for call in calls:
        out = torch.ones(4, 4, device=device)
        with pytest.warns(UserWarning, match=r"was resized since it had shape \[4, 4\], which does not match"):
            assert call(a, out=out) is out
        torch.testing.assert_close(out.cpu(), call(a.cpu(), out=torch.empty(0)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert call(a, out=torch.empty(0, device=device)).shape == out.shape


def test_the_rest_of_a_larger_tensor_is_untouched(device: torch.device) -> None:
    base = torch.full((4, 6), 7.0, device=device)
    torch.exp(torch.zeros(2, 3, device=device), out=base[1:3, ::2])
    want = torch.full((4, 6), 7.0)
    want[1:3, ::2] = 1
    torch.testing.assert_close(base.cpu(), want)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: torch.add(x, 1, out=out),
        lambda x, out: torch.neg(x, out=out),
        lambda x, out: torch.mm(x, x, out=out),
        lambda x, out: torch.cumsum(x, 0, out=out),
        lambda x, out: torch.linalg.cross(x[:, :3], x[:, 1:4], out=out),
        lambda x, out: torch.index_select(x, 0, torch.tensor([1, 0], device=x.device), out=out),
    ],
    ids=["add", "neg", "mm", "cumsum", "cross", "index_select"],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32], ids=str)
def test_another_dtype_is_cast_or_refused_as_on_the_cpu(
    device: torch.device, allow_fallback: None, call: Callable[..., Any], dtype: torch.dtype
) -> None:
    x = torch.arange(16.0).view(4, 4)
    found = []
    for where in (torch.device("cpu"), device):
        out = torch.empty(0, dtype=dtype, device=where)
        try:
            found.append(call(x.to(where), out).cpu())
        except RuntimeError as error:
            found.append(str(error).splitlines()[0])
    if isinstance(found[0], str):
        assert found[1] == found[0]
    else:
        torch.testing.assert_close(found[1], found[0])


def test_matmul_and_matrix_rank_write_their_out(device: torch.device) -> None:
    a, b = torch.randn(3, 4, 5), torch.randn(5, 2)
    out = torch.empty(3, 4, 2, device=device)
    assert torch.matmul(a.to(device), b.to(device), out=out) is out
    torch.testing.assert_close(out.cpu(), a @ b)
    leaf = b.to(device).requires_grad_()
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.matmul(a.to(device), leaf, out=out)


def test_batch_norm_writes_its_outs_and_statistics(device: torch.device) -> None:
    x, found = torch.randn(4, 3, 5), []
    for where in (torch.device("cpu"), device):
        mean, var = torch.zeros(3, device=where), torch.ones(3, device=where)
        outs = [torch.empty(0, device=where) for _ in range(3)]
        torch.ops.aten._native_batch_norm_legit.out(
            x.to(where), None, None, mean, var, True, 0.1, 1e-5, out=outs[0], save_mean=outs[1], save_invstd=outs[2]
        )
        found.append([t.cpu() for t in (*outs, mean, var)])
    torch.testing.assert_close(found[1], found[0])
