"""Runs the benchmark and shows what it found: a line per work, and where time goes besides."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..compat import npu
from ..errors import Error, message
from .memory import Peak, peaks
from .models import MODELS
from .ops import ATTENTION, CONVOLUTIONS, ELEMENTS, MOVEMENT, OPTIMIZERS, PRODUCTS, ROWS, SMALL
from .parts import Part, parts
from .start import start
from .timing import Case, Result, measure

GROUPS: dict[str, dict[str, Case]] = {
    "small": SMALL,
    "products": PRODUCTS,
    "convolutions": CONVOLUTIONS,
    "attention": ATTENTION,
    "rows": ROWS,
    "elements": ELEMENTS,
    "movement": MOVEMENT,
    "optimizers": OPTIMIZERS,
    "models": MODELS,
}
"""Works by group. Besides these, "memory" and "start" are groups with tables of their own."""

ALL = (*GROUPS, "memory", "start")


@dataclass(frozen=True)
class Report:
    """Everything one run measured, and on what."""

    device: str
    torch: str
    threads: int
    results: list[Result] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    peaks: list[Peak] = field(default_factory=list)
    start: list[Part] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as written by --json."""
        data = asdict(self)
        for line, result in zip(data["results"], self.results):
            line["ratio"] = result.ratio
        return data


def chosen(groups: str) -> list[str]:
    """The groups that a comma-separated list names. Raises Error for a word that is none."""
    names = [g.strip() for g in groups.split(",") if g.strip()]
    for name in names:
        if name not in ALL:
            raise Error(message(f"there is no group {name!r} of works", hint=f"one of {', '.join(ALL)}"))
    return names


def run(device: torch.device, quick: bool = False, groups: str = "") -> Report:
    """Measure the named groups, by default all (`quick`: the small ops only). Takes minutes; prints nothing."""
    chip = npu.get_device_properties(device)
    names = chosen(groups) or (["small"] if quick else list(ALL))
    report = Report(f"{device} {chip.driver}: {chip.name}", torch.__version__, torch.get_num_threads())
    for group in names:
        for name, case in GROUPS.get(group, {}).items():
            rounds = 7 if quick or group == "models" else 15
            report.results.append(measure(name, case, device, rounds))
    with torch.no_grad():
        report.parts.extend(parts(device, 7 if quick else 15))
    report.peaks.extend(peaks(device) if "memory" in names else [])
    report.start.extend(start() if "start" in names else [])
    return report


def tables(report: Report, before: dict[str, Any] | None = None) -> list[Any]:
    """The report as Rich tables; `before`: an earlier to_dict() whose ratios are shown beside."""
    found = [_ratios(report, before), _parts("where time goes besides kernels", report.parts)]
    if report.peaks:
        found.append(_peaks(report.peaks))
    if report.start:
        found.append(_parts("a new process", report.start))
    return found


def _table(title: str, *columns: str) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    return table


def _ratios(report: Report, before: dict[str, Any] | None) -> Any:
    earlier = {r["name"]: f"{r['ratio']:.2f}" for r in (before or {}).get("results", [])}
    title = f"{report.device}, torch {report.torch}, {report.threads} threads"
    table = _table(title, "work", "device us", "torch CPU us", "ratio", "ops", *(["before"] if earlier else []))
    for r in report.results:
        ops = f"{r.ops}" + (f" ({r.fallbacks} on the CPU)" if r.fallbacks else "")
        row = [r.name, f"{1e6 * r.device_seconds:.1f}", f"{1e6 * r.cpu_seconds:.1f}", f"{r.ratio:.2f}", ops]
        table.add_row(*row, *([earlier.get(r.name, "-")] if earlier else []))
    return table


def _parts(title: str, lines: list[Part]) -> Any:
    table = _table(title, "part", "us")
    for p in lines:
        table.add_row(p.name, f"{p.microseconds:.2f}" if p.microseconds < 1e4 else f"{p.microseconds:.0f}")
    return table


def _peaks(lines: list[Peak]) -> Any:
    table = _table("peak memory of three steps", "work", "device MiB", "torch CPU MiB", "ratio")
    for p in lines:
        mib = (f"{n / 2**20:.1f}" for n in (p.device_bytes, p.cpu_bytes))
        table.add_row(p.name, *mib, f"{p.device_bytes / p.cpu_bytes:.2f}")
    return table


def main(
    quick: bool = False,
    json_file: str | None = None,
    against: str = "torch",
    device: str = "npu:0",
    groups: str = "",
) -> int:
    """Run and print; `json_file` keeps the numbers, `against` names such a file. Returns the exit code."""
    from rich.console import Console

    before = None if against == "torch" else json.loads(Path(against).read_text())
    report = run(torch.device(device), quick, groups)
    console = Console()
    for table in tables(report, before):
        console.print(table)
    if json_file:
        Path(json_file).write_text(json.dumps(report.to_dict(), indent=2) + "\n")
    return 0
