"""A call of a cuDNN plan as a step: on this thread's stream, with a temporary as its room for work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_fl.builder import Builder
from torch_fl.refs import Ref

from ._cudnn_plans import CuDNN, Plan
from ._cupy_libraries import on_stream


def call(b: Builder, library: CuDNN, plan: Plan, refs: Sequence[Ref]) -> None:
    """Record a run of `plan`; `refs` are its operands in the order of their numbers."""
    backend: Any = b.device.backend
    room = b.temp((max(1, plan.workspace),), torch.uint8)

    def run(*places: tuple[Any, int, Ref]) -> None:
        starts = [handle.ptr + offset * ref.dtype.itemsize for handle, offset, ref in places]
        workspace = starts.pop()
        with on_stream(backend, [handle for handle, _, _ in places], in_turn=False) as queue:
            library.run(plan, dict(enumerate(starts, 1)), workspace, queue.ptr)

    b.function(run, *refs, room)
