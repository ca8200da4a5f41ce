"""torch.utils.cpp_extension: building CUDA sources says what to do instead of asking for CUDA_HOME.

The module takes a third of a second to import, so it is not imported for this: it is changed when somebody does.
"""

from __future__ import annotations

from typing import Any

from ..errors import message
from .after_import import AfterImport
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


_WAITING = AfterImport({MODULE: _change})


def install() -> None:
    """Change the module if it is there, else when it comes."""
    _WAITING.install()


def remove() -> None:
    """Put everything back."""
    _WAITING.remove()
    _patches.undo()
