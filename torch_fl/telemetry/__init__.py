"""Who ran where: op records, the live console, traces, fallback budgets and the log.

Rich is imported only when something is drawn. While nobody listens an op pays one test (`dispatch.listener`).
"""

from .limits import Budget, budget
from .live import Console, console
from .log import set_log_level
from .records import Record, listen
from .report import Row, Totals
from .tracing import Trace, trace

__all__ = [
    "Budget", "Console", "Record", "Row", "Totals", "Trace", "budget", "console", "listen", "set_log_level", "trace",
]  # fmt: skip
