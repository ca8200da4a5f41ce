"""Steps recorded outside their plan: for a step that chooses at each replay what is run.

A plan is made once, but what a vendor's library may do can change between two replays (a switch of torch, an address).
Such a step keeps an `Aside`, and records what it needs when it first needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .builder import Builder
from .infer import Inferred
from .plan import Step
from .spec import contiguous_spec


class Aside:
    """The slots that a Builder has at this moment; later steps may read and write these and no others."""

    def __init__(self, b: Builder) -> None:
        self._device = b.device
        hole = contiguous_spec((1,), torch.uint8, b.device)
        self._slots = [*b.inputs, *[hole] * len(b.allocs)]

    def step(self, emit: Callable[[Builder], None]) -> Step:
        """What `emit` records, as one step of the plan, with temporaries of its own. Raises what `emit` raises."""
        inner = Builder(self._device, self._slots, Inferred((), lambda flat: None))
        emit(inner)
        steps, allocs, known = tuple(inner.steps), tuple(inner.allocs), len(self._slots)
        allocate = self._device.allocate

        def run(handles: list[Any], offsets: list[int], values: Sequence[Any]) -> None:
            buffers = [allocate(a) if type(a) is int else a for a in allocs]
            places = [*handles[:known], *(x.handle for x in buffers)]  # type: ignore[union-attr]
            starts = [*offsets[:known], *[0] * len(buffers)]
            for step in steps:
                step(places, starts, values)

        return run
