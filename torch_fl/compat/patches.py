"""Attributes of torch that are replaced for a while: each is put back as it was, in reverse order.

torch itself knows its functions by identity in two places, TorchScript's builtins and the factories that a default
device applies to; both are told about a replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.jit import _builtins
from torch.utils._device import _device_constructors

_MISSING: Any = object()


class Patch(NamedTuple):
    """`owner.name` becomes `value`; names that do not exist yet are added."""

    owner: Any
    name: str
    value: Any


class Patches:
    """Patches that are applied and can be undone."""

    def __init__(self) -> None:
        self._before: list[Patch] = []

    def apply(self, patch: Patch) -> None:
        """Replace one attribute. What the owner inherits or makes on demand counts as missing: undoing deletes it."""
        before = vars(patch.owner).get(patch.name, _MISSING)
        self._before.append(Patch(patch.owner, patch.name, before))
        if callable(before):
            _introduce(before, patch.value)
        setattr(*patch)

    def undo(self) -> None:
        """Put back what was there."""
        while self._before:
            owner, name, value = self._before.pop()
            _forget(vars(owner).get(name))
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


class Shared:
    """Patches that several parts need at different times: applied while anybody does."""

    def __init__(self, patches: Callable[[], Iterator[Patch]]) -> None:
        self._make = patches
        self._patches = Patches()
        self._reasons: set[str] = set()

    def apply(self, reason: str) -> None:
        """Apply the patches, unless they are applied for another reason."""
        if not self._reasons:
            _device_constructors()  # finds torch's own functions, under which C++ asks
            for patch in self._make():
                self._patches.apply(patch)
        self._reasons.add(reason)

    def undo(self, reason: str) -> None:
        """Undo the patches, unless there is another reason for them."""
        self._reasons.discard(reason)
        if not self._reasons:
            self._patches.undo()


def _introduce(before: Any, value: Any) -> None:
    op = _builtins._find_builtin(before)
    if op is not None:
        _builtins._register_builtin(value, op)
    if _hashable(before) and before in _device_constructors():
        _device_constructors().add(value)


def _forget(value: Any) -> None:
    _builtins._get_builtin_table().pop(id(value), None)
    if _hashable(value):
        _device_constructors().discard(value)


def _hashable(value: Any) -> bool:
    return getattr(value, "__hash__", None) is not None
