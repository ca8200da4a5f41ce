"""An exception must never end the process, and must reach the user as it was raised.

torch's C++ asks our Python device guard for its type inside noexcept functions; an exception there is std::terminate.
Two kinds must be kept out:

* When Python raises under the autograd engine (an op, a hook, a saved-tensor hook), C++ unwinds with Python's error
  indicator still set, past a stream guard that asks. Calling Python in that state fails. During a backward pass
  `_type` therefore takes the pending error away and answers. The engine then reports that it lost its error, and
  `_collecting` raises the one we kept.
* Python delivers a Ctrl-C at the next bytecode of the main thread, which may be the first of a `type_` in Python.
  Outside a backward pass `type_` is therefore a C callable without bytecode (see also interrupts.py).

The list of errors travels to the engine's threads in torch's own thread-local state, so that two backward passes in
two threads keep their errors apart.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable
from typing import Any

import torch

from . import engine
from .interrupts import uninterrupted, watch

_KEY = "torch_fl.backward_errors"
_stash = torch._C._stash_obj_in_tls
_get = torch._C._get_obj_in_tls
_has = torch._C._is_key_in_tls
_TYPE = torch._C._autograd.DeviceType.PrivateUse1

_threads: Callable[[], bool] = torch._C._is_multithreading_enabled
_set_threads: Callable[[bool], None] = torch._C._set_multithreading_enabled

_probe = functools.partial(len, ())
"""A call that CPython checks: with an error pending it raises SystemError with that error as its cause."""


_answer = functools.partial(operator.itemgetter(0), (_TYPE,))
"""The device type without a Python frame."""


def _type() -> Any:
    """The device type, although an exception may be pending; that exception is kept for `_collecting`."""
    try:
        _probe()
    except SystemError as error:
        kept = _get(_KEY) if _has(_KEY) else None
        if kept is not None and error.__cause__ is not None:
            kept.append(error.__cause__)
    return _TYPE


class DeviceGuard(torch._C._acc.DeviceGuard):
    """What C++ asks for the device type. It must be kept alive by whoever registers it."""

    type_ = staticmethod(_type)

    def __init__(self) -> None:
        super().__init__()
        # Looked up with an error pending: found in the class first, then here, no step on the way may fail.
        self.type_ = _answer
        _guards.append(self)


_guards: list[DeviceGuard] = []
_lock = threading.Lock()
_passes = [0]


def _count(step: int) -> None:
    """A backward pass begins (1) or ends (-1)."""
    with _lock:
        _passes[0] += step
        for guard in _guards:
            guard.type_ = _type if _passes[0] else _answer


def _ours(args: tuple[Any, ...]) -> bool:
    """Whether a backward pass starts at tensors of ours: then it runs in this thread, as on the CPU.

    A device thread of the engine gains nothing where launches return at once, and costs two changes of thread and of
    the GIL: 100 us for a pass of one node that takes 25.
    """
    from .tensor import Tensor  # it needs the device type, whose registration needs this module

    return any(type(t) is Tensor for t in args[0]) if args else False


def _collecting(run: Callable[..., Any]) -> Callable[..., Any]:
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        errors: list[BaseException] = []
        outer = _get(_KEY) if _has(_KEY) else None
        threads = _threads()
        _stash(_KEY, errors)
        result = None
        watch()
        try:
            with uninterrupted(_type.__code__, _count.__code__, code):
                _count(1)
                _set_threads(threads and not _ours(args))
                try:
                    result = run(*args, **kwargs)
                finally:
                    _set_threads(threads)
                    _count(-1)
        except BaseException:
            if not errors:
                raise
        finally:
            _stash(_KEY, outer)
        if errors:
            raise errors[0]
        return result

    code = run_backward.__code__
    return functools.wraps(run)(run_backward)


def install() -> None:
    """Wrap the entry of torch's autograd engine, in its module and where it was imported by name."""
    if getattr(engine.entry(), "__wrapped__", None) is None:
        engine.wrap(_collecting)
