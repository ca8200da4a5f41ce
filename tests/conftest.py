"""One `device` fixture: every test that takes it runs on every device found (OpenCL and host, side by side)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TORCH_FL_BACKENDS", "opencl,host")
os.environ.setdefault("TORCH_FL_TUNE", "0")  # tests are of the rules' choice, whatever was measured on this machine

import pytest
import torch

import torch_fl  # noqa: F401 - registers the device where autoload is switched off
from torch_fl import dispatch, fallback
from torch_fl.runtime import devices

torch.backends.cudnn.allow_tf32 = False  # tests are of float32, not of what a library may take for it
_IDS = [f"{d.backend.name}{d.index}" for d in devices.devices()]


@pytest.fixture(params=range(len(_IDS)), ids=_IDS)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each opened device in turn."""
    return torch.device("npu", request.param)


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Every test draws the same inputs in every run."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _forbid_fallback() -> Any:
    """Ops must not fall back unless a test says so (`allow_fallback`)."""
    before = fallback.get_fallback()
    fallback.set_fallback("error")
    yield
    fallback.set_fallback(before)


@pytest.fixture
def allow_fallback(_forbid_fallback: None) -> None:
    """For tests of what a call computes, wherever it computes it."""
    fallback.set_fallback("allow")


@pytest.fixture
def new_plans() -> Any:
    """Plans made inside the test are its own: it changes how they are made."""
    dispatch.forget_plans()
    yield
    dispatch.forget_plans()


@pytest.fixture
def card(device: torch.device, new_plans: None, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The device with the kernels that a card gets: groups of work-items and local memory."""
    chip = devices.devices()[device.index]
    monkeypatch.setattr(chip, "is_cpu", False)
    monkeypatch.setattr(chip, "groups", True)
    if chip.backend.family == "cupy":  # the kernels are to be ours, not the library's
        monkeypatch.setattr(chip.backend.libraries, "used", False)
    return device


@pytest.fixture(params=["small", "large"])
def tile(request: pytest.FixtureRequest, card: torch.device, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The card where products that leave groups idle are made in small tiles, and where none is thought to."""
    chip = devices.devices()[card.index]
    units = 1 if request.param == "large" else 4
    monkeypatch.setattr(
        chip, "properties", chip.properties.__class__(**{**vars(chip.properties), "compute_units": units})
    )
    return card


if os.environ.get("TORCH_FL_TEST_SHAPES") == "card":  # the same for every test
    for _chip in devices.devices():
        _chip.is_cpu, _chip.groups = False, True


def to(value: Any, device: Any) -> Any:
    """Tensors in nested lists, tuples and dicts, moved; leaves that require grad stay leaves."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(to(v, device) for v in value)
    if isinstance(value, dict):
        return {k: to(v, device) for k, v in value.items()}
    return value


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _leaves(v)] if isinstance(value, (list, tuple)) else []


def assert_same(
    fn: Callable[..., Any], *args: Any, device: torch.device, rtol: Any = None, atol: Any = None, **kwargs: Any
) -> None:
    """fn gives the same on `device` as on the CPU: values, dtypes, shapes, strides, and gradients of leaves."""
    here = to((args, kwargs), device)
    want = fn(*args, **kwargs)
    got = fn(*here[0], **here[1])
    torch.testing.assert_close(to(got, "cpu"), want, rtol=rtol, atol=atol, equal_nan=True, check_stride=True)
    roots = [t for t in _leaves(want) if t.requires_grad]
    leaves = [t for t in _leaves((args, kwargs)) if t.requires_grad]
    if not roots or not leaves:
        return
    grads = [torch.linspace(-1, 1, t.numel(), dtype=torch.float32).view(t.shape).to(t.dtype) for t in roots]
    want_grads = torch.autograd.grad(roots, leaves, grads, allow_unused=True)
    got_roots = [t for t in _leaves(got) if t.requires_grad]
    got_leaves = [t for t in _leaves(here) if t.requires_grad]
    got_grads = torch.autograd.grad(got_roots, got_leaves, to(grads, device), allow_unused=True)
    torch.testing.assert_close(to(got_grads, "cpu"), want_grads, rtol=rtol, atol=atol, equal_nan=True)
