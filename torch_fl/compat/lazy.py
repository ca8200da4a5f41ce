"""Parameters and buffers of lazy modules: they hold no data, and C++ makes objects of their classes of plain tensors.

So one that is on the device stays a plain object, which knows where its data will be.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.nn import parameter

from .. import names

_HOME = "_torch_fl_home"
T = TypeVar("T", bound=torch.Tensor)
_Mixin: Any = vars(parameter)["UninitializedTensorMixin"]  # torch does not export it


def home_of(tensor: torch.Tensor) -> torch.device | None:
    """The device of ours where a lazy parameter or buffer will be; None for all others."""
    return vars(tensor).get(_HOME) if parameter.is_lazy(tensor) else None


def moved(tensor: T, fn: Callable[[torch.Tensor], torch.Tensor]) -> T:
    """A lazy parameter or buffer, the same object, after what `fn` does to a tensor's device and dtype."""
    made = fn(torch.empty(0, dtype=tensor.data.dtype, device=home_of(tensor) or tensor.data.device))
    vars(tensor).pop(_HOME, None)
    if names.is_ours(made.device):
        vars(tensor)[_HOME] = made.device
        made = torch.empty(0, dtype=made.dtype, device="cpu")
    if made.dtype != tensor.data.dtype or made.device != tensor.data.device:
        tensor.data = made
    return tensor


def _made(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __new__(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        device = bound.arguments.get("device")
        where = torch.get_default_device() if device is None else torch.device(device)
        if not names.is_ours(where):
            return original(*args, **kwargs)
        bound.arguments["device"] = "cpu"
        made = original(*bound.args, **bound.kwargs)
        vars(made)[_HOME] = where
        return made

    return __new__


def _materialize(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        where = home_of(self) if device is None else torch.device(device)
        if where is None or not names.is_ours(where):
            original(self, shape, device, dtype)
            return
        from ..virtual import replace_content

        content = torch.empty(shape, device=where, dtype=dtype or self.data.dtype)
        vars(self).pop(_HOME, None)
        self.__class__ = self.cls_to_become
        replace_content(self, content)

    return materialize


def install() -> None:
    """Wrap the constructors and `materialize`; done once, at registration."""
    for cls in (parameter.UninitializedParameter, parameter.UninitializedBuffer):
        cls.__new__ = staticmethod(_made(cls.__new__))  # type: ignore[method-assign]
    _Mixin.materialize = _materialize(_Mixin.materialize)
