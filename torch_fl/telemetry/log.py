"""The log "torch_fl": warnings by default, every fallback at INFO, every op at DEBUG."""

from __future__ import annotations

import logging
import sys
from typing import Any

from ..errors import did_you_mean
from ..runtime.settings import LOG_LEVELS as LEVELS
from . import records, report
from .records import Record

logger = logging.getLogger("torch_fl")


def set_log_level(level: str | int) -> None:
    """How much the logger "torch_fl" says: "WARNING" (default), "INFO" (each fallback), "DEBUG" (each op, one line).

    Lines go to the handlers of the application, else to stderr. Raises ValueError for a name that is not a level.
    The default warning, once per op and reason, is a Python warning (FallbackWarning) and is not affected.
    """
    logger.setLevel(_number(level))
    if not logger.hasHandlers():
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    records.remove(_every_op)
    if logger.isEnabledFor(logging.DEBUG):
        records.add(_every_op)


def _number(level: str | int) -> int:
    if isinstance(level, int):
        return level
    name = level.upper()
    if name not in LEVELS:
        raise ValueError(f"set_log_level takes one of {LEVELS}, got {level!r}; {did_you_mean(name, LEVELS)}")
    return int(getattr(logging, name))


class _Stderr(logging.StreamHandler[Any]):
    """Writes to whatever sys.stderr is at the time: notebooks and tests replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


class _EveryOp:
    sync = False

    def add(self, record: Record) -> None:
        if record.route == "fallback":
            return  # told by log_fallback, with the reason
        tensors = ", ".join(str(list(s)) for s in record.shapes[:4])
        note = f" ({record.reason})" if record.reason else ""
        place = f" in {record.module}" if record.module else ""
        logger.debug(
            "%s %s %s%s %s%s %s%s", record.name, record.device, record.route, note, record.dtype, tensors,
            report.format_seconds(record.seconds), place,
        )  # fmt: skip


_every_op = _EveryOp()


def log_fallback(name: str, device_index: int, reason: str, line: str) -> None:
    """One INFO line about an op that goes to the CPU."""
    asked = f" at {line}" if line else ""
    logger.info("%s npu:%d fallback to CPU (%s)%s", name, device_index, reason, asked)
