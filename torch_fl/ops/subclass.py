"""Users' tensor classes on the device: `x.as_subclass(C)`, which is also how an op on a C keeps its class.

A tensor has one Python class, and ours brings ops to the device. So what users get is of a class that is both: theirs
first, for methods and `__torch_function__`; ops then see plain tensors of ours.
"""

from __future__ import annotations

import threading
import types
from typing import Any

import torch

from ..infer import map_tensors
from ..registry import handler
from ..tensor import Tensor, set_content, wrap, wrap_view

_classes: dict[type, type] = {}


class _Wanted(threading.local):
    cls: type | None = None


_wanted = _Wanted()


def as_subclass(self: Tensor, cls: Any) -> Any:
    """The same tensor as an instance of `cls`, as torch's: it shares memory and gradients.

    Raises RuntimeError for classes that dispatch ops themselves, and for nn.Parameter.
    """
    if not issubclass(cls, Tensor) and cls is not torch.Tensor:
        if issubclass(cls, torch.nn.Parameter) or cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return torch._C.TensorBase.as_subclass(self, cls)  # which says why not
        cls = both(cls)
    outer, _wanted.cls = _wanted.cls, None if cls is torch.Tensor else cls
    try:
        with torch._C.DisableTorchFunctionSubclass():
            return torch.ops.aten.alias.default(self)
    finally:
        _wanted.cls = outer


@handler("aten::alias")
def alias(self: Tensor) -> Tensor:
    """A view of all of it, of the class that as_subclass wants."""
    view = wrap_view(self, self._spec, self._offset)
    if _wanted.cls is not None:
        view.__class__ = _wanted.cls
    return view


def both(cls: type) -> type:
    """The class of device tensors that are instances of `cls` too."""
    if cls not in _classes:
        _classes[cls] = types.new_class(cls.__name__, (cls, Tensor), exec_body=lambda body: body.update(_body(cls)))
    return _classes[cls]


def _body(cls: Any) -> dict[str, Any]:
    def __torch_function__(made: type, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        # As `cls` alone: what comes back on the host is of that class, on the device of both.
        return cls.__torch_function__(func, tuple(cls if k is made else k for k in kinds), args, kwargs)

    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return {
        **names, "__new__": cls.__new__,
        "__torch_function__": classmethod(__torch_function__), "__torch_dispatch__": staticmethod(_on_plain),
    }  # fmt: skip


def _on_plain(func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The op on plain tensors over the same memory; what it does to their layout is done to the originals."""
    stripped: dict[int, tuple[Tensor, Tensor]] = {}

    def strip(tensor: torch.Tensor) -> torch.Tensor:
        if type(tensor) is Tensor or not isinstance(tensor, Tensor):
            return tensor
        plain = wrap(tensor._buffer, tensor._spec, tensor._offset)
        stripped[id(plain)] = plain, tensor
        return plain

    moved = {k: map_tensors(v, strip) for k, v in (kwargs or {}).items()}
    result = Tensor.__torch_dispatch__(func, kinds, tuple(map_tensors(a, strip) for a in args), moved)
    for plain, tensor in stripped.values():
        if plain._spec is not tensor._spec or plain._buffer is not tensor._buffer:
            set_content(tensor, plain)
    return map_tensors(result, lambda t: stripped[id(t)][1] if id(t) in stripped else t)
