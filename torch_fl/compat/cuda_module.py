"""`torch.cuda.*`: what `torch.npu` has under the same name answers; the rest is answered here, or says why it cannot.

Names that `torch.npu` gains are served without a change here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import npu
from .patches import Patch

_MODULES = ("", "memory", "random", "streams")
"""Modules below torch.cuda that hold the same names again."""


def exchange_device(index: int) -> int:
    """Make a device the current one and return the one before; -1 does nothing."""
    before = npu.current_device()
    npu.set_device(index)
    return before if index >= 0 else -1


def maybe_exchange_device(index: int) -> int:
    """The same; a function of its own, because the compiler tells the two apart by identity."""
    return exchange_device(index)


def device_memory_used(device: Any = None) -> int:
    """Bytes of the chip's memory that are in use."""
    free, total = npu.mem_get_info(device)
    return total - free


def lazy_call(function: Callable[[], Any], **_: Any) -> None:
    """Call at once: opening the devices needs no preparation."""
    function()


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


OWN: dict[str, Any] = {
    "_exchange_device": exchange_device,
    "_lazy_call": lazy_call,
    "_lazy_init": npu.init,
    "_maybe_exchange_device": maybe_exchange_device,
    "device_memory_used": device_memory_used,
    "get_gencode_flags": _answer(""),
    "get_sync_debug_mode": _answer(0),
    "host_memory_stats": _answer({}),
    "host_memory_stats_as_nested_dict": _answer({}),
    "reset_accumulated_host_memory_stats": _answer(None),
    "reset_peak_host_memory_stats": _answer(None),
    "set_sync_debug_mode": _answer(None),
}
"""Answered here, because CUDA's answer differs from torch.npu's or torch.npu has none."""


def served() -> dict[str, Any]:
    """Every name of torch.cuda that is answered."""
    ours = {name: getattr(npu, name) for name in dir(torch.cuda) if _is_ours(name)}
    ours["default_generators"] = npu.default_generators
    return ours | OWN


def _is_ours(name: str) -> bool:
    home = None if name.startswith("__") else getattr(getattr(npu, name, None), "__module__", None)
    return bool(home) and str(home).startswith("torch_fl.")


def patches() -> Iterator[Patch]:
    """torch.cuda and the modules below it."""
    table = served()
    for below in _MODULES:
        module = sys.modules[".".join(filter(None, ["torch.cuda", below]))]
        for name in table.keys() & vars(module).keys():
            yield Patch(module, name, table[name])
    yield Patch(torch.cuda, "_initialized", True)
    yield Patch(torch.cuda.graphs, "is_current_stream_capturing", npu.is_current_stream_capturing)
    yield Patch(torch.backends.cudnn, "is_acceptable", _answer(False))
    yield Patch(torch.cuda.nccl, "is_available", _answer(False))
