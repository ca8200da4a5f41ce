"""What each aten op means on a device, by family. Loading this package's modules fills the registry."""

from __future__ import annotations

import importlib
import pkgutil

_loaded = False


def load() -> None:
    """Import every module of this package once; registry mistakes raise here."""
    global _loaded
    if not _loaded:
        _loaded = True
        for module in pkgutil.iter_modules(__path__):
            importlib.import_module(f"{__name__}.{module.name}")
