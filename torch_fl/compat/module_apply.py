"""Lets `module.to("npu")` and back keep parameter identity and tied weights.

torch would make new parameters: a wrapper and a plain tensor cannot exchange their `.data`. Its own switch for
swapping is global (which breaks libraries that offload modules) and refuses parameters that have weak references
(every nn.LSTM). So moves that involve our device replace the content of each parameter here; all others are torch's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .. import names
from . import lazy

Fn = Callable[[torch.Tensor], torch.Tensor]

OURS = ("_buffer", "_spec", "_offset", "_is_param")
"""Attributes of a tensor object that belong to where it is, not to the user."""


def patch_module_apply() -> None:
    """Wrap nn.Module._apply; done once, at registration."""
    original: Callable[..., nn.Module] = nn.Module._apply
    if hasattr(original, "__wrapped__"):
        return

    def _apply(self: nn.Module, fn: Fn, recurse: bool = True) -> nn.Module:
        if not _involves_us(self, fn):
            return original(self, fn, recurse)
        if recurse:
            for child in self.children():
                child._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = _moved(parameter, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = lazy.moved(buffer, fn) if is_lazy(buffer) else fn(buffer)
        return self

    _apply.__wrapped__ = original  # type: ignore[attr-defined]
    nn.Module._apply = _apply  # type: ignore[method-assign]
    lazy.install()


def _moved(parameter: nn.Parameter, fn: Fn) -> nn.Parameter:
    """`parameter` with fn applied to it and its gradient: the same object, or a new one while a graph holds it."""
    from ..virtual import replace_content

    if is_lazy(parameter):
        return lazy.moved(parameter, fn)
    with torch.no_grad():
        applied = fn(parameter)
        if applied is parameter:  # a tied weight that has been moved
            return parameter
        grad, parameter.grad = parameter.grad, None
        moved_grad = None if grad is None else fn(grad)
        try:
            replace_content(parameter, applied.detach())
            if grad is not None and moved_grad is not None and moved_grad is not grad:
                replace_content(grad, moved_grad.detach())
                moved_grad = grad
        except RuntimeError:
            parameter.grad = grad
            parameter = nn.Parameter(applied, parameter.requires_grad)
    parameter.grad = moved_grad
    return parameter


def _involves_us(module: nn.Module, fn: Fn) -> bool:
    first = next(module.parameters(), None)
    if first is None:
        return False
    if names.is_ours(first.device) or lazy.home_of(first) is not None:
        return True
    if first.device.type != "cpu":
        return False
    try:
        return names.is_ours(fn(torch.empty(0, device="cpu")).device)
    except Exception:  # noqa: BLE001 - fn is the caller's; if it fails on a probe it will say so on the real thing
        return False
