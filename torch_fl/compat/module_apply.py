"""Lets `module.to("npu")` and back keep parameter identity and tied weights.

torch swaps parameters in place only under a global switch; it is set here for moves that involve our device alone,
because a permanent switch breaks libraries that offload modules.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

OURS = ("_buffer", "_spec", "_offset", "_is_param")
"""Attributes of a tensor object that belong to where it is, not to the user."""


def patch_module_apply() -> None:
    """Wrap nn.Module._apply; done once, at registration."""
    original: Callable[..., nn.Module] = nn.Module._apply
    if hasattr(original, "__wrapped__"):
        return

    def _apply(self: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        future = torch.__future__
        if future.get_swap_module_params_on_conversion() or not _involves_us(self, fn):
            return original(self, fn, recurse)
        # Swapping exchanges the attributes of the Python objects too; users' own have to stay.
        attributes = [(p, dict(vars(p))) for p in self.parameters()]
        future.set_swap_module_params_on_conversion(True)
        try:
            return original(self, fn, recurse)
        except RuntimeError as error:
            if "Couldn't swap" not in str(error):
                raise
        finally:
            future.set_swap_module_params_on_conversion(False)
            for parameter, own in attributes:
                vars(parameter).update({k: v for k, v in own.items() if k not in OURS})
        return original(self, fn, recurse)

    _apply.__wrapped__ = original  # type: ignore[attr-defined]
    nn.Module._apply = _apply  # type: ignore[method-assign]


def _involves_us(module: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    first = next(module.parameters(), None)
    if first is None:
        return False
    if first.device.type == "npu":
        return True
    if first.device.type != "cpu":
        return False
    try:
        return fn(torch.empty(0, device="cpu")).device.type == "npu"
    except Exception:  # noqa: BLE001 - fn is the caller's; if it fails on a probe it will say so on the real thing
        return False
