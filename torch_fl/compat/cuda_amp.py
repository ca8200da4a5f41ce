"""Autocast state under CUDA's name: `torch.autocast("cuda")` switches on what casts our ops."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import names
from .patches import Patch

NAMED = ("get_autocast_dtype", "set_autocast_dtype")
"""Functions of torch whose first argument is a device type."""

SHORT = {
    "get_autocast_gpu_dtype": "get_autocast_dtype",
    "set_autocast_gpu_dtype": "set_autocast_dtype",
    "is_autocast_enabled": "is_autocast_enabled",
    "set_autocast_enabled": "set_autocast_enabled",
}
"""Functions that mean CUDA where no device type is given -> the form that takes one."""


def _renamed(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(device_type: Any, *args: Any) -> Any:
        return original(names.OWN if device_type == "cuda" else device_type, *args)

    return function


def _completed(original: Callable[..., Any], full: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        if given and isinstance(given[0], str):
            return full(names.OWN if given[0] == "cuda" else given[0], *given[1:])
        return full(names.OWN, *given)

    return function


def patches() -> Iterator[Patch]:
    """Functions of torch."""
    for name in NAMED:
        yield Patch(torch, name, _renamed(getattr(torch, name)))
    for name, full in SHORT.items():
        yield Patch(torch, name, _completed(getattr(torch, name), getattr(torch, full)))
