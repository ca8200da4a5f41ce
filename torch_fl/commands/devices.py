"""`torch-fl devices`: every chip that was found, after running a kernel on it, and why other adapters found none."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from .. import __version__, fallback, register
from ..runtime import devices, settings
from ..runtime.devices import Device, Found
from ..telemetry import report
from ..telemetry.live import wide_console

COLUMNS = ("device", "backend", "name", "kind", "memory", "units", "types", "driver", "check")


@dataclass(frozen=True)
class Check:
    """Whether a chip computed the right numbers. `seconds` includes compiling the kernels."""

    ok: bool
    text: str
    seconds: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the list."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the list. 1 when no chip works, or one computes something wrong."""
    register.ensure()
    found = devices.discoveries() + _not_asked()
    checks = {d.index: check(d) for d in devices._state.opened}
    if args.json:
        sys.stdout.write(json.dumps(as_dict(found, checks), indent=2) + "\n")
    else:
        _print(found, checks)
    return 0 if checks and all(c.ok for c in checks.values()) else 1


def _not_asked() -> list[Found]:
    """Adapters that were left out by choice."""
    known = {f.backend for f in devices.discoveries()}
    asked = settings.backends()
    why = f"not asked for: TORCH_FL_BACKENDS={','.join(asked)}" if asked else "not asked for"
    return [Found(name, None, None, why) for name in sorted(set(devices.backend_classes()) - known)]


def check(device: Device) -> Check:
    """Multiply and add on the chip and compare with the CPU; falling back is a failure here."""
    before = fallback.get_fallback()
    fallback.set_fallback("error")
    start = time.perf_counter()
    try:
        text = _compute(torch.device("npu", device.index))
    except Exception as error:  # noqa: BLE001 - whatever a chip does wrong belongs into its line
        text = (str(error).strip() or repr(error)).splitlines()[0]
    finally:
        fallback.set_fallback(before)
    seconds = time.perf_counter() - start
    return Check(not text, text or f"ok, {report.format_seconds(seconds)}", seconds)


def _compute(where: torch.device) -> str:
    """What is wrong with a @ b + a on the device, or ""."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(65, 65, generator=generator)
    b = torch.randn(65, 65, generator=generator)
    there = a.to(where)
    got, want = (there @ b.to(where) + there).cpu(), a @ b + a
    if torch.allclose(got, want, rtol=1e-4, atol=1e-4):
        return ""
    return f"wrong numbers: matmul is off by {(got - want).abs().max().item():.3g}"


def as_dict(found: list[Found], checks: dict[int, Check]) -> dict[str, Any]:
    """The list as plain data."""
    chips = []
    for f in found:
        if f.properties is not None:
            properties = asdict(replace(f.properties, handle=None))
            del properties["handle"]
            tested = asdict(checks[f.index]) if f.index in checks else None
            known = {"index": f.index, "backend": f.backend, "note": f.note, "notes": _notes(f)}
            chips.append({**known, **properties, "check": tested})
    absent = [{"backend": f.backend, "because": f.note} for f in found if f.properties is None]
    return {"torch_fl": __version__, "torch": torch.__version__, "devices": chips, "absent": absent}


def _print(found: list[Found], checks: dict[int, Check]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in ("memory", "units") else "left", overflow="fold")
    for f in found:
        if f.properties is not None:
            table.add_row(*map(escape, _cells(f, checks)), style=_style(f, checks))
    screen = wide_console()
    if table.row_count:
        screen.print(table)
    else:
        screen.print("no device was found")
    for f in found:
        if f.properties is None:
            screen.print(f"[dim]{escape(f.backend)}: {escape(f.note)}[/]")
        for note in _notes(f):
            screen.print(f"npu:{f.index}: {escape(note)}")


def _notes(f: Found) -> list[str]:
    """What the adapter has to say about an opened chip."""
    return [] if f.index is None else devices.device_at(f.index).backend.notes()


def _style(f: Found, checks: dict[int, Check]) -> str | None:
    if f.index not in checks:
        return "dim"
    return None if checks[f.index].ok else "red"


def _cells(f: Found, checks: dict[int, Check]) -> list[str]:
    p = f.properties
    if p is None:
        return []
    types = " ".join(name for name in ("fp16", "bf16", "fp64") if getattr(p, name))
    place = f"npu:{f.index}" if f.index is not None else "-"
    tested = checks[f.index].text if f.index in checks else f.note
    memory = report.format_bytes(p.total_memory)
    return [place, f.backend, p.name, p.kind, memory, str(p.compute_units), types, p.driver, tested]
