"""Fake tensors (torch.export, torch.compile, FakeTensorMode) are of our device, also those that a trace names cuda.

C++ asks for a guard of a fake tensor's device type where it must not raise; torch without CUDA has none for cuda, and
the process would end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .. import names
from .patches import Patch

_PLACE = 2
"""Of `device` among the positional arguments."""
_KEYWORDS = ("device", "fake_device", "_fake_device")


def _ours(device: Any) -> Any:
    return device if device is None else names.canonical(torch.device(device))


def _made(original: Callable[..., Any]) -> Callable[..., Any]:
    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) > _PLACE:
            args = (*args[:_PLACE], _ours(args[_PLACE]), *args[_PLACE + 1 :])
        kwargs |= {name: _ours(kwargs[name]) for name in _KEYWORDS if name in kwargs}
        return original(cls, *args, **kwargs)

    return __new__


def patches() -> Iterator[Patch]:
    """The constructor."""
    yield Patch(FakeTensor, "__new__", _made(FakeTensor.__new__))
