"""The `*_copy` twins of views that torch has no decomposition for: the view, then a row-major copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..registry import find_overload, handler

_ATEN = torch.ops.aten
_VIEWS = ("as_strided", "narrow", "permute", "unbind.int", "view", "view.dtype")


def _copy(view: Any) -> Any:
    if isinstance(view, (list, tuple)):
        return [_copy(v) for v in view]
    return _ATEN.clone.default(view, memory_format=torch.contiguous_format)


def _copying(view: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return _copy(view(*args, **kwargs))

    return run


for _name in _VIEWS:
    _base, _, _overload = _name.partition(".")
    _twin = f"aten::{_base}_copy" + (f".{_overload}" if _overload else "")
    handler(_twin)(_copying(find_overload(f"aten::{_name}")))
