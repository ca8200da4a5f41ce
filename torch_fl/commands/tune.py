"""`torch-fl tune`: measure which way of computing is the fastest on each chip, and keep that for later processes."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .. import register
from ..runtime import devices
from ..runtime.device import Device
from ..telemetry.live import wide_console
from ..telemetry.report import format_seconds
from ..tuning import problems, winners

COLUMNS = ("problem", "default", "time", "winner", "time", "ratio")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the tuner."""
    parser.add_argument("--list", action="store_true", help="show what is kept, measure nothing")
    parser.add_argument("--forget", action="store_true", help="delete what is kept")
    parser.add_argument("--only", default="", metavar="TEXT", help='those with this in their name ("mm", "conv 3x3")')
    parser.add_argument("--device", default="", metavar="npu:N", help="one device (default: each)")


def run(args: argparse.Namespace) -> int:
    """Measure and print, or show or delete what is kept."""
    if args.forget:
        sys.stdout.write(f"{winners.forget()} file(s) deleted in {winners.folder()}\n")
    elif args.list:
        _list()
    else:
        for device in _chosen(args.device):
            _measure(device, args.only)
    return 0


def _chosen(name: str) -> list[Device]:
    register.ensure()
    every = devices.devices()
    kind, _, index = name.partition(":")
    if not name:
        return every
    if kind != "npu" or not (index or "0").isdecimal():
        raise ValueError(f"--device takes npu or npu:N, got {name!r}")
    return [devices.device_at(int(index or 0))]


def _measure(device: Device, only: str) -> None:
    found: dict[str, winners.Entry] = {}
    problems.measure(device, lambda _, key, entry: found.update({key: entry}), only)
    _print(f"{device}", found)


def _list() -> None:
    files = winners.files()
    for about, entries in files:
        _print(f"{about['backend']}: {about['device']} ({about['driver']}, torch_fl {about['torch_fl']})", entries)
    if not files:
        sys.stdout.write(f"nothing is kept in {winners.folder()}\n")


def _print(title: str, entries: dict[str, winners.Entry]) -> None:
    """A line for each problem; what the rules already take is dim."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for k, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if name in ("time", "ratio") else "left", overflow="fold", no_wrap=k > 0)
    for key, e in sorted(entries.items()):
        table.add_row(escape(key), *_cells(e), style="dim" if e["way"] == e["default"] else None)
    wide_console().print(table)


def _cells(e: dict[str, Any]) -> list[str]:
    before, after = e["default_seconds"], e["seconds"]
    return [e["default"], format_seconds(before), e["way"], format_seconds(after), f"{after / max(before, 1e-12):.2f}"]
