"""What each aten op means on a device, by family. Loading this package's modules fills the registry."""

from __future__ import annotations

import importlib
import pkgutil
import threading

from ..interrupts import uninterrupted

_lock = threading.RLock()
_begun: list[bool] = []
_done = threading.Event()


def load() -> None:
    """Import every module of this package once; registry mistakes raise here.

    A second thread waits, and a Ctrl-C waits until all is loaded: half a registry would send ops to wrong routes.
    """
    if _done.is_set():
        return
    with uninterrupted(), _lock:
        if _begun:  # by one of the modules itself, or by the thread that was waited for
            return
        _begun.append(True)
        try:
            for module in pkgutil.iter_modules(__path__):
                importlib.import_module(f"{__name__}.{module.name}")
        except BaseException:
            _begun.clear()
            raise
        _done.set()
