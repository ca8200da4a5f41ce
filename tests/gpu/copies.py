"""Copies between host and cards: that they are right, and GB/s: `python tests/gpu/copies.py [--json FILE] [--small]`.

Plain memory, pinned memory (which must not make the host wait), and a second card where there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from command import arguments, write

from torch_fl.runtime.devices import devices

Copy = tuple[str, torch.Tensor, Callable[[], torch.Tensor]]
"""Name, what must arrive, and what makes the copy; it may come back before it is done."""


def copies(n: int) -> Iterator[Copy]:
    """Copies of n floats."""
    x = torch.randn(n)
    there = x.to("npu:0")
    pinned = x.pin_memory()  # behind the first use of the card: memory is pinned by cards that are open
    yield "to the card", x, lambda: x.to("npu:0")
    yield "from the card", x, lambda: there.cpu()
    yield "within the card", x, lambda: there.clone()
    if pinned.is_pinned():
        target = torch.empty(n, pin_memory=True)
        yield "to the card, pinned", x, lambda: pinned.to("npu:0", non_blocking=True)
        yield "from the card, pinned", x, lambda: target.copy_(there, non_blocking=True)
    if len(devices()) > 1:
        yield "to another card", x, lambda: there.to("npu:1")


def wait() -> None:
    """Until every card has done what it was told."""
    for chip in devices():
        chip.synchronize()


def measure(n: int, times: int) -> dict[str, dict[str, Any]]:
    """GB/s of each copy, and the share of that time in which the host was held up. Raises where one is wrong."""
    found: dict[str, dict[str, Any]] = {}
    for name, expected, copy in copies(n):
        got = copy()
        wait()
        torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)
        start = time.perf_counter()
        kept = [copy() for _ in range(times)]
        back = time.perf_counter()
        wait()
        took = time.perf_counter() - start
        del kept
        found[name] = {"GB/s": 4 * n * times / took / 1e9, "host": (back - start) / took}
    return found


def main() -> None:
    """Measure, print, and write."""
    args = arguments(__doc__)
    found = measure(1 << 18, 2) if args.small else measure(1 << 26, 5)
    for name, line in found.items():
        print(f"{name:24} {line['GB/s']:8.2f} GB/s, the host held up for {line['host']:.0%}")
    write(found, args.json)


if __name__ == "__main__":
    main()
