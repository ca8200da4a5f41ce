"""The support matrix tells the truth: halves compute in float32, float64 where the chip has it."""

from __future__ import annotations

import pytest
import torch

import torch_fl


def test_every_device_and_dtype_has_a_row(device: torch.device) -> None:
    matrix = torch_fl.precision()
    assert {key[0] for key in matrix} == {f"npu:{i}" for i in range(torch_fl.device_count())}
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        assert matrix[device, dtype] is matrix[str(device), dtype]
        assert str(dtype).removeprefix("torch.") in repr(matrix)
    properties = torch.npu.get_device_properties(device)  # type: ignore[attr-defined]
    assert matrix[device, torch.float64].units == properties.fp64
    assert matrix[device, torch.bfloat16].units == properties.bf16
    assert matrix[device, torch.float16].autocast
    assert not matrix[device, torch.float64].autocast


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_stored_in_16_bits_and_summed_in_float32(device: torch.device, dtype: torch.dtype) -> None:
    support = torch_fl.precision()[device, dtype]
    assert (support.arithmetic, support.place) == (torch.float32, "the chip")
    x = torch.full((4096,), 1.0, dtype=dtype, device=device)
    assert x.untyped_storage().nbytes() == 2 * 4096
    assert x.sum().item() == 4096  # sums in 16 bits stop at 2048 (float16) and 256 (bfloat16)
    assert (x[None] @ x[:, None]).item() == 4096


def test_float64_is_computed_where_the_matrix_says(device: torch.device) -> None:
    support = torch_fl.precision()[device, torch.float64]
    x = torch.tensor([1.0, 1e-12], dtype=torch.float64, device=device)
    torch_fl.set_fallback("allow")
    with torch_fl.trace() as trace:
        assert (x.sum() - 1).item() != 0
    assert bool(trace.fallbacks()) == (support.place == "the CPU")
