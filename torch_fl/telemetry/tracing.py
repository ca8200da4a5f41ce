"""trace(): every op of a block as data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from . import records, report
from .records import Record

if TYPE_CHECKING:
    from rich.table import Table

MAX_RECORDS = 1_000_000


class Trace:
    """The records of a block, in the order in which the ops ended. Sums stay exact when records had to be dropped."""

    def __init__(self, sync: bool = False, max_records: int = MAX_RECORDS) -> None:
        self.sync = sync
        self.max_records = max_records
        self.records: list[Record] = []
        self.dropped = 0
        self.wall_seconds = 0.0
        self._totals = report.Totals(sync)

    def add(self, record: Record) -> None:
        """Keep one record; called by the recorder."""
        self._totals.add(record)
        if len(self.records) < self.max_records:
            self.records.append(record)
        else:
            self.dropped += 1

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Record:
        return self.records[index]

    def fallbacks(self) -> list[Record]:
        """The ops that ran on the CPU, each with its reason, module and source line."""
        return [r for r in self.records if r.route == "fallback"]

    def summary(self) -> list[report.Row]:
        """Sums by op, route, device and reason, most time first."""
        return self._totals.rows()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        return {
            "version": 1,
            "sync": self.sync,
            "wall_seconds": self.wall_seconds,
            "dropped": self.dropped,
            "summary": [vars(r) for r in self.summary()],
            "records": [asdict(r) for r in list(self.records)],
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """`to_dict` as JSON text; also written to `path` if given."""
        text = json.dumps(self.to_dict())
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def table(self, title: str = "", max_rows: int = 25, width: int = report.WIDE) -> Table:
        """The summary as a Rich table that fits `width` columns."""
        return report.table(self.summary(), title, self.sync, max_rows, width)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Table]:
        yield self.table(width=options.max_width)

    def __str__(self) -> str:
        return report.as_text(self.table()).rstrip()

    def __repr__(self) -> str:
        return f"Trace({len(self)} ops, {self._totals.fallbacks()} fallbacks, {self.wall_seconds:.3f} s)"

    def _repr_html_(self) -> str:
        return report.as_html(self.summary(), "", self.sync)


@contextmanager
def trace(sync: bool = False, max_records: int = MAX_RECORDS) -> Iterator[Trace]:
    """Record every op of the process inside the block; the Trace stays readable afterwards.

    `sync` waits for the device after each op, so that `seconds` is the time of the work instead of its launch.
    Blocks nest, and records of other threads carry their `thread`. Beyond `max_records` only sums are kept.
    """
    found = Trace(sync, max_records)
    start = perf_counter()
    try:
        with records.listen(found):
            yield found
    finally:
        found.wall_seconds = perf_counter() - start
