"""An exception must never end the process: torch's C++ autograd engine calls terminate when Python raises in it.

While a backward pass runs, errors from ops and hooks are remembered, a placeholder is returned, and the first error
is raised when the engine has returned. The list of errors travels to the engine's threads in torch's own
thread-local state, so that two backward passes in two threads keep their errors apart.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.graph

_KEY = "torch_fl.backward_errors"
_stash = torch._C._stash_obj_in_tls  # type: ignore[attr-defined]
_get = torch._C._get_obj_in_tls  # type: ignore[attr-defined]
_has = torch._C._is_key_in_tls  # type: ignore[attr-defined]


def in_backward() -> bool:
    """Whether this thread is inside a backward pass whose errors are being collected."""
    return torch._C._current_graph_task_id() != -1 and _has(_KEY) and _get(_KEY) is not None  # type: ignore[attr-defined]


def remember(error: BaseException, func: Any, args: Any, kwargs: Any) -> Any:
    """Keep `error` for the end of the backward pass; returns a placeholder result for the failed op."""
    if not in_backward():
        raise error
    _get(_KEY).append(error)
    return _placeholder(func, args, kwargs)


def _placeholder(func: Any, args: Any, kwargs: Any) -> Any:
    from .infer import infer, map_tensors
    from .tensor import Tensor, empty_spec

    found: list[Tensor] = []
    map_tensors(list(args), lambda t: found.append(t) if isinstance(t, Tensor) else None)
    written = func._schema.is_mutable
    if written or not found:
        return args[0] if written and args else None
    device = found[0]._spec.device
    try:
        inferred = infer(func, args, kwargs, device)
    except Exception:  # noqa: BLE001 - the call itself is wrong; any tensor will do, the error is already kept
        return _zeros(empty_spec(found[0]._spec))
    return inferred.pack([_zeros(empty_spec(o.spec)) for o in inferred.outs])


def _zeros(tensor: Any) -> Any:
    buffer = tensor._buffer
    if buffer.nbytes:
        buffer.device.backend.copy_h2d(buffer.handle, 0, memoryview(bytes(buffer.nbytes)))
    return tensor


def guard_hook(hook: Callable[..., Any]) -> Callable[..., Any]:
    """`hook` for tensors and nodes: an exception in it is raised when the backward pass is over."""

    @functools.wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return hook(*args, **kwargs)
        except BaseException as error:
            if not in_backward():
                raise
            _get(_KEY).append(error)
            return None

    return guarded


def _collecting(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        errors: list[BaseException] = []
        outer = _get(_KEY) if _has(_KEY) else None
        _stash(_KEY, errors)
        try:
            result = run(*args, **kwargs)
        except BaseException:
            if errors:
                raise errors[0] from None
            raise
        finally:
            _stash(_KEY, outer)
        if errors:
            raise errors[0]
        return result

    return run_backward


def install() -> None:
    """Wrap the entry of torch's autograd engine, in its module and where it was imported by name."""
    original = torch.autograd.graph._engine_run_backward
    if getattr(original, "__wrapped__", None) is not None:
        return
    wrapped = _collecting(original)
    torch.autograd.graph._engine_run_backward = wrapped
    torch.autograd._engine_run_backward = wrapped  # type: ignore[attr-defined]
