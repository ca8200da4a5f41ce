"""Which chip "npu" means where C++ would say the first: with several chips open, a few calls are told in Python.

torch asks our device guard for the current index, and a guard written in Python always answers 0. So `x.to("npu")`
under `torch.npu.device(1)`, and `x.to(y)` with y on npu:1, would end on npu:0. And where another name is lent
(names.py), C++ has nobody to ask at all. The wrappers are in place from the moment a second chip is opened, and while
a name is lent; other programs never pay for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._device import DeviceContext, _device_constructors

from .. import names
from ..runtime.devices import current_index
from .patches import Patch, Shared

FACTORIES = (
    "tensor", "as_tensor", "asarray", "scalar_tensor", "sparse_bsc_tensor", "sparse_bsr_tensor",
    "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor",
)  # fmt: skip
"""Functions that make a host tensor first and then move it."""

LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
"""Functions, and methods, that look at the shape, dtype and device of a tensor, not at its values."""


_NAMES = (str, torch.device)


def named(device: Any) -> Any:
    """A device argument that names our type, under the name that C++ knows and with the current chip's index."""
    if type(device) is str:
        if device in names.all_names():
            return names.own(current_index())
        if not device.startswith(names.all_names()):
            return device
        device = torch.device(device)
    if not isinstance(device, torch.device) or not names.is_ours(device):
        return device
    return names.own(current_index() if device.index is None else device.index)


def to(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Tensor.to with its device named."""

    @functools.wraps(original)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        first = args[0] if args else kwargs.get("device")
        if type(first) in _NAMES:
            if args:
                return original(self, named(first), *args[1:], **kwargs)
            kwargs["device"] = named(first)
        elif type(first) is not torch.dtype:
            other = first if args else kwargs.get("other")
            if isinstance(other, torch.Tensor) and names.is_ours(other.device) and other.get_device() > 0:
                kwargs.pop("other", None)
                return original(self, names.canonical(other.device), other.dtype, *args[1:], **kwargs)
        return original(self, *args, **kwargs)

    return to


def _type_as(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def type_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        indexed = any(names.is_ours(t.device) and t.get_device() > 0 for t in (self, other))
        return self.to(other) if indexed else original(self, other)

    return type_as


def factory(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function with its `device=` named."""

    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> torch.Tensor:
        if "device" in kwargs:
            kwargs["device"] = device = named(kwargs["device"])
            if args and isinstance(args[0], torch.Tensor) and names.canonical(args[0].device) == device:
                del kwargs["device"]  # it is there; C++, which knows index 0 only, would copy
        return original(*args, **kwargs)

    return factory


def _elsewhere(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function of a model tensor whose result goes where `device=` says: to C++ the model is on the first chip."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> torch.Tensor:
        model = args[0] if args else None
        if kwargs.get("device") is not None and isinstance(model, torch.Tensor) and names.is_ours(model.device):
            kwargs["device"] = device = named(kwargs["device"])
            if isinstance(device, torch.device) and device.type == names.OWN and device.index != model.get_device():
                args = (torch.empty_strided(model.shape, model.stride(), dtype=model.dtype, device=device), *args[1:])
        return original(*args, **kwargs)

    return make


def _in_context(original: Callable[..., Any]) -> Callable[..., Any]:
    """`with torch.device("npu")` and `torch.set_default_device("npu")`."""

    @functools.wraps(original)
    def function(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _device_constructors() and (kwargs or {}).get("device") is None:
            kwargs = {**(kwargs or {}), "device": named(self.device)}
        return original(self, func, types, args, kwargs)

    return function


def _all() -> Iterator[Patch]:
    yield Patch(torch.Tensor, "type_as", _type_as(torch.Tensor.type_as))
    yield Patch(torch.Tensor, "to", to(torch.Tensor.to))
    yield Patch(torch.Tensor, "new_tensor", factory(torch.Tensor.new_tensor))
    yield Patch(DeviceContext, "__torch_function__", _in_context(DeviceContext.__torch_function__))
    for name in FACTORIES:
        yield Patch(torch, name, factory(getattr(torch, name)))
    for name in LIKE:
        yield Patch(torch, name, _elsewhere(getattr(torch, name)))
    for name in NEW:
        yield Patch(torch.Tensor, name, _elsewhere(getattr(torch.Tensor, name)))


_calls = Shared(_all)


def wrap(reason: str = "chips") -> None:
    """Wrap the calls; done when a second chip is opened."""
    _calls.apply(reason)


def unwrap(reason: str) -> None:
    """Undo it, unless there is another reason."""
    _calls.undo(reason)
