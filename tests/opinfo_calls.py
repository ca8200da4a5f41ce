"""Groups `forward` and `inplace`: results of one call, and the memory of its inputs afterwards."""

from __future__ import annotations

from typing import Any

from opinfo_compare import Comparison, both, run_call


def check_forward(entry: Any, sample: Any, compare: Comparison) -> int:
    """Results of one call, and its inputs afterwards."""
    here, cpu, there, device = both(sample)
    try:
        want = run_call(entry, *cpu)
    except Exception:  # noqa: BLE001 - the CPU cannot do it: nothing to compare with
        return 0
    compare.same(run_call(entry, *device), want, compare.exact(sample, lambda s, args: run_call(entry, *args)))
    compare.same_memory(here, there)
    return 1


def check_inplace(entry: Any, sample: Any, compare: Comparison) -> int:
    """The method with an underscore: it returns its tensor, and writes nothing but that."""
    if sample.broadcasts_input:  # the result does not fit into the input
        return 0
    here, cpu, there, device = both(sample)
    try:
        want = run_call(entry.get_inplace(), *cpu)
    except Exception:  # noqa: BLE001 - as for a result that does not fit into the input
        return 0
    got = run_call(entry.get_inplace(), *device)
    assert (got is device[0][0]) == (want is cpu[0][0]), "another tensor was returned"
    compare.same(got, want)
    compare.same_memory(here, there)
    return 1
