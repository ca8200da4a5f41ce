"""Fallback budgets: a block of code that may use the CPU at most so often, or move at most so many bytes for it.

Budgets travel in torch's own thread-local state, so they count what their thread does, its backward passes included,
and nothing of other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import FallbackError, message

_KEY = "torch_fl.budget"
_stash: Callable[[str, Any], None] = torch._C._stash_obj_in_tls
_has: Callable[[str], bool] = torch._C._is_key_in_tls
_get: Callable[[str], Any] = torch._C._get_obj_in_tls


class Budget:
    """What a block may use (None: any amount) and what it has used so far."""

    def __init__(self, fallbacks: int | None, nbytes: int | None, outer: Budget | None) -> None:
        self.fallbacks = fallbacks
        self.nbytes = nbytes
        self.used_fallbacks = 0
        self.used_bytes = 0
        self.outer = outer

    def __repr__(self) -> str:
        fallbacks = f"{self.used_fallbacks} of {_limit(self.fallbacks)} fallbacks"
        return f"Budget({fallbacks}, {self.used_bytes} of {_limit(self.nbytes)} bytes)"


def _limit(value: int | None) -> str:
    return "any number of" if value is None else str(value)


@contextmanager
def budget(fallbacks: int | None = None, bytes: int | None = None) -> Iterator[Budget]:
    """Allow at most `fallbacks` ops on the CPU, and at most `bytes` moved for them both ways, inside the block.

    Without arguments no fallback is allowed; a limit that is not given is not checked when the other one is. Raises
    FallbackError at the call that breaks the budget: before the op runs for the number of fallbacks, after it for
    bytes. In a backward pass it is raised by `backward()`. Budgets nest: every enclosing one counts.
    """
    if fallbacks is None and bytes is None:
        fallbacks = 0
    outer = current()
    inner = Budget(fallbacks, bytes, outer)
    _stash(_KEY, inner)
    try:
        yield inner
    finally:
        _stash(_KEY, outer)


def current() -> Budget | None:
    """This thread's innermost budget."""
    found: Budget | None = _get(_KEY) if _has(_KEY) else None
    return found


def _all() -> Iterator[Budget]:
    found = current()
    while found is not None:
        yield found
        found = found.outer


def charge_fallback(describe: Callable[[], str], reason: str) -> None:
    """One op is about to run on the CPU. Raises FallbackError where a budget does not allow it."""
    for found in _all():
        found.used_fallbacks += 1
        if found.fallbacks is not None and found.used_fallbacks > found.fallbacks:
            raise _exceeded(f"fallback {found.used_fallbacks} in a budget of {found.fallbacks}", describe, reason)


def charge_bytes(nbytes: int, describe: Callable[[], str], reason: str) -> None:
    """A fallback has moved `nbytes`. Raises FallbackError where a budget does not allow it."""
    for found in _all():
        found.used_bytes += nbytes
        if found.nbytes is not None and found.used_bytes > found.nbytes:
            raise _exceeded(f"{found.used_bytes} bytes moved in a budget of {found.nbytes}", describe, reason)


def _exceeded(what: str, describe: Callable[[], str], reason: str) -> FallbackError:
    return FallbackError(
        message(
            f"fallback budget exceeded: {what}",
            call=describe(),
            because=f"fallback to CPU: {reason}",
            hint="a larger torch_fl.budget(...), or torch_fl.trace() to see every fallback of the block",
        )
    )
