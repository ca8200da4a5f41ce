"""`torch-fl coverage`: which route every op of torch's op database takes on each device, measured by running it."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .. import fallback, register
from ..runtime import devices
from ..telemetry import records
from ..telemetry.live import wide_console
from ..telemetry.records import Record
from .samples import DTYPES, Copies, entries, samples_of, supports

ROUTES = ("kernel", "portable", "view", "direct", "decomposition", "fallback")
"""Best first. An overload is counted under the worst route that one of its calls took."""


@dataclass
class Coverage:
    """What one device did. `entries`: dtype -> entry -> the ops that went to the CPU, or why the entry raised."""

    device: str
    overloads: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    entries: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    raised: dict[str, dict[str, str]] = field(default_factory=dict)
    sync = False

    def __post_init__(self) -> None:
        self._fallen: set[str] = set()

    def add(self, record: Record) -> None:
        """Count one op; called by the recorder."""
        if record.device == self.device:
            self.overloads.setdefault(record.name, Counter())[record.route] += 1
        if record.route == "fallback":
            self._fallen.add(record.name)
            self.reasons.setdefault(record.name, record.reason)

    def measure(self, name: str, dtype: str, count: int) -> None:
        """Run the forward samples of an entry; samples that torch cannot run on the CPU are left out."""
        self._fallen.clear()
        ran = 0
        for sample in samples_of(entries()[name], dtype, count):
            call = ((sample.input, *sample.args), sample.kwargs)
            error = _error_of(name, Copies(torch.device(self.device))(call))
            if error and _error_of(name, Copies(torch.device("cpu"))(call)):
                continue
            ran += 1
            if error:
                self.raised.setdefault(dtype, {})[name] = error
        if ran:
            self.entries.setdefault(dtype, {})[name] = sorted(self._fallen)

    def share(self, dtype: str) -> tuple[int, int]:
        """(entries that ran without going to the CPU, entries that ran)."""
        found, raised = self.entries.get(dtype, {}), self.raised.get(dtype, {})
        return sum(not ops and name not in raised for name, ops in found.items()), len(found)

    def worst(self, overload: str) -> str:
        """The worst route that calls of an overload took, "" for one that was never called."""
        return max(self.overloads.get(overload, ()), key=_rank, default="")

    def core(self) -> dict[str, str]:
        """Every overload that torch tags as core -> its worst route, "" where no sample reached it."""
        return {name: self.worst(name) for name in core_overloads()}

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "device": self.device,
            "entries": {d: {"without_fallback": self.share(d)[0], "total": self.share(d)[1]} for d in self.entries},
            "fallbacks": {d: {n: ops for n, ops in found.items() if ops} for d, found in self.entries.items()},
            "raised": self.raised,
            "reasons": dict(sorted(self.reasons.items())),
            "core": self.core(),
            "overloads": {n: dict(c) for n, c in sorted(self.overloads.items())},
        }


def _rank(route: str) -> int:
    return ROUTES.index(route) if route in ROUTES else 0


def _error_of(name: str, call: Any) -> str:
    torch.manual_seed(0)
    try:
        entries()[name](*call[0], **call[1])
    except Exception as error:  # noqa: BLE001 - an op that raises is a line of the table
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def core_overloads() -> list[str]:
    """The overloads that torch tags as its core set."""
    packets = (getattr(torch.ops.aten, name) for name in sorted(dir(torch.ops.aten)) if not name.startswith("__"))
    found = (getattr(p, o) for p in packets if isinstance(p, torch._ops.OpOverloadPacket) for o in p.overloads())
    return [f.name() for f in found if torch.Tag.core in f.tags]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of coverage."""
    parser.add_argument("--json", metavar="FILE", help="also write everything as JSON")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="default float32; may be repeated")
    parser.add_argument("--samples", type=int, default=6, metavar="N", help="samples per entry, default 6")
    parser.add_argument("entries", nargs="*", help="entries of torch's op database, default all")


def run(args: argparse.Namespace) -> int:
    """Measure and print; 0 unless an op raised."""
    register.ensure()
    dtypes = args.dtype or ["float32"]
    found = [Coverage(f"npu:{d.index}") for d in devices.devices()]
    with _fallback_allowed():
        for each in found:
            with records.listen(each):
                _measure_all(each, dtypes, args.samples, args.entries)
    _print(found, dtypes)
    if args.json:
        Path(args.json).write_text(json.dumps([c.as_dict() for c in found], indent=1), encoding="utf-8")
    return 1 if any(c.raised for c in found) else 0


def _measure_all(coverage: Coverage, dtypes: list[str], count: int, chosen: list[str]) -> None:
    for dtype in dtypes:
        names = [n for n, e in entries().items() if supports(e, dtype) and (not chosen or n in chosen)]
        for i, name in enumerate(names):
            if sys.stderr.isatty():
                sys.stderr.write(f"\r\x1b[K{coverage.device} {dtype} {i + 1}/{len(names)} {name}")
            coverage.measure(name, dtype, count)
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


@contextmanager
def _fallback_allowed() -> Iterator[None]:
    before = fallback.get_fallback()
    fallback.set_fallback("allow")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        fallback.set_fallback(before)


def _print(found: list[Coverage], dtypes: list[str]) -> None:
    from rich.table import Table

    screen = wide_console()
    summary = Table("device", "what", "without the CPU", "of", "share", title="op coverage")
    for each in found:
        for what, part, total in _shares(each, dtypes):
            summary.add_row(each.device, what, str(part), str(total), f"{part / total:.1%}" if total else "-")
    screen.print(summary)
    for each in found:
        screen.print(_overload_table(each))
        for dtype, raised in each.raised.items():
            for name, error in raised.items():
                screen.print(f"{each.device} {dtype} {name} raised {error}", markup=False)


def _shares(coverage: Coverage, dtypes: list[str]) -> Iterator[tuple[str, int, int]]:
    for dtype in dtypes:
        yield (f"entries in {dtype}", *coverage.share(dtype))
    reached = [n for n in coverage.overloads if n.startswith("aten::")]
    yield "overloads reached", sum(coverage.worst(n) != "fallback" for n in reached), len(reached)
    core = [route for route in coverage.core().values() if route]
    yield "core overloads reached", sum(route != "fallback" for route in core), len(core)


def _overload_table(coverage: Coverage) -> Any:
    from rich.table import Table

    counts = Counter(coverage.worst(n) for n in coverage.overloads)
    table = Table("route", "overloads", "which", title=f"{coverage.device}: overloads by route")
    for route in ROUTES:
        names = sorted(n for n in coverage.overloads if coverage.worst(n) == route)
        if names:
            told = [f"{n} ({coverage.reasons.get(n, '')})" for n in names] if route == "fallback" else []
            table.add_row(route, str(counts[route]), "\n".join(told))
    missing = [n for n, route in coverage.core().items() if not route]
    table.add_row("core, not reached", str(len(missing)), " ".join(missing))
    return table
