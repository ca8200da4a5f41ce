"""`torch-fl demo`: train a small residual network on a virtual device and on the CPU, and compare the two.

Exit status 1 where the device misses what the demo promises: accuracy, agreement with the CPU, no fallbacks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .. import fallback
from ..api import device as device_of
from ..compat import npu
from ..runtime.devices import device_at
from ..telemetry import Totals, listen, report
from ..telemetry.live import wide_console
from ..virtual import virtualize
from .digits import Digits, load
from .training import Result, Training, new_model, watched_epochs

EPOCHS = 8
SEED = 0
ACCURACY = 0.97
AGREEMENT = 0.01
"""Least held-out accuracy, and how far below the CPU's it may be. Not asked of a --quick run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the demo."""
    parser.add_argument("--epochs", type=_positive, help=f"passes over the training scans (default {EPOCHS})")
    parser.add_argument("--quick", action="store_true", help="one epoch: shows that it runs, not how well it learns")
    parser.add_argument("--device", default="npu", metavar="npu:N", help="device to train on (default npu)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"split, weights and batches (default {SEED})")
    parser.add_argument("--svg", metavar="FILE", help="save the placement table and the comparison as a picture")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def run(args: argparse.Namespace) -> int:
    """Train twice, print the comparison, say what was missed."""
    epochs = args.epochs or (1 if args.quick else EPOCHS)
    screen = wide_console()
    wanted = _device(args.device)
    digits = load(args.seed)
    screen.print(
        f"{len(digits.train_labels)} handwritten digits to train on, {len(digits.test_labels)} held out; "
        f"{epochs} epochs on {device_at(wanted.index)!r}, then the same on the CPU"
    )
    totals = Totals()
    ours = _on_device(digits, epochs, args.seed, wanted, totals, screen)
    cpu = _on_cpu(digits, epochs, args.seed, screen)
    compared = comparison(ours, cpu)
    screen.print(compared)
    missed = misses(ours, cpu, args.quick)
    for text in missed:
        screen.print(f"[bold red]missed[/]: {text}")
    if args.svg:
        save_picture(args.svg, totals, compared)
    return 1 if missed else 0


def _device(name: str) -> torch.device:
    try:
        wanted = torch.device(name)
    except RuntimeError:
        wanted = None
    if wanted is None or wanted.type != "npu":
        raise ValueError(f"--device takes npu or npu:N, got {name!r}")
    return device_of(wanted.index)


def _on_device(digits: Digits, epochs: int, seed: int, device: torch.device, totals: Totals, screen: Console) -> Result:
    result = Result(str(device))
    training = Training(virtualize(new_model(seed), device), digits, epochs, seed, result)
    npu.reset_peak_memory_stats(device)
    before = fallback.counts()[0]
    with _progress(screen, f"training on {device}", epochs * result.steps_per_epoch, totals) as advance:
        for epoch in range(epochs):
            with listen(totals) if epoch < watched_epochs(epochs) else nullcontext():
                training.run_epoch(epoch, advance)
    result.fallbacks = fallback.counts()[0] - before
    result.peak_bytes = npu.max_memory_allocated(device)
    training.evaluate()
    return result


def _on_cpu(digits: Digits, epochs: int, seed: int, screen: Console) -> Result:
    result = Result("cpu (plain torch)")
    training = Training(new_model(seed), digits, epochs, seed, result)
    with _progress(screen, "training on the CPU", epochs * result.steps_per_epoch, None) as advance:
        for epoch in range(epochs):
            training.run_epoch(epoch, advance)
    training.evaluate()
    return result


@contextmanager
def _progress(screen: Console, text: str, steps: int, totals: Totals | None) -> Iterator[Callable[[], None]]:
    """A progress bar, with the placement table above it where `totals` is given; gives the function for one step.

    Where nothing can be redrawn, the table is printed at the end.
    """
    if not screen.is_terminal:
        screen.print(f"{text}: {steps} steps")
        yield lambda: None
        if totals is not None:
            screen.print(_placement(totals, screen))
        return
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=screen
    )
    task = bar.add_task(text, total=steps)

    def draw() -> Any:
        return bar if totals is None else Group(_placement(totals, screen), bar)

    with Live(console=screen, get_renderable=draw, refresh_per_second=4):
        yield lambda: bar.advance(task)


def _placement(totals: Totals, screen: Console) -> Table:
    rows = max(3, min(14, screen.height - 12))
    return report.table(totals.rows(), "where the ops run", max_rows=rows, width=screen.width)


def comparison(ours: Result, cpu: Result) -> Table:
    """The closing table."""
    table = Table(title="held-out digits", title_justify="left", title_style="bold")
    table.add_column("")
    for result in (ours, cpu):
        table.add_column(result.device, justify="right")
    table.add_row("held-out accuracy", *(f"{r.accuracy:.2%}" for r in (ours, cpu)))
    table.add_row("loss, last epoch", *(f"{r.losses[-1]:.4f}" for r in (ours, cpu)))
    table.add_row("time per step", *(report.format_seconds(r.step_seconds) for r in (ours, cpu)))
    table.add_row("first epoch (compiles kernels)", *(report.format_seconds(r.epoch_seconds[0]) for r in (ours, cpu)))
    table.add_row("peak device memory", report.format_bytes(ours.peak_bytes or 0), "-")
    table.add_row("fallbacks to the CPU", str(ours.fallbacks), "-")
    return table


def misses(ours: Result, cpu: Result, quick: bool) -> list[str]:
    """What the device did not keep, as sentences."""
    found = []
    if ours.fallbacks:
        found.append(f"{ours.fallbacks} ops of the training loop ran on the CPU")
    if not quick and ours.accuracy < ACCURACY:
        found.append(f"held-out accuracy is {ours.accuracy:.2%}, at least {ACCURACY:.0%} is expected")
    if not quick and ours.accuracy < cpu.accuracy - AGREEMENT:
        found.append(f"held-out accuracy is {ours.accuracy:.2%}, the CPU's is {cpu.accuracy:.2%}")
    return found


def save_picture(path: str, totals: Totals, compared: Table) -> None:
    """The placement table and the comparison as an SVG file."""
    import io

    screen = Console(record=True, width=116, file=io.StringIO(), force_terminal=True)
    screen.print(report.table(totals.rows(), "where the ops ran", max_rows=14))
    screen.print(compared)
    screen.save_svg(path, title="torch-fl demo")
