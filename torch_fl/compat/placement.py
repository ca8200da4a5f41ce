"""Which chip "npu" means where C++ would say the first: with several chips open, a few calls are told in Python.

torch asks our device guard for the current index, and a guard written in Python always answers 0. So `x.to("npu")`
under `torch.npu.device(1)`, and `x.to(y)` with y on npu:1, would end on npu:0. The wrappers are put in place when a
second chip is opened; a program with one chip never pays for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import DeviceContext, _device_constructors

FACTORIES = ("tensor", "as_tensor", "asarray", "scalar_tensor")
"""Functions that make a host tensor first and then move it."""


def _named(device: Any) -> Any:
    """`device` with the current chip's index where it names our type without one."""
    from ..runtime.devices import current_index

    if isinstance(device, str) and device == "npu":
        return torch.device("npu", current_index())
    if isinstance(device, torch.device) and device.type == "npu" and device.index is None:
        return torch.device("npu", current_index())
    return device


def _to(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        other = args[0] if args else kwargs.get("other")
        if isinstance(other, torch.Tensor):
            if other.device.type == "npu" and other.get_device() > 0:
                kwargs = {k: v for k, v in kwargs.items() if k != "other"}
                return original(self, other.device, other.dtype, *args[1:], **kwargs)
        elif args:
            args = (_named(other), *args[1:])
        elif "device" in kwargs:
            kwargs = {**kwargs, "device": _named(kwargs["device"])}
        return original(self, *args, **kwargs)

    return to


def _type_as(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def type_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        indexed = any(t.device.type == "npu" and t.get_device() > 0 for t in (self, other))
        return self.to(other) if indexed else original(self, other)

    return type_as


def _factory(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> torch.Tensor:
        if "device" in kwargs:
            kwargs["device"] = _named(kwargs["device"])
        return original(*args, **kwargs)

    return factory


def _in_context(original: Callable[..., Any]) -> Callable[..., Any]:
    """`with torch.device("npu")` and `torch.set_default_device("npu")`."""

    @functools.wraps(original)
    def function(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _device_constructors() and (kwargs or {}).get("device") is None:
            kwargs = {**(kwargs or {}), "device": _named(self.device)}
        return original(self, func, types, args, kwargs)

    return function


def install() -> None:
    """Wrap the calls; done once, when a second chip is opened."""
    if "to" in vars(torch.Tensor):
        return
    _device_constructors()  # remembers the functions under which C++ knows these
    torch.Tensor.type_as = _type_as(torch.Tensor.type_as)  # type: ignore[method-assign]
    context: Any = DeviceContext
    context.__torch_function__ = _in_context(context.__torch_function__)
    torch.Tensor.to = _to(torch.Tensor.to)  # type: ignore[method-assign]
    for name in FACTORIES:
        setattr(torch, name, _factory(getattr(torch, name)))
