"""Tells torch about the device type `npu`; everything that is global to torch happens here.

`autoload` runs at the end of `import torch`: it must be light, and it must never raise. Nothing is opened and no
kernel is loaded before the first use of the device.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

SUPPORTED = ((2, 11), (2, 14))
"""torch versions this release supports: from, up to (exclusive)."""

_problem: str | None = "torch_fl was not loaded"
_libraries: list[Any] = []


def autoload() -> None:
    """Entry point of the group `torch.backends`. Never raises: a problem is kept and told at first use."""
    global _problem
    if _libraries:
        return
    try:
        _problem = _why_not()
        if _problem is None:
            _register()
    except Exception as error:  # noqa: BLE001 - an exception here would make `import torch` fail
        _problem = f"registering the device type 'npu' failed: {error!r}"


def problem() -> str | None:
    """Why the device type could not be registered, or None."""
    return _problem


def ensure() -> None:
    """Register if `import torch` did not. Raises DeviceError with the reason where that is impossible."""
    if not _libraries:
        autoload()
    if _problem is not None:
        from .errors import DeviceError, message

        raise DeviceError(message("the device type 'npu' is not available", because=_problem))


def _why_not() -> str | None:
    found = tuple(int(p) for p in torch.__version__.split("+")[0].split(".")[:2])
    if not SUPPORTED[0] <= found < SUPPORTED[1]:
        low, high = (".".join(map(str, v)) for v in SUPPORTED)
        return (
            f"torch {torch.__version__} is outside the supported range >={low},<{high}: torch_fl uses torch's hooks "
            "for Python backends, which are not stable between releases"
        )
    owner = torch._C._get_privateuse1_backend_name()
    if owner not in ("privateuseone", "npu") or hasattr(torch, "npu"):
        return f"another package already owns torch's PrivateUse1 device (as {owner!r}); uninstall one of the two"
    return None


def _register() -> None:
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    from . import survive
    from .compat import accelerator, dlpack, libraries, module_apply, npu, pinned, storage, stream_choice
    from .runtime import random, settings

    guard = survive.DeviceGuard()
    _setup_privateuseone_for_python_backend("npu", backend_module=npu, device_guard=guard)
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(_boxed, "PrivateUse1")
    # Ops that autocast leaves alone; what it casts is registered at the first use of the device.
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    # Calls that exclude the Python key (torch.tensor(..., device="npu")) end in an assert unless these exist.
    aten = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name in (*EXPLICIT, *WHOLE):
        func = overload(name)
        aten.impl(name, _bound(func))
    _libraries.extend([everything, aten, guard, *pinned.install()])
    survive.install()
    random.install()
    stream_choice.install()
    module_apply.patch_module_apply()
    accelerator.install()
    dlpack.install()
    storage.install()
    libraries.install()
    torch.flagos = sys.modules[__package__]  # type: ignore[attr-defined]
    settings.check()  # last: the device type exists, and its first use tells what is wrong
    mode = settings.cuda_compat()
    if mode:
        from .compat import cuda

        cuda.enable(mode)


# Not detach: a fake tensor is made of one that C++ detaches, which must have no Python object.
EXPLICIT = (
    "empty.memory_format", "empty_strided", "copy_", "_to_copy", "_copy_from", "set_.source_Tensor", "resize_",
    "as_strided", "alias", "_local_scalar_dense", "view", "lift_fresh", "record_stream",
    # Factories that torch would compose of `empty(0)` and a resizing out= call.
    "arange", "arange.start", "arange.start_step", "linspace", "logspace", "eye", "eye.m",
    "kaiser_window", "kaiser_window.periodic", "kaiser_window.beta",
    "silu_backward", "mish_backward",  # torch would compose them, as it does not for devices that have a kernel
    "one_hot",  # torch's composite compares with all classes and checks none where it does not know the device
)  # fmt: skip

WHOLE = ("linear", "matmul")
"""Compositions with a derivative formula, which torch uses where the device has a kernel: see whole.py."""


def overload(name: str) -> Any:
    """The aten overload of "add.Tensor", or the default one of "mm"; registry.find_overload checks the name."""
    base, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), which or "default")


def _bound(func: Any) -> Any:
    return lambda *args, **kwargs: _boxed(func, *args, **kwargs)


def _boxed(func: Any, *args: Any, **kwargs: Any) -> Any:
    from .dispatch import boxed

    return boxed(func, *args, **kwargs)
