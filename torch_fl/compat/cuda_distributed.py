"""Process groups of scripts that say `nccl`: gloo serves them, which the collectives of device tensors go over."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed

from .patches import Patch


def _over_gloo(original: Callable[..., Any], default: str | None) -> Callable[..., Any]:
    """`original`, which means the backend `default` where none is named."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        wanted = bound.arguments.get("backend") or default
        if "nccl" in str(wanted).lower():
            bound.arguments["backend"] = "gloo"
        return original(*bound.args, **bound.kwargs)

    return make


def patches() -> Iterator[Patch]:
    """Where the functions are defined and where they are offered; nothing in a torch without torch.distributed."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    # The device of meshes that name none; torch.accelerator's own answer stays what torch.device(0) is.
    yield Patch(torch._C, "_get_accelerator", lambda *check: torch.device("cuda"))
    for name, default in (("init_process_group", "nccl"), ("new_group", None)):
        made = _over_gloo(getattr(distributed_c10d, name), default)
        for module in (distributed_c10d, torch.distributed):
            yield Patch(module, name, made)
