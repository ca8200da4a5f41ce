"""OpInfo on a device: what a node checks, and worker processes that check many.

A node is one entry of torch's op database in one dtype and one group of checks. Everything is compared with the CPU at
OpInfo's own tolerances. `python tests/opinfo.py --help` runs any part of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TORCH_FL_BACKENDS", "opencl")

from opinfo_calls import check_forward, check_inplace
from opinfo_compare import Comparison, tolerance
from opinfo_errors import check_error, declared_errors, spoiled_samples
from opinfo_gradients import check_double_backward, check_gradient
from opinfo_out import check_out
from opinfo_variants import check_variants

from torch_fl import fallback
from torch_fl.commands.samples import DTYPES, entries, samples_of, supports


class Group(NamedTuple):
    """A kind of check: what it runs for a sample (returns how much it compared), and which entries have it.

    `count`: samples per node by default. `derivatives`: its samples require gradients. `cases`: what it checks of an
    entry, if that is not its samples.
    """

    check: Callable[[Any, Any, Comparison], int]
    has: Callable[[Any], bool]
    count: int
    derivatives: bool = False
    cases: Callable[[Any, str, int], Iterator[Any]] | None = None


GROUPS: Mapping[str, Group] = {
    "forward": Group(check_forward, lambda entry: True, 12),
    "gradient": Group(check_gradient, lambda entry: entry.supports_autograd, 8, derivatives=True),
    "double_backward": Group(check_double_backward, lambda entry: entry.supports_gradgrad, 3, derivatives=True),
    "inplace": Group(check_inplace, lambda entry: entry.get_inplace() is not None, 6),
    "out": Group(check_out, lambda entry: entry.supports_out, 3),
    "variants": Group(check_variants, lambda entry: True, 3),
    "errors": Group(check_error, lambda entry: entry.error_inputs_func is not None, 50, cases=declared_errors),
    "spoiled": Group(check_error, lambda entry: True, 3, cases=spoiled_samples),
}


class Node(NamedTuple):
    """One unit of checking."""

    group: str
    dtype: str
    name: str


@cache
def expected() -> dict[str, Any]:
    """The declared failures and the entries whose values are undefined, with reasons."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("opinfo_expected.json").read_text(encoding="utf-8"))
    return found


def declared(node: Node) -> str:
    """Why a node is expected to fail, or ""."""
    return _reason("failures", node)


def _reason(table: str, node: Node) -> str:
    for dtypes, names in expected()[table].get(node.group, {}).items():
        if node.dtype in dtypes.split() and node.name in names:
            return str(names[node.name])
    return ""


def nodes(group: str, dtype: str) -> Iterator[Node]:
    """All nodes of a group that the database has in a dtype."""
    kind = GROUPS[group]
    for name, entry in entries().items():
        if supports(entry, dtype, kind.derivatives) and kind.has(entry):
            yield Node(group, dtype, name)


class Checked(NamedTuple):
    """How many samples were compared, and how many of them were decided by the results in float64."""

    samples: int
    rounded: int


def check(node: Node, count: int | None = None) -> Checked:
    """Run a node's samples. Raises AssertionError, or what the device raised."""
    entry, group = entries()[node.name], GROUPS[node.group]
    defined = node.name not in expected()["undefined"]
    ties = node.name in expected()["ties"] and not group.derivatives
    signs = node.name in expected()["signs"]
    defined = defined and not (signs and node.group == "out") and not _reason("unstable", node)
    checked = rounded = 0
    n = count or group.count
    for case in group.cases(entry, node.dtype, n) if group.cases else _samples(node, entry, n):
        values = defined and not case.kwargs.get("dropout_p")
        compare = Comparison(tolerance(entry, node.dtype), node.dtype, values, ties, signs)
        checked += group.check(entry, case, compare)
        rounded += compare.rounded
    return Checked(checked, rounded)


def _samples(node: Node, entry: Any, count: int) -> Iterator[Any]:
    """Samples, each followed by the same with tensors that have holes, if the CPU can take those."""
    for sample in samples_of(entry, node.dtype, count, GROUPS[node.group].derivatives):
        yield sample
        if _reason("dense", node):
            continue
        with suppress(RuntimeError, ValueError, NotImplementedError):  # torch's maker of twins cannot take every sample
            yield sample.noncontiguous()


def outcome(node: Node, count: int | None = None) -> dict[str, Any]:
    """A node's result as plain data."""
    start, before = time.perf_counter(), fallback.counts()[0]
    error, where, checked = "", "", Checked(0, 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            checked = check(node, count)
    except Exception as raised:  # noqa: BLE001 - every way to fail is a result
        error = f"{type(raised).__name__}: {str(raised).strip()}"
        where = "".join(traceback.format_tb(raised.__traceback__)[-3:])
    return {
        "node": list(node),
        "error": error[:1500],
        "where": where,
        "checked": checked.samples,
        "rounded": checked.rounded,
        "fallbacks": fallback.counts()[0] - before,
        "seconds": round(time.perf_counter() - start, 3),
        "compiled": compiled(),
    }


def compiled() -> int:
    """Programs built by this process so far."""
    from torch_fl.runtime import devices

    return sum(d.compiled for d in devices.devices())


if __name__ == "__main__":
    from opinfo_run import main, serve

    sys.exit(serve() if sys.argv[1:] == ["--worker"] else main(DTYPES))
