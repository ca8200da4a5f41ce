"""torch.equal gives a bool, as on the CPU."""

from __future__ import annotations

import pytest
import torch

NAN = torch.tensor([float("nan"), 1.0])
WIDE = torch.arange(12).reshape(3, 4)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (NAN, NAN),
        (NAN[1:], NAN[1:].clone()),
        (NAN, NAN[1:]),
        (NAN[:0], NAN[:0].clone()),
        (NAN[1:], NAN[1:].half()),
        (torch.tensor([1.5]), torch.tensor([1])),
        (WIDE, WIDE.t().contiguous().t()),
        (WIDE[:, ::2], WIDE[:, 1::2]),
        (torch.tensor(True), torch.tensor(True)),
    ],
)
def test_equal(device: torch.device, a: torch.Tensor, b: torch.Tensor) -> None:
    here = a.to(device)
    assert torch.equal(here, here if b is a else b.to(device)) is torch.equal(a, b)
