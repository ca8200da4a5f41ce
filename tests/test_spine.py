"""The route end to end on every device: make, move, compute, differentiate."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_same

from torch_fl import dispatch, registry


def test_made_on_the_device(device: torch.device) -> None:
    x = torch.tensor([1.0, 2.0, 3.0], device=device)
    assert x.device == device
    torch.testing.assert_close(x.cpu(), torch.tensor([1.0, 2.0, 3.0]))


def test_add_broadcasts_and_differentiates(device: torch.device) -> None:
    x = torch.randn(4, 1, 3, requires_grad=True)
    y = torch.randn(5, 3, requires_grad=True)
    assert_same(lambda a, b: a * b + 2 * a, x, y, device=device)


def test_views_share_memory(device: torch.device) -> None:
    x = torch.zeros(4, 6, device=device)
    x.t()[1:3].add_(1)
    want = torch.zeros(4, 6)
    want.t()[1:3].add_(1)
    torch.testing.assert_close(x.cpu(), want)


def test_cpu_tensor_is_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(3, device=device) + torch.ones(3)


def test_numbers_that_an_in_place_kernel_wants_are_in_its_key(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    func, x = torch.ops.aten.clamp_min_.default, torch.ones(3, device=device)
    before = dispatch.Op(func)
    assert before.bind((x, 1.0), {})[0] == before.bind((x, 2.0), {})[0]
    entry = registry.Kernel("aten::clamp_min_", print, backend="another", static=("min",))
    monkeypatch.setitem(registry.registered(), func, {"another": entry})
    after = dispatch.Op(func)
    assert after.bind((x, 1.0), {})[0] != after.bind((x, 2.0), {})[0]


def test_a_library_brings_the_kernel_of_its_op(device: torch.device) -> None:
    library = torch.library.Library("of_a_library", "FRAGMENT")
    library.define("put(Tensor x, Tensor into) -> ()")  # a schema that does not say what is written

    def put(x: torch.Tensor, into: torch.Tensor) -> None:
        into.copy_(x + 1)

    library.impl("put", put, "PrivateUse1")
    into = torch.zeros(2, device=device)
    torch.ops.of_a_library.put(torch.ones(2, device=device), into)
    assert into.tolist() == [2, 2]
