"""torch_fl: one PyTorch program, any chip. See README.md.

Importing this package is light; the names below load what they need at first use.
"""

from __future__ import annotations

from pathlib import Path as _Path

# A checkout keeps backends/ and native/ beside the package; an installed package holds them inside.
if (_Path(__file__).parent.parent / "backends" / "__init__.py").is_file():
    __path__.append(str(_Path(__file__).parent.parent))

import torch as _torch  # noqa: F401 - runs our entry point, which registers the device type
