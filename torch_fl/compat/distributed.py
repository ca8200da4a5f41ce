"""What torch.distributed and DistributedDataParallel ask of a device type; ops/collective.py has the collectives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any
from weakref import WeakSet

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import engine, names


def name_backends(c10d: ModuleType) -> None:
    """Transports that read and write host memory serve the device; gloo where the user names none."""
    backend = c10d.Backend
    backend.default_device_backend_map.setdefault(names.OWN, backend.GLOO)
    for name in (backend.GLOO, backend.MPI, backend.UCC, backend.FAKE):
        devices = backend.backend_capability.get(name)
        if devices is not None and names.OWN not in devices:
            devices.append(names.OWN)


class _Unpinned(TorchDispatchMode):
    """Pinned memory for C++ is plain host memory: an adapter in Python can give C++ no allocator for it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs and kwargs.get("pin_memory"):
            made = func(*args, **(kwargs | {"pin_memory": False}))
            made.passes_as_pinned = True
            return made
        if func is torch.ops.aten.is_pinned.default and hasattr(args[0], "passes_as_pinned"):
            return True
        return func(*args, **(kwargs or {}))


_searching: WeakSet[torch.nn.Module] = WeakSet()
"""Modules whose gradients are reduced with a search for unused parameters, whose result goes through pinned memory."""


def note_searching(parallel: ModuleType) -> None:
    """Have DistributedDataParallel tell of modules on the device that look for unused parameters."""
    cls = parallel.DistributedDataParallel
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if (self.find_unused_parameters or self.static_graph) and names.is_ours(torch.device(self.device_type)):
            if not hasattr(engine.entry(), "unpins"):
                engine.wrap(_unpinned)
            _searching.add(self)

    cls.__init__ = __init__


def _unpinned(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        if not _searching:
            return run(*args, **kwargs)
        with _Unpinned():  # type: ignore[no-untyped-call]
            return run(*args, **kwargs)

    run_backward.unpins = True  # type: ignore[attr-defined]
    return run_backward
