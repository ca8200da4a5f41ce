"""The compiled hit path, where one was built at install.

Every type in it stands in for Python of the same meaning, named in `_hot.pyi`. `compiled` is the module, or None: then
the Python runs.
"""

from __future__ import annotations

from types import ModuleType

from .runtime import settings

compiled: ModuleType | None

try:
    from . import _hot as compiled
except ImportError:
    compiled = None
if settings.interpreted():
    compiled = None
