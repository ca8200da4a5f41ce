"""torch-fl bench: how long things take on the device, as ratios to torch's own CPU kernels in the same process.

Both sides run interleaved and the medians are compared, because one shared machine is never quiet: the ratio means
more than either time.
"""

from __future__ import annotations

from .report import ALL, Report, main, run
from .timing import Result, measure

__all__ = ["ALL", "Report", "Result", "main", "measure", "run"]
