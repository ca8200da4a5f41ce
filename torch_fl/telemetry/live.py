"""console(): a table of what runs where that updates while the program runs."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import records, report

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.table import Table


class Console:
    """The live placement table. Made by `console()`; afterwards it can be printed, exported and read."""

    def __init__(
        self, title: str, refresh_per_second: float, sync: bool, max_rows: int | None, rich: RichConsole | None
    ) -> None:
        if refresh_per_second <= 0:
            raise ValueError(f"refresh_per_second must be positive, got {refresh_per_second}")
        self.title = title
        self.refresh_per_second = refresh_per_second
        self.sync = sync
        self.max_rows = max_rows
        self._rich = rich
        self._totals = report.Totals(sync)
        self._start = self._end = 0.0
        self._stop: Callable[[], None] | None = None

    def rows(self) -> list[report.Row]:
        """The sums so far, most time first."""
        return self._totals.rows()

    def fallbacks(self) -> int:
        """Ops that ran on the CPU so far."""
        return self._totals.fallbacks()

    def table(self, max_rows: int | None = None, width: int = report.WIDE) -> Table:
        """The table as it stands, for `width` columns."""
        seconds = (self._end or perf_counter()) - self._start if self._start else 0.0
        title = f"{self.title} · {report.format_seconds(seconds)}"
        return report.table(self.rows(), title, self.sync, max_rows or self.max_rows or 25, width)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Table]:
        yield self.table(width=options.max_width)

    def _repr_html_(self) -> str:
        return report.as_html(self.rows(), self.title, self.sync, self.max_rows or 25)

    def __enter__(self) -> Console:
        if self._stop is not None:
            raise RuntimeError("this console is already running; torch_fl.console() makes another one")
        rich = self._rich or wide_console()
        self._totals = report.Totals(self.sync)
        self._start, self._end = perf_counter(), 0.0
        records.add(self._totals)
        try:
            self._stop = _display(self, rich)
        except BaseException:
            records.remove(self._totals)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        records.remove(self._totals)
        self._end = perf_counter()
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()


def console(
    title: str = "torch_fl",
    refresh_per_second: float = 4,
    sync: bool = False,
    max_rows: int | None = None,
    rich: RichConsole | None = None,
) -> Console:
    """Show which op runs where inside a `with` block: route, device, calls, time, bytes moved, why on the CPU.

    In a terminal and in Jupyter the table updates `refresh_per_second` times; elsewhere it is printed once at the
    end. Times are the host's unless `sync`, which waits for the device after each op. `max_rows` bounds the height
    (default: what fits). `rich` is the Rich console to draw on. The object stays readable after the block.
    """
    return Console(title, refresh_per_second, sync, max_rows, rich)


def wide_console(stderr: bool = False) -> RichConsole:
    """A Rich console on stdout or stderr; a pipe or a file, which has no width of its own, gets a wide one."""
    from rich.console import Console as RichConsole

    found = RichConsole(stderr=stderr)
    return found if found.is_terminal or found.is_jupyter else RichConsole(stderr=stderr, width=max(found.width, 132))


_live: list[Console] = []
"""The console that is drawing; one that starts inside it prints its table at the end."""


def _display(view: Console, rich: RichConsole) -> Callable[[], None]:
    """Start drawing `view`; returns the function that draws it for the last time and stops."""
    if _live or not (rich.is_jupyter or (rich.is_terminal and not rich.is_dumb_terminal)):
        return lambda: rich.print(view)
    stop = _in_notebook(view) if rich.is_jupyter else _in_terminal(view, rich)
    _live.append(view)

    def stop_drawing() -> None:
        _live.remove(view)
        stop()

    return stop_drawing


def _in_terminal(view: Console, rich: RichConsole) -> Callable[[], None]:
    from rich.live import Live

    # Borders, title, caption, the two rows of sums: a table taller than the screen cannot be redrawn in place.
    height = max(3, min(25, rich.height - 11))
    live = Live(
        console=rich,
        get_renderable=lambda: view.table(view.max_rows or height, rich.width),
        refresh_per_second=view.refresh_per_second,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )
    live.start(refresh=True)
    return live.stop


def _in_notebook(view: Console) -> Callable[[], None]:
    ipython: Any = import_module("IPython.display")

    def draw() -> Any:
        return ipython.HTML(view._repr_html_())

    handle = ipython.display(draw(), display_id=True)
    done = threading.Event()

    def follow() -> None:
        while not done.wait(1 / view.refresh_per_second):
            try:
                handle.update(draw())
            except Exception as error:  # noqa: BLE001 - the front end is gone; the program goes on
                logging.getLogger("torch_fl").info("the console stopped updating: %r", error)
                return

    thread = threading.Thread(target=follow, name="torch_fl.console", daemon=True)
    thread.start()

    def stop() -> None:
        done.set()
        thread.join(timeout=2)
        handle.update(draw())

    return stop
