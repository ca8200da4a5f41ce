"""Scripts written for CUDA run unchanged: while this is on, every way to say `cuda` means our device.

Nothing stands on the way of an op. C++ turns "cuda" into a device before Python sees it, so factories arrive at the
CUDA dispatch key, where kernels of ours take them over (cuda_kernels.py); the few calls that C++ refuses earlier
(`x.to("cuda")`, `torch.tensor`) and the functions of `torch.cuda` are replaced in torch's namespaces, by the tables of
the other cuda_*.py files. `torch.device("cuda")` stays what it is, and `tensor.device` says `cuda:0` too: scripts
compare the two. Switching off puts every attribute back.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Literal

import torch

from .. import names
from . import pinned, placement
from .patches import Patches

NAME = "cuda"
_PATCHED = ("tensors", "types", "module", "amp", "parallel", "distributed", "refused", "pickle", "pinned", "fake")
"""Files with `patches()`: attributes of torch."""
_INSTALLED = ("kernels", "pickle", "extension")
"""Files with `install()` and `remove()`: everything else."""
_lock = threading.RLock()
_undo = ExitStack()
"""What switching off has to do."""


def is_enabled() -> bool:
    """Whether `cuda` means our device."""
    return names.name() == NAME


def enable(mode: bool | Literal["force"] = True) -> bool:
    """Let `cuda` mean our device, and say whether it does now. Opens nothing.

    Where torch finds a real CUDA device this warns and does nothing, unless `mode` is "force".
    """
    with _lock:
        if is_enabled():
            return True
        if mode != "force" and torch.cuda.is_available():
            warnings.warn(
                "this machine has CUDA, so 'cuda' keeps meaning CUDA; use cuda_compat='force' (TORCH_FL_CUDA=force) to "
                "let it mean a virtual device",
                stacklevel=3,
            )
            return False
        _enable()
        return True


def _part(name: str) -> Any:
    return import_module(f"{__package__}.cuda_{name}")


def _enable() -> None:
    with ExitStack() as undo:  # an error on the way undoes what was done
        names.lend(NAME)
        undo.callback(names.lend, None)
        for shared in (pinned, placement):
            shared.wrap(NAME)
            undo.callback(shared.unwrap, NAME)
        patches = Patches()
        undo.callback(patches.undo)
        for name in _PATCHED:
            for patch in _part(name).patches():
                patches.apply(patch)
        for name in _INSTALLED:
            _part(name).install()
            undo.callback(_part(name).remove)
        undo.callback(_forget_default_device)
        _undo.push(undo.pop_all())


def disable() -> None:
    """Give the name back: torch is as it was. Tensors that exist stay where they are and say `npu` again."""
    with _lock:
        _undo.close()


def _forget_default_device() -> None:
    """A default device that was set as cuda would make every factory fail: the CPU is the default again."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    if context is not None and context.device.type == NAME:
        torch.set_default_device(None)
