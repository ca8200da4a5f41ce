"""Ctrl-C arrives between two bytecodes of the user's program, never inside torch's C++.

Python runs signal handlers in the main thread, also from C code that merely asks for a string (pybind11 does, when
C++ asks our device guard for its type). A KeyboardInterrupt raised there passes through noexcept functions and ends
the process. The handler in force is therefore wrapped: the wrapper asks the interpreter loop to call it again at the
next bytecode, and only then lets it raise. Where no bytecode comes (time.sleep, a lock), the signal is sent again.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the functions of `signal` cost five times as much
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGINT = int(signal.SIGINT)
_RESEND_S = 0.05
handler_in_force: Callable[[int], Any] = _signal.getsignal
_set: Callable[[int, Any], Any] = _signal.signal

_api = ctypes.pythonapi
_add_pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(("Py_AddPendingCall", _api))
_trip = ctypes.cast(_api.PyErr_SetInterruptEx, ctypes.c_void_p)
_check = ctypes.cast(_api.PyErr_CheckSignals, ctypes.c_void_p)


_handling = [0]
"""Handlers of this module that are running: the interpreter loop comes by inside them too, and that is too early."""


class _Gate:
    """The wrapper of a SIGINT handler."""

    def __init__(self, handler: Callable[[int, Any], Any]) -> None:
        self.handler = handler
        self.open = False
        self.since = 0.0
        self._callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._at_bytecode)
        self._call = ctypes.cast(self._callback, ctypes.c_void_p)

    def _at_bytecode(self, _: Any) -> int:
        if _handling[0]:
            _add_pending(self._call, None)
        else:
            # Both run right after this, before any bytecode of the program.
            self.open = True
            _add_pending(_trip, SIGINT)
            _add_pending(_check, None)
        return 0

    def __call__(self, number: int, frame: Any) -> Any:
        _handling[0] += 1
        try:
            return self._handle(number, frame)
        finally:
            _handling[0] -= 1

    def _handle(self, number: int, frame: Any) -> Any:
        now = time.monotonic()
        if self.open or (self.since and now - self.since > _RESEND_S / 2):
            self.open, self.since = False, 0.0
            return self.handler(number, frame)
        if not self.since:
            self.since = now
            _add_pending(self._call, None)
            timer = threading.Timer(_RESEND_S, self._resend, (now,))
            timer.daemon = True
            timer.start()
        return None

    def _resend(self, since: float) -> None:
        if self.since == since:
            os.kill(os.getpid(), signal.SIGINT)


_known: Any = None


def watch() -> None:
    """Wrap the SIGINT handler in force if it is not; called on every op, because notebooks set it for every cell."""
    handler = handler_in_force(SIGINT)
    if handler is not _known:  # the compiled route makes the same test
        _wrap(handler)


def _wrap(handler: Any) -> None:
    global _known
    if threading.current_thread() is not threading.main_thread() or hasattr(handler, "postpones"):
        return
    if callable(handler) and not isinstance(handler, _Gate):
        handler = _Gate(handler)
        _set(SIGINT, handler)
    _known = handler


@contextmanager
def uninterrupted(*frames: Any) -> Iterator[None]:
    """A Ctrl-C inside the block is delivered at its end; with code objects, only one that would hit their frames."""
    handler = handler_in_force(SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(handler):
        yield
        return
    late: list[int] = []

    def deliver(number: int, frame: Any) -> Any:
        if late or not frames or (frame is not None and frame.f_code in (*frames, deliver.__code__)):
            late.append(number)
            return None
        _handling[0] += 1
        try:
            # If it raises, no other handler may run while C++ unwinds with that exception pending.
            _set(SIGINT, _signal.SIG_IGN)
            result = handler(number, frame)
            _set(SIGINT, deliver)
            return result
        finally:
            _handling[0] -= 1

    deliver.postpones = True  # type: ignore[attr-defined]
    _set(SIGINT, deliver)
    try:
        yield
    finally:
        _set(SIGINT, handler)
    if late:
        handler(late[0], None)
