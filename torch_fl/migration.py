"""Ops on tensors of two chips: the smaller tensors move to the larger one's chip, and the move is recorded.

torch has no such op: CUDA refuses. Here "migrate" is the default policy, because a program that was split over chips
by hand may meet its own tensors; "warn" tells where, "error" refuses as CUDA does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import engine
from .errors import describe_call, several_devices
from .infer import find_tensors, map_tensors
from .runtime.devices import Device
from .schema import bind_all, params_of
from .telemetry.where import warn
from .tensor import Tensor

POLICIES = ("migrate", "warn", "error")


class MigrationWarning(UserWarning):
    """An op got tensors of several chips, and some of them were moved."""


class _State:
    policy = "migrate"
    warned: set[str] = set()
    count = 0
    nbytes = 0


def set_migration(policy: str) -> None:
    """What to do when an op gets tensors of several chips: "migrate" the smaller ones, "warn" once per op, "error"."""
    if policy not in POLICIES:
        raise ValueError(f"set_migration takes one of {POLICIES}, got {policy!r}")
    _State.policy = policy


def get_migration() -> str:
    """The policy in force."""
    return _State.policy


def counts() -> tuple[int, int]:
    """(ops that moved tensors between chips, bytes moved) since the process started."""
    return _State.count, _State.nbytes


def run(func: Any, again: Callable[..., Any], tensors: Sequence[Any], args: Any, kwargs: Any) -> Any:
    """Bring all tensors to one chip (that of a written tensor, else of the largest) and run `again` there.

    Raises RuntimeError, as CUDA does, under the policy "error".
    """
    from .ops.copy import to_device

    ours = [t for t in tensors if type(t) is Tensor]
    bound = bind_all(func, args, kwargs)
    written = find_tensors([bound[p.name] for p in params_of(func) if p.written])
    device = max(written or ours, key=lambda t: t._spec.numel * t._spec.itemsize)._spec.device
    moving = [t for t in ours if t._spec.device is not device]
    if moving:
        _announce(func, moving, device, args, kwargs)

    def move(tensor: Any) -> Any:
        return to_device(tensor, device)

    moved = {k: map_tensors(v, move) for k, v in kwargs.items()}
    return again(func, tuple(map_tensors(a, move) for a in args), moved)


def _announce(func: Any, moving: list[Tensor], device: Device, args: Any, kwargs: Any) -> None:
    """Count the move and tell who wants to know."""
    name, source = func.name(), moving[0]._spec.device.index
    if _State.policy == "error":
        raise several_devices(f"npu:{device.index}", f"npu:{source}", describe_call(name, args, kwargs))
    _State.count += 1
    _State.nbytes += sum(t._spec.extent * t._spec.itemsize for t in moving)
    _keep_gradients_home()
    if _State.policy == "warn" and name not in _State.warned:
        _State.warned.add(name)
        warn(f"{name}: {len(moving)} tensor(s) moved from npu:{source} to npu:{device.index}", MigrationWarning)


def _beside(gradient: Any, tensor: Any) -> Any:
    """A gradient on the chip of its tensor."""
    if type(gradient) is Tensor and type(tensor) is Tensor and gradient._spec.device is not tensor._spec.device:
        return gradient.to(tensor.device)
    return gradient


def _keep_gradients_home() -> None:
    """Show gradients on the chip of their tensor from now on: C++ sees one chip and leaves them where they are."""
    if "grad" in vars(Tensor):
        return
    native: Any = torch._C.TensorBase.grad

    def get(self: Tensor) -> Any:
        found = native.__get__(self)
        moved = _beside(found, self)
        if moved is not found:
            native.__set__(self, moved)
        return moved

    engine.wrap(_results_beside_inputs)
    Tensor.grad = property(get, lambda self, value: native.__set__(self, value), lambda self: native.__delete__(self))  # type: ignore[assignment]


def _results_beside_inputs(run: engine.Run) -> engine.Run:
    @functools.wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        result: Any = run(*args, **kwargs)
        inputs = args[4] if len(args) > 4 else ()
        if not isinstance(result, tuple) or len(result) != len(inputs):
            return result
        return tuple(map(_beside, result, inputs))

    return run_backward
