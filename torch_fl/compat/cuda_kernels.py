"""Kernels at the CUDA dispatch key: `torch.zeros(3, device="cuda")` arrives there, and is made on our device.

No tensor ever carries that key, so only factories come by. Those that torch composes of others (zeros of `empty`)
are left to torch, unless this build of torch has a CUDA kernel of its own for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import names
from ..register import EXPLICIT, overload

_KEY = "CUDA"
_COMPOSITES = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
_has: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
_library: list[Any] = []


def _factories() -> Iterator[tuple[Any, bool]]:
    """(overload, whether torch composes it) of every factory that needs a kernel at the CUDA key."""
    for full in torch._C._dispatch_get_all_op_names():
        name = full.removeprefix("aten::")
        if name == full or not _has(full, "BackendSelect"):
            continue
        func = overload(name)
        options = {a.name for a in func._schema.arguments}
        composite = any(_has(full, key) for key in _COMPOSITES)
        if "device" in options and "self" not in options and (not composite or name in EXPLICIT or _has(full, _KEY)):
            yield func, composite and name not in EXPLICIT


def _made_on_ours(func: Any, composite: bool) -> Callable[..., Any]:
    from ..dispatch import boxed

    def kernel(*args: Any, **kwargs: Any) -> Any:
        _refuse_if_off()
        if kwargs.get("pin_memory"):
            raise RuntimeError("Cannot pin a CUDA tensor: only dense CPU tensors can be pinned")
        kwargs["device"] = names.canonical(kwargs["device"])
        return func(*args, **kwargs) if composite else boxed(func, *args, **kwargs)

    return kernel


def _refuse_if_off() -> None:
    # C++ asks torch.cuda._lazy_init once per process and remembers that it went well: it is asked here from then on.
    if names.name() == names.OWN:
        torch.cuda._lazy_init()
        raise AssertionError("Torch not compiled with CUDA enabled")


def install() -> None:
    """Register the kernels; those of an earlier time are used again."""
    if _library:
        return
    library = torch.library.Library("aten", "IMPL", _KEY)
    for func, composite in _factories():
        library.impl(func.name().removeprefix("aten::"), _made_on_ours(func, composite), allow_override=True)
    _library.append(library)


def remove() -> None:
    """Give the key back to a torch that has CUDA kernels; elsewhere ours stay, and raise what torch would."""
    if torch.backends.cuda.is_built():
        _library.pop()._destroy()
