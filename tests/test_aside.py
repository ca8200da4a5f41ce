"""Steps recorded outside their plan: they see the slots of their time, and have temporaries of their own."""

from __future__ import annotations

import torch

from torch_fl.aside import Aside
from torch_fl.builder import Builder
from torch_fl.infer import Inferred
from torch_fl.runtime import devices


def test_a_step_of_its_own_beside_a_plan_that_goes_on(device: torch.device) -> None:
    chip = devices.devices()[device.index]
    x, out, more = torch.arange(8.0, device=device), torch.zeros(6, device=device), torch.ones(9, device=device)
    b = Builder(chip, [x._spec], Inferred((), lambda flat: None))
    source, target = b.ref(0).narrow(0, 2, 6), b.temp((6,), torch.float32)
    aside = Aside(b)
    b.temp((9,), torch.float32)  # the plan goes on: this slot is not the step's

    def emit(inner: Builder) -> None:
        flipped = inner.temp((2, 3), torch.float64 if inner.fp64 else torch.float32)
        inner.copy(flipped, source.view(3, 2).transpose(0, 1))
        inner.copy(target, flipped.view(6))

    step = aside.step(emit)
    for _ in range(2):
        step([t._buffer.handle for t in (x, out, more)], [0, 0, 0], ())
        torch.testing.assert_close(out.cpu(), torch.tensor([2.0, 4.0, 6.0, 3.0, 5.0, 7.0]))
        out.zero_()
    assert more.sum().item() == 9
