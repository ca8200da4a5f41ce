"""Kernels that a chip's library may serve instead."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from ..builder import Builder

Emit = TypeVar("Emit", bound=Callable[..., None])


def layer(name: str) -> Callable[[Emit], Emit]:
    """Let `Backend.layer` record what a function of a Builder and positional arguments would, where it can."""

    def offered(portable: Emit) -> Emit:
        @functools.wraps(portable)
        def emit(b: Builder, *args: Any) -> None:
            if not b.device.backend.layer(b, name, args, portable):
                portable(b, *args)

        return cast(Emit, emit)

    return offered
