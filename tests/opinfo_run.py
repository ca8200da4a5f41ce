"""Runs nodes of tests/opinfo.py in worker processes, and holds the results against what is declared.

A worker that dies, or takes too long, is the failure of the node it was running; a new one goes on after it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import opinfo
import torch
from opinfo import Node, declared

from torch_fl import fallback

NODE_SECONDS = 180


def serve() -> None:
    """What a worker does: nodes in as JSON lines, results out as JSON lines."""
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    for absent in (torch.cuda, torch.xpu, torch.mtia):  # each would keep every seed, with a stack: half the time
        absent._is_in_bad_fork = lambda: True
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what ops print must not mix with the results
    fallback.set_fallback("allow")
    for line in sys.stdin:
        request = json.loads(line)
        results.write(json.dumps(opinfo.outcome(Node(*request["node"]), request["count"])) + "\n")
        results.flush()


class Worker:
    """One process that checks nodes, restarted when it dies."""

    def __init__(self, backend: str = "opencl") -> None:
        self.process: subprocess.Popen[str] | None = None
        self.environment = {**os.environ, "TORCH_FL_BACKENDS": backend}

    def check(self, node: Node, count: int | None) -> dict[str, Any]:
        """The node's result, also where it kills the process."""
        process = self.process or self._start()
        request = {"node": node, "count": count}
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            ready = select.select([process.stdout], [], [], NODE_SECONDS)[0]
            line = process.stdout.readline() if ready else ""
        except BrokenPipeError:
            ready, line = [process.stdout], ""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        error = self._died(process, late=not ready)
        return {"node": list(node), "error": error, "where": "", "checked": 0, "rounded": 0, "fallbacks": 0,
                "seconds": 0.0, "compiled": 0}  # fmt: skip

    def _start(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(opinfo.__file__)), "--worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment,
        )  # fmt: skip
        return self.process

    def _died(self, process: subprocess.Popen[str], late: bool) -> str:
        self.process = None
        if late:
            process.kill()
            _close(process)
            return f"Timeout: longer than {NODE_SECONDS} s"
        return f"Died: the process ended with {_close(process)}"

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            _close(self.process)
            self.process = None


def _close(process: subprocess.Popen[str]) -> int:
    with suppress(BrokenPipeError), process:
        pass
    return process.wait()


def run(
    nodes: Iterable[tuple[Node, int | None]],
    workers: int = 2,
    told: Callable[[Any], None] = lambda _: None,
    backend: str = "opencl",
) -> list[dict[str, Any]]:
    """Check nodes, each with a number of samples (None: its group's), in several processes.

    `told` hears every result as it comes, from the thread of its worker.
    """
    waiting: queue.SimpleQueue[tuple[Node, int | None]] = queue.SimpleQueue()
    for node in nodes:
        waiting.put(node)

    def work(_: int) -> list[dict[str, Any]]:
        worker, results = Worker(backend), []
        while True:
            try:
                node, count = waiting.get_nowait()
            except queue.Empty:
                worker.close()
                return results
            results.append(worker.check(node, count))
            told(results[-1])

    with ThreadPoolExecutor(workers) as pool:
        return [r for found in pool.map(work, range(workers)) for r in found]


class Report:
    """Results by what they mean."""

    def __init__(self, results: Sequence[dict[str, Any]]) -> None:
        self.failed = [r for r in results if r["error"] and not declared(Node(*r["node"]))]
        self.unexpected = [r for r in results if not r["error"] and declared(Node(*r["node"]))]
        self.rounded = [" ".join(r["node"]) for r in results if r["rounded"] and not r["error"]]
        self.counts: dict[tuple[str, str], Counter[str]] = {}
        self.nodes = len(results)
        self.passed = sum(not r["error"] for r in results)
        self.compiled = max((r["compiled"] for r in results), default=0)
        for r in results:
            node = Node(*r["node"])
            kind = "passed" if r["checked"] else "without samples"
            if r["error"]:
                kind = "declared" if declared(node) else "failed"
            counts = self.counts.setdefault((node.group, node.dtype), Counter())
            counts.update({kind: 1, "samples": r["checked"], "fell back": int(r["fallbacks"] > 0)})

    def __str__(self) -> str:
        lines = [
            f"{group:15} {dtype:9} " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()) if n)
            for (group, dtype), counts in sorted(self.counts.items())
        ]
        lines += [f"FAILED {' '.join(r['node'])}\n    {r['error'][:600]}" for r in self.failed]
        lines += [f"PASSED, although declared to fail: {' '.join(r['node'])}" for r in self.unexpected]
        if self.rounded:
            lines.append(f"off the CPU's results by rounding, held against float64: {', '.join(self.rounded)}")
        total = sum(self.counts.values(), Counter())
        lines.append(f"{self.nodes} nodes, {total['samples']} samples, {total['fell back']} nodes fell back to the CPU")
        return "\n".join([*lines, f"programs compiled by one worker: {self.compiled}"])


def _usual(group: str, dtype: str) -> bool:
    return group == "forward" or dtype == "float32" or (dtype == "complex64" and opinfo.GROUPS[group].derivatives)


def main(dtypes: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Check ops on the device against the CPU with torch's OpInfo samples.")
    parser.add_argument("names", nargs="*", help="entries, default all")
    parser.add_argument("--groups", default=",".join(opinfo.GROUPS))
    parser.add_argument("--dtypes", help="default: all for the forward group, float32 and complex gradients for others")
    parser.add_argument("--backend", default=os.environ["TORCH_FL_BACKENDS"], help="adapter, default opencl")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--count", type=int, help="samples per node")
    parser.add_argument("--json", help="also write every result to this file, as lines")
    args = parser.parse_args()
    chosen = [
        (node, args.count)
        for group in args.groups.split(",")
        for dtype in (args.dtypes.split(",") if args.dtypes else dtypes)
        if args.dtypes or _usual(group, dtype)
        for node in opinfo.nodes(group, dtype)
        if not args.names or node.name in args.names
    ]
    with open(args.json or "/dev/null", "w", encoding="utf-8", buffering=1) as log:
        results = run(chosen, args.workers, lambda r: log.write(json.dumps(r) + "\n") and None, args.backend)
    report = Report(results)
    print(report)
    return 1 if report.failed or report.unexpected else 0
