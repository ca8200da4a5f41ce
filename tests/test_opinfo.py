"""Every op of torch's op database on the device: values, layouts, gradients and inputs as on the CPU.

What may fail is declared in opinfo_expected.json with a reason; a declared failure that passes fails here too. Other
dtypes and groups: `python tests/opinfo.py --help`.
"""

from __future__ import annotations

import opinfo
import opinfo_run
import pytest

PARTS = {
    "opencl": [
        ("forward", "float32", 6),
        ("forward", "float64", 3),
        ("forward", "float16", 4),
        ("forward", "bfloat16", 3),
        ("forward", "complex64", 3),
        ("forward", "int64", 4),
        ("forward", "int32", 3),
        ("forward", "bool", 4),
        ("gradient", "float32", 5),
        ("gradient", "complex64", 2),
        ("double_backward", "float32", 2),
        ("inplace", "float32", 5),
        ("out", "float32", 2),
        ("variants", "float32", 2),
        ("errors", "float32", 99),
        ("spoiled", "float32", 2),
    ],
    "host": [("forward", "float32", 2)],
}
"""Per adapter (group, dtype, samples per node) that run here; few samples, so that all of them take minutes."""


@pytest.mark.device
@pytest.mark.parametrize("backend", PARTS)
def test_ops_of_the_database_compute_what_the_cpu_computes(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [(node, count) for group, dtype, count in PARTS[backend] for node in opinfo.nodes(group, dtype)]
    report = opinfo_run.Report(opinfo_run.run(nodes, backend=backend))
    with capsys.disabled():
        print(f"\n{backend}\n{report}")
    assert not report.failed, f"{len(report.failed)} nodes fail:\n{report}"
    assert not report.unexpected, f"declared failures pass, delete them:\n{report}"
    assert report.passed > 0.9 * len(nodes)


def test_declarations_name_entries_and_give_reasons() -> None:
    known = opinfo.entries()
    expected = opinfo.expected()
    grouped = [expected[name] for name in ("dense", "unstable", "failures")]
    tables = [expected[name] for name in ("undefined", "ties", "signs")]
    tables += [t for groups in grouped for g in groups.values() for t in g.values()]
    assert {name for groups in grouped for name in groups} <= set(opinfo.GROUPS)
    for table in tables:
        assert not set(table) - set(known), "no such entry"
        assert all(len(reason) > 5 for reason in table.values())


@pytest.mark.device
def test_a_worker_that_dies_is_one_failure() -> None:
    worker, node = opinfo_run.Worker(), opinfo.Node("forward", "float32", "neg")
    try:
        assert not worker.check(node, 1)["error"]
        assert worker.process is not None
        worker.process.kill()
        worker.process.wait()
        assert worker.check(node, 1)["error"].startswith("Died")
        assert not worker.check(node, 1)["error"]
    finally:
        worker.close()
