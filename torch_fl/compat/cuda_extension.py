"""torch.utils.cpp_extension: building CUDA sources says what to do instead of asking for CUDA_HOME.

The module takes a third of a second to import, so it is not imported for this: it is changed when somebody does.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ..errors import message
from .patches import Patch, Patches

MODULE = "torch.utils.cpp_extension"
_patches = Patches()


def _no_cuda_home(*paths: str) -> str:
    """Raises OSError, as torch does without a CUDA installation."""
    raise OSError(
        message(
            "CUDA sources cannot be built for a virtual device",
            because="they compile to code for NVIDIA cards",
            hint="the project's path without the extension (try: load(...) except OSError: ...), torch functions, or a "
            "kernel of your own (torch_fl.pointwise, torch_fl.kernel)",
        )
    )


def _change(module: Any) -> None:
    _patches.apply(Patch(module, "_join_cuda_home", _no_cuda_home))
    _patches.apply(Patch(module, "CUDA_HOME", None))


class _Changing(Loader):
    """Loads a module as its own loader does, then changes it."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module object, as the module's own loader makes it."""
        return self.loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        """Run the module; change it while `cuda` still means our device."""
        self.loader.exec_module(module)
        if _FINDER in sys.meta_path:
            _change(module)


class _Finder(MetaPathFinder):
    """Finds the one module, with the loader above."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """None for every other module."""
        spec = PathFinder.find_spec(name, path) if name == MODULE else None
        if spec is not None:
            spec.loader = _Changing(spec.loader)
        return spec


_FINDER = _Finder()


def install() -> None:
    """Change the module if it is there, else when it comes."""
    sys.meta_path.insert(0, _FINDER)
    if MODULE in sys.modules:
        _change(sys.modules[MODULE])


def remove() -> None:
    """Put everything back."""
    sys.meta_path.remove(_FINDER)
    _patches.undo()
