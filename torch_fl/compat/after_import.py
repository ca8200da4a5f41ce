"""Functions that run on a module right after its own code has run, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

Change = Callable[[ModuleType], None]


class AfterImport:
    """A finder for sys.meta_path: `changes` are run on the modules with these names, now or when they are imported.

    An exception in a change is logged: another release of the library works as without us.
    """

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self.changes = changes

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's own spec, with a loader that calls us back; None for all other modules."""
        spec = PathFinder.find_spec(name, path, target) if name in self.changes else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                self._change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _change(self, module: ModuleType) -> None:
        try:
            self.changes[module.__name__](module)
        except Exception as error:  # noqa: BLE001 - somebody else's module; importing it must go on
            from ..telemetry.log import logger

            logger.info("%s does not know the virtual device: %r", module.__name__, error)

    def install(self) -> None:
        """Change what is there and wait for the rest."""
        sys.meta_path.insert(0, self)
        for name in self.changes:
            if name in sys.modules:
                self._change(sys.modules[name])

    def remove(self) -> None:
        """Wait no longer; what was changed stays so."""
        sys.meta_path.remove(self)
