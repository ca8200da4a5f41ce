"""torch_fl: one PyTorch program, any chip. See README.md.

Importing this package is light; the names below load what they need at first use.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

# A checkout keeps backends/ and native/ beside the package; an installed package holds them inside.
if (_Path(__file__).parent.parent / "backends" / "__init__.py").is_file():
    __path__.append(str(_Path(__file__).parent.parent))

import torch as _torch  # noqa: F401 - its import runs our entry point, which registers the device type

from .register import autoload as _autoload

# Where torch's autoload is switched off (TORCH_DEVICE_BACKEND_AUTOLOAD=0) this import registers; else it did.
_autoload()

__version__ = "0.1.0"

_PUBLIC = {
    "init": "api",
    "device": "api",
    "device_count": "api",
    "devices": "api",
    "virtualize": "virtual",
    "devirtualize": "virtual",
    "memory": "memory",
    "precision": "runtime.precision",
    "save": "compat.checkpoint",
    "load": "compat.checkpoint",
    "set_fallback": "fallback",
    "get_fallback": "fallback",
    "set_migration": "migration",
    "get_migration": "migration",
    "MigrationWarning": "migration",
    "FallbackWarning": "fallback",
    "set_log_level": "telemetry",
    "console": "telemetry",
    "trace": "telemetry",
    "budget": "telemetry",
    "Backend": "runtime.adapter",
    "register_backend": "runtime.devices",
    "kernel": "registry",
    "candidate": "tuning",
    "pointwise": "ops.rows",
    "Error": "errors",
    "DeviceError": "errors",
    "FallbackError": "errors",
    "KernelError": "errors",
    "OutOfMemoryError": "errors",
    "RegistryError": "errors",
}

__all__ = [
    "Backend",
    "DeviceError",
    "Error",
    "FallbackError",
    "FallbackWarning",
    "KernelError",
    "MigrationWarning",
    "OutOfMemoryError",
    "RegistryError",
    "__version__",
    "budget",
    "candidate",
    "console",
    "device",
    "device_count",
    "devices",
    "devirtualize",
    "get_fallback",
    "get_migration",
    "init",
    "kernel",
    "load",
    "memory",
    "pointwise",
    "precision",
    "register_backend",
    "save",
    "set_fallback",
    "set_log_level",
    "set_migration",
    "trace",
    "virtualize",
]

if _TYPE_CHECKING:
    from . import memory
    from .api import device, device_count, devices, init
    from .compat.checkpoint import load, save
    from .errors import DeviceError, Error, FallbackError, KernelError, OutOfMemoryError, RegistryError
    from .fallback import FallbackWarning, get_fallback, set_fallback
    from .migration import MigrationWarning, get_migration, set_migration
    from .ops.rows import pointwise
    from .registry import kernel
    from .runtime.adapter import Backend
    from .runtime.devices import register_backend
    from .runtime.precision import precision
    from .telemetry import budget, console, set_log_level, trace
    from .tuning import candidate
    from .virtual import devirtualize, virtualize


def __getattr__(name: str) -> _Any:
    module = _PUBLIC.get(name)
    if module is None:
        from .errors import did_you_mean

        raise AttributeError(f"module 'torch_fl' has no attribute {name!r}; {did_you_mean(name, _PUBLIC)}")
    found = _import_module(f"{__name__}.{module}")
    value = found if module == name else getattr(found, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
