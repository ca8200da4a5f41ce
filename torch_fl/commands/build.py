"""`torch-fl build ARCHITECTURE`: compile the kernels of common works ahead of time, for a chip that need not be here.

Which sources a chip will ask for is only known by making plans: the works of the benchmark run once on a chip on paper,
in float32 and under autocast, with launches that do nothing. What other works ask for is compiled at its first use, as
without this.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from .. import fallback, register
from ..bench.report import GROUPS
from ..bench.report import chosen as chosen_groups
from ..bench.timing import Case
from ..errors import Error, message
from ..runtime import devices
from ..runtime.discovery import backend_classes, register_backend

WORKS = "products,convolutions,attention,rows,optimizers,models"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to build, and for what."""
    parser.add_argument("architecture", help="the instruction set, as the chip's compiler names it")
    parser.add_argument("--groups", default=WORKS, help=f"groups of the benchmark's works (default: {WORKS})")


def run(args: argparse.Namespace) -> int:
    """Build, and say how much."""
    groups = chosen_groups(args.groups)
    backend = _open(args.architecture)
    fallback.set_fallback("allow")
    for group in groups:
        for case in GROUPS.get(group, {}).values():
            _plan(case)
    sources = list(dict.fromkeys(backend.sources))
    made = _each(backend.build, sources)
    sys.stdout.write(f"{made} of {len(sources)} sources built for {args.architecture}, the others were there\n")
    return 0


def _open(architecture: str) -> Any:
    """The chip on paper, as the only device of this process."""
    papers = [paper for c in backend_classes().values() if (paper := c.on_paper(architecture)) is not None]
    if not papers:
        raise Error(message(f"no adapter builds kernels for {architecture!r} ahead of time"))
    devices.initialize([register_backend(papers[0]).name])
    register.ensure()
    return devices.devices()[0].backend


def _plan(case: Case) -> None:
    """Make the plans of a work: as it is, and with halves."""
    for dtype in (None, torch.float16, torch.bfloat16):
        halves = torch.autocast("npu", dtype or torch.bfloat16, enabled=dtype is not None)
        with torch.set_grad_enabled(case.grad), halves:
            case.make(torch.device("npu", 0))()


def _each(build: Callable[[str], bool], sources: list[str]) -> int:
    """How many were made; the first error ends it."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [pool.submit(build, source) for source in sources]
        try:
            return sum(f.result() for f in found)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
