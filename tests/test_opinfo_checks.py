"""Tests of the checks: a device that accepts bad input, or returns another object, must be caught by them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import opinfo
import opinfo_errors
import pytest
import torch
from opinfo_compare import DEVICE, Comparison
from opinfo_errors import Wrong
from opinfo_variants import check_variants

from torch_fl import lenient, rejection
from torch_fl.errors import LateError
from torch_fl.runtime.guard import Guard

BAD = Wrong("a negative number", (torch.tensor([-1.0]),), {})


def _refuse(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("x must not be negative")


def _differently(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("wrong input")


def _as_missing(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("x must not be negative")


def _of_another_type(x: torch.Tensor) -> torch.Tensor:
    raise IndexError("x must not be negative")


def _on(device: Callable[[Any], Any], cpu: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An op with one behaviour on the device and another on the CPU."""
    return lambda x: (device if x.device.type == DEVICE.type else cpu)(x)


def test_the_same_error_is_right() -> None:
    assert opinfo_errors.check_error(_refuse, BAD, None) == 1


def test_what_the_cpu_takes_is_no_error() -> None:
    assert opinfo_errors.check_error(_on(_refuse, torch.neg), BAD, None) == 0


@pytest.mark.parametrize("device", [torch.neg, _differently, _as_missing, _of_another_type])
def test_another_error_or_none_is_caught(device: Callable[[Any], Any]) -> None:
    with pytest.raises(AssertionError, match="a negative number"):
        opinfo_errors.check_error(_on(device, _refuse), BAD, None)


def _compare() -> Comparison:
    return Comparison((1e-6, 1e-6), "float32")


def _checked(call: Callable[[Any], Any], in_place: bool = False) -> int:
    names = ("op", "method_variant", "operator_variant", "inplace_variant", "inplace_operator_variant")
    entry = SimpleNamespace(name="", **dict.fromkeys(names), aliases=[])
    setattr(entry, "inplace_variant" if in_place else "op", call)
    sample = SimpleNamespace(input=torch.tensor([1.0, -2.0]), args=(), kwargs={}, broadcasts_input=False)
    return check_variants(entry, sample, _compare())


def test_variants_that_do_the_same_are_right() -> None:
    assert _checked(torch.neg) == 2
    assert _checked(torch.Tensor.neg_, in_place=True) == 2


VARIANTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "another object": (lambda x: x.neg_().view_as(x), torch.Tensor.neg_, "returned"),
    "a view": (lambda x: x.view_as(x), torch.clone, "views"),
    "a version": (lambda x: x.mul_(1).neg(), torch.neg, "versions"),
    "no gradient": (lambda x: x.detach().neg(), torch.neg, "gradients"),
    "values": (torch.abs, torch.neg, "not close"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_that_differ_are_caught(name: str) -> None:
    device, cpu, told = VARIANTS[name]
    with pytest.raises(AssertionError, match=told):
        _checked(_on(device, cpu), in_place=cpu is torch.Tensor.neg_)


def _fails(group: str, name: str) -> str:
    return str(opinfo.outcome(opinfo.Node(group, "float32", name), 2 if group == "spoiled" else None)["error"])


@pytest.mark.device
def test_a_device_that_does_not_note_indices_is_caught(monkeypatch: pytest.MonkeyPatch, new_plans: None) -> None:
    assert not _fails("errors", "gather")
    monkeypatch.setattr(Guard, "check", lambda self: None)
    assert "accepted" in _fails("errors", "gather")
    monkeypatch.undo()
    with pytest.raises(LateError):
        torch.ones(1).to(DEVICE).cpu()


@pytest.mark.device
@pytest.mark.parametrize("node", [("errors", "nn.functional.conv1d"), ("spoiled", "index_copy")])
def test_a_device_that_believes_the_meta_kernels_is_caught(
    node: tuple[str, str], monkeypatch: pytest.MonkeyPatch, new_plans: None
) -> None:
    monkeypatch.setattr(lenient, "_ROWS", {})
    assert _fails(*node).startswith("AssertionError")


@pytest.mark.device
def test_a_device_that_does_not_ask_the_cpu_is_caught(monkeypatch: pytest.MonkeyPatch, new_plans: None) -> None:
    monkeypatch.setattr(rejection, "ask", lambda *call: rejection.Answer(False))
    assert "Expected 20 in dimension 2 but got 19" in _fails("errors", "cat")
