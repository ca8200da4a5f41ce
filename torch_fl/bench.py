"""torch-fl bench: how long things take on the device, as ratios to torch's own CPU kernels in the same process.

Both sides run interleaved and the medians are compared, because one shared machine is never quiet: the ratio means
more than either time. The parts of the dispatch cost are measured one by one.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .compat import npu

Work = Callable[[], Any]
Maker = Callable[[torch.device], Work]


@dataclass(frozen=True)
class Result:
    """One line: median seconds per call on the device and on the CPU."""

    name: str
    device_seconds: float
    cpu_seconds: float

    @property
    def ratio(self) -> float:
        """Device time over CPU time."""
        return self.device_seconds / self.cpu_seconds


@dataclass(frozen=True)
class Part:
    """One part of what a small op costs on a plan-cache hit, in microseconds."""

    name: str
    microseconds: float


def _binary(op: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], *shape: int) -> Maker:
    def make(device: torch.device) -> Work:
        x, y = torch.randn(shape).to(device), torch.randn(shape).to(device)
        return lambda: op(x, y)

    return make


def _unary(op: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> Maker:
    def make(device: torch.device) -> Work:
        x = torch.randn(shape).to(device)
        return lambda: op(x)

    return make


def _training(module: Callable[[], nn.Module], *shape: int) -> Maker:
    """Forward and backward of a module; gradients are dropped before each call."""

    def make(device: torch.device) -> Work:
        torch.manual_seed(0)
        model, x = module().to(device), torch.randn(shape).to(device)

        def run() -> None:
            for parameter in model.parameters():
                parameter.grad = None
            model(x).sum().backward()

        return run

    return make


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def _attention(q: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


SMALL: dict[str, Maker] = {
    "add 4x4": _binary(torch.add, 4, 4),
    "mul 4x4": _binary(torch.mul, 4, 4),
    "mm 4x4": _binary(torch.mm, 4, 4),
    "MLP 3 x 8, forward + backward": _training(_mlp, 8, 8),
}

LARGE: dict[str, Maker] = {
    "add 4M": _binary(torch.add, 2048, 2048),
    "gelu 4M": _unary(F.gelu, 2048, 2048),
    "sum 4M": _unary(torch.sum, 2048, 2048),
    "softmax 1024x1024": _unary(lambda x: torch.softmax(x, -1), 1024, 1024),
    "mm 512": _binary(torch.mm, 512, 512),
    "mm 1024": _binary(torch.mm, 1024, 1024),
    "causal attention 2x4x256x64": _unary(_attention, 2, 4, 256, 64),
    "conv 3x3, 64 channels 28x28 x 4, forward + backward": _training(
        lambda: nn.Conv2d(64, 64, 3, padding=1), 4, 64, 28, 28
    ),
}


def _seconds(work: Work, calls: int, wait: Callable[[], None]) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait()
    return (time.perf_counter() - start) / calls


def _calls_for(work: Work, wait: Callable[[], None], budget: float) -> int:
    work()
    wait()
    return max(1, min(2000, int(budget / max(_seconds(work, 1, wait), 1e-7))))


def measure(name: str, make: Maker, device: torch.device, rounds: int, budget: float = 0.02) -> Result:
    """Median over `rounds` of device and CPU time for one work, interleaved; about `budget` seconds a round each."""
    sides = [(make(device), lambda: npu.synchronize(device)), (make(torch.device("cpu")), lambda: None)]
    counts = [_calls_for(work, wait, budget) for work, wait in sides]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for side, (work, wait) in enumerate(sides):
            times[side].append(_seconds(work, counts[side], wait))
    return Result(name, statistics.median(times[0]), statistics.median(times[1]))


class _Bare(torch.Tensor):
    """A wrapper whose __torch_dispatch__ does nothing: torch's own share of the cost."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return args[0]


def parts(device: torch.device, rounds: int) -> list[Part]:
    """What a 4x4 add costs on a plan-cache hit, part by part."""
    from .dispatch import op_of
    from .tensor import wrap

    x: Any = torch.randn(4, 4).to(device)
    y: Any = torch.randn(4, 4).to(device)
    torch.add(x, y)
    op = op_of(torch.ops.aten.add.Tensor)
    key, _, values = op.bind((x, y), {})
    plan: Any = op.plans[key]
    chip = x._spec.device
    handles, offsets = [x._buffer.handle, y._buffer.handle, chip.allocate(64).handle], [0, 0, 0]
    bare = torch.Tensor._make_wrapper_subclass(_Bare, (4, 4))

    def lookup() -> Any:
        found, _, _ = op.bind((x, y), {})
        return op.plans.get(found)

    works: dict[str, Work] = {
        "torch: __torch_dispatch__ that does nothing": lambda: torch.add(bare, bare),
        "route lookup on a hit (bind arguments, find plan)": lookup,
        "allocate the output": lambda: chip.allocate(64),
        "set arguments and enqueue": lambda: plan.steps[0](handles, offsets, values),
        "wrap the output": lambda: wrap(x._buffer, x._spec),
        "whole op": lambda: torch.add(x, y),
    }
    times: dict[str, list[float]] = {n: [] for n in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(_seconds(work, 500, lambda: None))
            npu.synchronize(device)
    return [Part(n, 1e6 * statistics.median(t)) for n, t in times.items()]


@dataclass(frozen=True)
class Report:
    """Everything one run measured, and on what."""

    device: str
    torch: str
    threads: int
    results: list[Result]
    parts: list[Part]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as written by --json."""
        data = asdict(self)
        for line, result in zip(data["results"], self.results):
            line["ratio"] = result.ratio
        return data


def run(device: torch.device, quick: bool = False) -> Report:
    """Measure everything (`quick`: the small ops only). Takes some seconds; prints nothing."""
    chip = npu.get_device_properties(device)
    rounds = 7 if quick else 15
    works = SMALL if quick else {**SMALL, **LARGE}
    results = []
    for name, make in works.items():
        with torch.set_grad_enabled("backward" in name):
            results.append(measure(name, make, device, rounds))
    with torch.no_grad():
        found = parts(device, rounds)
    return Report(f"{device} {chip.driver}: {chip.name}", torch.__version__, torch.get_num_threads(), results, found)


def tables(report: Report, before: dict[str, Any] | None = None) -> list[Any]:
    """The report as Rich tables; `before`: an earlier to_dict() whose ratios are shown beside."""
    from rich.table import Table

    earlier = {r["name"]: r["ratio"] for r in (before or {}).get("results", [])}
    ratios = Table(title=f"{report.device}, torch {report.torch}, {report.threads} threads")
    for column in ("work", "device us", "torch CPU us", "ratio", *(["before"] if earlier else [])):
        ratios.add_column(column, justify="left" if column == "work" else "right")
    for r in report.results:
        row = [r.name, f"{1e6 * r.device_seconds:.1f}", f"{1e6 * r.cpu_seconds:.1f}", f"{r.ratio:.2f}"]
        ratios.add_row(*row, *([f"{earlier[r.name]:.2f}" if r.name in earlier else "-"] if earlier else []))
    cost = Table(title="where a 4x4 add spends its time")
    cost.add_column("part")
    cost.add_column("us", justify="right")
    for p in report.parts:
        cost.add_row(p.name, f"{p.microseconds:.2f}")
    return [ratios, cost]


def main(quick: bool = False, json_file: str | None = None, against: str | None = None, device: str = "npu:0") -> int:
    """Run and print; `json_file` keeps the numbers, `against` compares with such a file. Returns the exit code."""
    from rich.console import Console

    before = json.loads(Path(against).read_text()) if against else None
    report = run(torch.device(device), quick)
    console = Console()
    for table in tables(report, before):
        console.print(table)
    if json_file:
        Path(json_file).write_text(json.dumps(report.to_dict(), indent=2) + "\n")
    return 0
