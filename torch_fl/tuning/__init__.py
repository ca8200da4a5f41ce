"""Which of several ways a problem is computed: by rules of the device's type, or by what was measured.

A kernel function that knows several ways hands them to `emit_best`, the one of its rules first. What was measured on
this kind of chip before, by `torch-fl tune` or under `init(tune=True)`, is read from disk and goes before the rules.
"""

from __future__ import annotations

from .ways import Way as Way
from .ways import candidate as candidate
from .ways import emit_best as emit_best
