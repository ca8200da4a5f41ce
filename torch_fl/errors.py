"""The exceptions of torch_fl and the one builder of their messages.

Every message has four parts: what failed, the call with dtypes and shapes, because, try.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import torch


class Error(RuntimeError):
    """Base of the errors that torch_fl itself raises."""


class FallbackError(Error):
    """An op would have run on the CPU while the policy is "error", or a budget was exceeded."""


class KernelError(Error):
    """A kernel did not compile or its launch was refused."""


class DeviceError(Error):
    """No usable device, an unknown backend, or a device that was lost."""


class OutOfMemoryError(Error, torch.OutOfMemoryError):
    """The device has no room left for a buffer. Also caught by `except torch.OutOfMemoryError`."""


class RegistryError(Error):
    """A kernel was registered for an op that does not exist, twice, or with other parameter names."""


class LateError(IndexError, RuntimeError):
    """A kernel met values that torch refuses (an index out of bounds, a division by zero); raised at the next read.

    torch's CPU raises IndexError in some ops and RuntimeError in others, in some even by shape: this is both.
    """


class Unsupported(Exception):
    """A kernel says it cannot serve this call; the next route is tried. Never reaches users."""


def unsupported_dtype(dtype: torch.dtype) -> Unsupported:
    """The error of a kernel that does not compute in a dtype."""
    return Unsupported(f"dtype {dtype_name(dtype)}")


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype without "torch."."""
    return str(dtype).removeprefix("torch.")


def message(what: str, *, call: str = "", because: str = "", hint: str = "") -> str:
    """Join the four parts of an error message; empty parts are left out."""
    parts = [what]
    if call:
        parts.append(f"  call: {call}")
    if because:
        parts.append(f"  because: {because}")
    if hint:
        parts.append(f"  try: {hint}")
    return "\n".join(parts)


def describe(value: Any) -> str:
    """One argument as it appears in messages: tensors as dtype[shape], everything else by repr."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{dtype_name(dtype)}{list(shape)}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(describe(v) for v in value[:4]) + (", ..." if len(value) > 4 else "")
        return f"[{inner}]"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def several_devices(first: object, second: object, call: str) -> RuntimeError:
    """torch's error for a call whose tensors are on two devices."""
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {first} and {second}! "
        f"(when checking arguments of {call})"
    )


def describe_call(name: str, args: Iterable[Any], kwargs: dict[str, Any] | None = None) -> str:
    """The call as a user would read it: name(float32[2, 3], alpha=2)."""
    parts = [describe(a) for a in args] + [f"{k}={describe(v)}" for k, v in (kwargs or {}).items()]
    return f"{name}({', '.join(parts)})"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the closest known word, else all of them."""
    known = sorted(known)
    close = get_close_matches(name, known, 1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
