"""Where time goes besides kernels: the parts of a small op's dispatch, and copies between host and device."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import torch

from ..compat import npu
from .timing import Work, seconds


@dataclass(frozen=True)
class Part:
    """One line of the second table, in microseconds."""

    name: str
    microseconds: float


class _Bare(torch.Tensor):
    """A wrapper whose __torch_dispatch__ does nothing: torch's own share of the cost."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return args[0]


def _dispatch_works(device: torch.device) -> dict[str, Work]:
    from ..dispatch import op_of
    from ..tensor import wrap

    x: Any = torch.randn(4, 4).to(device)
    y: Any = torch.randn(4, 4).to(device)
    torch.add(x, y)
    op = op_of(torch.ops.aten.add.Tensor)
    key, _, values = op.bind((x, y), {})
    plan: Any = op.plans[key]
    chip = x._spec.device
    handles, offsets = [x._buffer.handle, y._buffer.handle, chip.allocate(64).handle], [0, 0, 0]
    bare = torch.Tensor._make_wrapper_subclass(_Bare, (4, 4))

    def lookup() -> Any:
        found, _, _ = op.bind((x, y), {})
        return op.plans.get(found)

    return {
        "torch: __torch_dispatch__ that does nothing": lambda: torch.add(bare, bare),
        "route lookup on a hit (bind arguments, find plan)": lookup,
        "allocate the output": lambda: chip.allocate(64),
        "set arguments and enqueue": lambda: plan.steps[0](handles, offsets, values),
        "wrap the output": lambda: wrap(x._buffer, x._spec),
        "whole add 4x4": lambda: torch.add(x, y),
    }


def _copy_works(device: torch.device) -> dict[str, Work]:
    one = torch.ones(()).to(device)
    here = torch.ones(1 << 22)
    there = here.to(device)
    return {
        "item() of one element": lambda: one.item(),
        "16 MiB to the device": lambda: here.to(device),
        "16 MiB to the host": lambda: there.cpu(),
        "16 MiB from host to host (torch)": lambda: here.clone(),
    }


def parts(device: torch.device, rounds: int) -> list[Part]:
    """What a 4x4 add costs on a plan-cache hit, part by part; then the copies."""
    groups = [(_dispatch_works(device), 500), (_copy_works(device), 5)]
    found = []
    for works, calls in groups:
        times: dict[str, list[float]] = {n: [] for n in works}
        for _ in range(rounds):
            for name, work in works.items():
                times[name].append(seconds(work, calls, lambda: None))
                npu.synchronize(device)
        found += [Part(n, 1e6 * statistics.median(t)) for n, t in times.items()]
    return found
