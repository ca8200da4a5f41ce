"""virtualize: put a module on a device in place, so that everything that refers to its parameters stays valid."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_pre_hook

from . import api, names
from .compat import lazy
from .compat.module_apply import OURS
from .errors import Error, message


class MoveInputs:
    """Forward pre-hook: CPU tensors among the arguments go to the device; everything else passes unchanged."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __reduce__(self) -> Any:
        # In a file: a hook of the standard library that takes three arguments and returns None. The loaded module is on
        # the CPU, and the process that loads it may have no torch_fl.
        return getattr, (contextlib.nullcontext(), "__exit__")

    def __deepcopy__(self, memo: dict[int, Any]) -> MoveInputs:
        return MoveInputs(self.device)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.move(args), self.move(kwargs)

    def move(self, value: Any) -> Any:
        """`value` with the CPU tensors in nested lists, tuples and dicts moved; containers keep their type."""
        if isinstance(value, torch.Tensor):
            return value.to(self.device) if value.device.type == "cpu" else value
        if type(value) in (list, set):
            return type(value)(self.move(v) for v in value)
        if isinstance(value, tuple):
            moved = [self.move(v) for v in value]
            return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
        if type(value) is dict:
            return {k: self.move(v) for k, v in value.items()}
        return value


def virtualize(model: nn.Module, device: torch.device | str | int | None = None) -> nn.Module:
    """Put `model` on a virtual device, in place, and return it.

    Parameters and buffers keep their identity (tied weights stay tied, optimizers made before stay valid) and move
    with their gradients; CPU tensors passed to forward are moved to the device. Calling it again does nothing;
    with another device it moves the model there. Undone by `devirtualize`. Raises DeviceError when there is no
    device, Error when a parameter cannot be moved because a graph or a weak reference still holds it.
    """
    target = _target(device)
    _move(model, target)
    for hook in _hooks(model):
        hook.device = target
        break
    else:
        model.register_forward_pre_hook(MoveInputs(target), with_kwargs=True, prepend=True)
    _Optimizers.watch()
    return model


def devirtualize(model: nn.Module) -> nn.Module:
    """Undo `virtualize`: parameters and buffers go back to the CPU in place, inputs are no longer moved."""
    _move(model, torch.device("cpu"))
    _Optimizers.watch()
    for key, hook in list(model._forward_pre_hooks.items()):
        if isinstance(hook, MoveInputs):
            del model._forward_pre_hooks[key]
            model._forward_pre_hooks_with_kwargs.pop(key, None)
    return model


def _target(device: torch.device | str | int | None) -> torch.device:
    if device is None or isinstance(device, int):
        return api.device(device)
    wanted = torch.device(device)
    if not names.is_ours(wanted):
        raise ValueError(f"virtualize takes an npu device, got {wanted}; devirtualize() goes back to the CPU")
    return api.device(wanted.index)


def _hooks(model: nn.Module) -> Iterator[MoveInputs]:
    return (h for h in model._forward_pre_hooks.values() if isinstance(h, MoveInputs))


def _move(model: nn.Module, device: torch.device) -> None:
    seen: set[int] = set()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            move_in_place(tensor, device, name)


def move_in_place(tensor: torch.Tensor, device: torch.device, name: str = "tensor") -> None:
    """Move a leaf tensor with its gradient and attributes to `device`; the Python object stays the same."""
    if is_lazy(tensor):
        lazy.moved(tensor, lambda t: t.to(device))
        return
    if names.canonical(tensor.device) == device:
        return
    grad, tensor.grad = tensor.grad, None
    try:
        with torch.no_grad():
            replace_content(tensor, tensor.detach().to(device))
    except RuntimeError as error:
        tensor.grad = grad
        raise Error(
            message(
                f"{name} cannot be moved to {device} in place",
                because=str(error),
                hint="move the model before forward, or after backward has freed the graph",
            )
        ) from error
    if grad is not None:
        tensor.grad = grad.to(device)


def replace_content(tensor: torch.Tensor, content: torch.Tensor) -> None:
    """`tensor` becomes `content`, also across device types; identity, requires_grad and attributes are kept.

    Raises RuntimeError while an autograd graph holds the tensor. What torch.utils.swap_tensors does, but Python's weak
    references are welcome: they refer to the object, which stays.
    """
    made = content.requires_grad_(tensor.requires_grad)
    if isinstance(tensor, nn.Parameter):
        made = nn.Parameter(content, tensor.requires_grad)
    holders = tensor._use_count() - 1  # type: ignore[attr-defined]
    if holders == 1 and tensor.is_leaf and tensor.requires_grad:
        _poison(tensor)
    elif holders:
        raise RuntimeError(f"{holders} other holder(s), such as an autograd graph, still use the old content")
    vars(made).update({k: v for k, v in vars(tensor).items() if k not in OURS})
    tensor.__class__, made.__class__ = made.__class__, tensor.__class__
    tensor.__dict__, made.__dict__ = made.__dict__, tensor.__dict__
    torch._C._swap_tensor_impl(tensor, made)


def _poison(tensor: torch.Tensor) -> None:
    """The one holder is the node of an old graph that accumulates into the old content: it must not run any more."""

    def refuse(grads: Any) -> None:
        raise RuntimeError("backward through a graph that was made before its parameter moved to another device")

    node = torch.autograd.graph.get_gradient_edge(tensor).node
    if tensor._use_count() != 2:  # type: ignore[attr-defined]
        raise RuntimeError("another holder, such as an autograd graph, still uses the old content")
    node.register_prehook(refuse)


class _Optimizers:
    """Moves the state of optimizers whose parameters were virtualized after a step, before their next one."""

    _generation = 0
    _seen: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()

    @classmethod
    def watch(cls) -> None:
        if cls._generation == 0:
            register_optimizer_step_pre_hook(cls._before_step)
        cls._generation += 1

    @classmethod
    def _before_step(cls, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if cls._seen.get(optimizer) == cls._generation:
            return
        cls._seen[optimizer] = cls._generation
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                # Step counters stay where the optimizer put them: 0-dim CPU tensors mix with any device.
                if isinstance(value, torch.Tensor) and value.dim() and value.device != parameter.device:
                    state[key] = value.to(parameter.device)
