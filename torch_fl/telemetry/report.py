"""Records summed up by op and place, and how the sums are drawn: as a Rich table, as text and as HTML."""

from __future__ import annotations

import html
import io
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .records import Record

if TYPE_CHECKING:
    from rich.table import Table

HOST_TIME = "time on the host: launches do not wait for the device (sync=True waits)"
DEVICE_TIME = "time with a wait for the device after every op"
STYLES = {"fallback": "bold red", "decomposition": "yellow", "migrate": "magenta", "view": "dim", "direct": "dim"}
COLUMNS = ("op", "route", "device", "calls", "time", "share", "h2d", "d2h", "why on the CPU")
NARROW = ("op", "route", "device", "calls", "time", "moved", "why on the CPU")
NUMBERS = ("calls", "time", "share", "h2d", "d2h", "moved")
WIDE = 112


@dataclass
class Row:
    """All calls of one op by one route on one device. `share` is the part of the time of all rows, 0 to 1."""

    op: str
    route: str
    device: str
    reason: str
    calls: int = 0
    seconds: float = 0.0
    share: float = 0.0
    h2d_bytes: int = 0
    d2h_bytes: int = 0

    def cell(self, column: str) -> str:
        """What a column of the table shows for this row."""
        return _CELLS[column](self)


_CELLS: dict[str, Callable[[Row], str]] = {
    "op": lambda r: r.op.removeprefix("aten::"),
    "route": lambda r: r.route,
    "device": lambda r: r.device,
    "calls": lambda r: str(r.calls),
    "time": lambda r: format_seconds(r.seconds),
    "share": lambda r: f"{r.share:.1%}",
    "h2d": lambda r: format_bytes(r.h2d_bytes),
    "d2h": lambda r: format_bytes(r.d2h_bytes),
    "moved": lambda r: format_bytes(r.h2d_bytes + r.d2h_bytes),
    "why on the CPU": lambda r: r.reason if r.route == "fallback" else "",
}


class Totals:
    """A listener that keeps sums only: its size depends on how many different ops run, not on how often."""

    def __init__(self, sync: bool = False) -> None:
        self.sync = sync
        self._rows: dict[tuple[str, str, str, str, str], Row] = {}
        self._lock = threading.Lock()

    def add(self, record: Record) -> None:
        """Add one record to the sum of its kind."""
        key = (record.op, record.overload, record.route, record.device, record.reason)
        with self._lock:
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = Row(record.name, record.route, record.device, record.reason)
            row.calls += 1
            row.seconds += record.seconds
            row.h2d_bytes += record.h2d_bytes
            row.d2h_bytes += record.d2h_bytes

    def rows(self) -> list[Row]:
        """The sums, most time first."""
        with self._lock:
            found = [Row(**vars(row)) for row in self._rows.values()]
        total = sum(r.seconds for r in found)
        for row in found:
            row.share = row.seconds / total if total else 0.0
        return sorted(found, key=lambda r: (-r.seconds, r.op))

    def fallbacks(self) -> int:
        """Calls that ran on the CPU."""
        with self._lock:
            return sum(r.calls for r in self._rows.values() if r.route == "fallback")


def sum_of(rows: Sequence[Row], name: str) -> Row:
    """One row with the sums of many."""
    total = Row(name, "", "", "")
    for row in rows:
        total.calls += row.calls
        total.seconds += row.seconds
        total.share += row.share
        total.h2d_bytes += row.h2d_bytes
        total.d2h_bytes += row.d2h_bytes
    return total


def caption(rows: Sequence[Row], sync: bool) -> str:
    """The line under a table: what the times mean, and the number of fallbacks."""
    count = sum(r.calls for r in rows if r.route == "fallback")
    fallbacks = "1 fallback" if count == 1 else f"{count} fallbacks"
    return f"{DEVICE_TIME if sync else HOST_TIME} · {fallbacks} to the CPU"


def shown(rows: Sequence[Row], max_rows: int) -> list[Row]:
    """The first rows, the others as one, and the total."""
    kept, rest = list(rows[:max_rows]), rows[max_rows:]
    if rest:
        kept.append(sum_of(rest, f"{len(rest)} more"))
    return [*kept, sum_of(rows, "total")]


def table(rows: Sequence[Row], title: str = "", sync: bool = False, max_rows: int = 25, width: int = WIDE) -> Table:
    """The Rich table of `rows`; at most `max_rows` of them, then one for the others and one for the sum.

    Below `width` WIDE the share is left out and the bytes of both directions are one column.
    """
    from rich import box
    from rich.table import Table

    drawn = Table(
        box=box.SIMPLE_HEAD, title=title or None, caption=caption(rows, sync), caption_justify="left",
        title_justify="left", title_style="bold", pad_edge=False,
    )  # fmt: skip
    columns = COLUMNS if width >= WIDE else NARROW
    for name in columns:
        side: Any = "right" if name in NUMBERS else "left"
        least = {"op": 16, "device": 6, "calls": 6, "time": 8, "moved": 8}.get(name)
        drawn.add_column(name, justify=side, no_wrap=True, overflow="ellipsis", min_width=least)
    lines = shown(rows, max_rows)
    for row in lines[:-1]:
        drawn.add_row(*(_escape(row.cell(name)) for name in columns), style=STYLES.get(row.route))
    drawn.add_section()
    drawn.add_row(*(lines[-1].cell(name) for name in columns), style="bold")
    return drawn


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def as_text(renderable: Any, width: int = 140) -> str:
    """A Rich renderable as plain text."""
    from rich.console import Console

    target = io.StringIO()
    Console(file=target, width=width, force_jupyter=False, force_terminal=False).print(renderable)
    return target.getvalue()


def as_html(rows: Sequence[Row], title: str = "", sync: bool = False, max_rows: int = 25) -> str:
    """The same table as HTML, for notebooks."""
    lines = shown(rows, max_rows)
    head = "".join(f"<th{_side(name)}>{name}</th>" for name in COLUMNS)
    body = "".join(_html_row(r, last=r is lines[-1]) for r in lines)
    note = html.escape(caption(rows, sync))
    return f"<table><caption>{html.escape(title)}</caption><tr>{head}</tr>{body}</table><small>{note}</small>"


def _html_row(row: Row, last: bool) -> str:
    weight = "font-weight:bold;" if last else ""
    color = "color:#c00;" if row.route == "fallback" else ""
    cells = "".join(f"<td{_side(name)}>{html.escape(row.cell(name))}</td>" for name in COLUMNS)
    return f'<tr style="{weight}{color}">{cells}</tr>'


def _side(column: str) -> str:
    return f' style="text-align:{"right" if column in NUMBERS else "left"}"'


def format_seconds(seconds: float) -> str:
    """A duration with three digits and its unit."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 999.5 else f"{seconds * factor:.0f} {unit}"
    return f"{seconds * 1e6:.3g} us"


def format_bytes(nbytes: int) -> str:
    """A size with its unit; "" for none."""
    if not nbytes:
        return ""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}" if size < 999.5 else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"
