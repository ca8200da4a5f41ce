"""`tensor.pin_memory()`, `DataLoader(pin_memory=True)` and factories with `pin_memory=True` beside our device type.

torch asks the accelerator's hooks for a pinned allocator; hooks written in Python have none, and the call raises. Where
the machine has CUDA, memory is pinned for CUDA as before; else by an open chip that pins (runtime/host_memory.py);
elsewhere the result is a plain copy: nothing is faster for it, and nothing is wrong (`is_pinned()` says False).
Factories ask the hooks below any kernel, so they are wrapped, but only once devices are open: a program that never uses
them keeps torch's own functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import names
from ..runtime import host_memory
from .patches import Patch, Shared

_NATIVE = torch._C.DispatchKey.CompositeExplicitAutograd


def _cuda_pins() -> bool:
    """Whether there is real CUDA, not our device under its name."""
    return names.name() == names.OWN and torch.cuda.is_available()


def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    """aten::_pin_memory for CPU tensors: pinned for CUDA where there is CUDA, else a copy in what memory there is."""
    if _cuda_pins():
        native = torch.ops.aten._pin_memory.default
        return native._op_dk(_NATIVE, self, device="cuda")  # type: ignore[no-any-return]
    return host_memory.pin(self)


def is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    """aten::is_pinned for CPU tensors."""
    if _cuda_pins():
        return bool(torch.ops.aten.is_pinned.default._op_dk(_NATIVE, self, device=device))
    return host_memory.is_pinned(self)


FACTORIES = (
    "arange", "empty", "empty_like", "empty_strided", "eye", "full", "full_like", "linspace", "logspace", "ones",
    "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "tensor", "zeros",
    "zeros_like",
)  # fmt: skip


def _pinning(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A factory that pins what it made where that is asked for."""

    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> torch.Tensor:
        if not kwargs.get("pin_memory"):
            return original(*args, **kwargs)
        made = original(*args, **{**kwargs, "pin_memory": False})
        if made.device.type != "cpu":
            return made
        return host_memory.pin(made.detach()).requires_grad_(made.requires_grad)

    return factory


def _wrapped() -> Iterator[Patch]:
    for name in FACTORIES:
        yield Patch(torch, name, _pinning(getattr(torch, name)))


_factories = Shared(_wrapped)


def wrap(reason: str = "devices") -> None:
    """Let the factories of `torch` take `pin_memory=True`; done when devices are opened. CUDA pins itself."""
    if not _cuda_pins():
        _factories.apply(reason)


def unwrap(reason: str) -> None:
    """Undo it, unless there is another reason."""
    _factories.undo(reason)


def install() -> list[Any]:
    """Register the kernel. Returns the library, which lives as long as the registration should."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_pin_memory", pin_memory, "CPU")
    library.impl("is_pinned", is_pinned, "CPU")
    return [library]
