"""What `torch-fl tune` measures: products and convolutions of many proportions, forward and backward.

Each is run once; whatever problems its kernels meet on the way are measured.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from ..bench.ops import CONVOLUTIONS, PRODUCTS, backward, forward
from ..bench.timing import Case
from ..runtime.device import Device
from . import ways, winners

_SQUARE = (512, 1024, 2048)
_ODD = ((511, 511, 511), (1000, 37, 4096), (100, 1000, 100), (333, 777, 129))
_SKINNY = ((1, 512, 512), (1, 1024, 1024), (1, 4096, 4096), (8, 1024, 1024), (32, 1024, 1024), (64, 4096, 64))


def _products() -> dict[str, Case]:
    sizes = [*((n, n, n) for n in _SQUARE), *_ODD, *_SKINNY]
    found = {f"mm {m}x{k}x{n}": forward(torch.mm, (m, k), (k, n)) for m, k, n in sizes}
    found |= {f"linear {m}x{k}x{n}": backward(F.linear, (m, k), (n, k), (n,)) for m, k, n in sizes}
    found["bmm 16x256x64x256"] = backward(torch.bmm, (16, 256, 64), (16, 64, 256))
    found["bmm 256x8x64x8"] = forward(torch.bmm, (256, 8, 64), (256, 64, 8))
    return found


PROBLEMS: dict[str, Case] = {**PRODUCTS, **_products(), **CONVOLUTIONS}
"""By name; those of the benchmark among them."""

BUDGET = 1.0
"""Seconds for one problem."""


def measure(
    device: Device, told: Callable[[Device, str, winners.Entry], None], names: str = "", budget: float = BUDGET
) -> None:
    """Measure the problems whose name contains `names` on a device, and keep what wins; `told` hears of each."""
    place = torch.device("npu", device.index)
    with ways.Everything(budget, told):
        for name, case in PROBLEMS.items():
            if names in name:
                torch.manual_seed(0)
                with torch.set_grad_enabled(case.grad):
                    case.make(place)()
                device.synchronize()
