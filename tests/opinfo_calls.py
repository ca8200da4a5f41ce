"""Groups `forward` and `inplace`: results of one call, and the memory of its inputs afterwards."""

from __future__ import annotations

from typing import Any

from opinfo_compare import Comparison, both, run_call, same_aliases


def check_forward(entry: Any, sample: Any, compare: Comparison) -> int:
    """Results of one call, and its inputs afterwards."""
    here, cpu, there, device = both(sample)
    try:
        want = run_call(entry, *cpu)
    except Exception:  # noqa: BLE001 - the CPU cannot do it: nothing to compare with
        return 0
    got, exact = run_call(entry, *device), compare.exact(sample, lambda s, args: run_call(entry, *args))
    if compare.signs:  # the sample says what of the result is defined
        compare.of_layout().same(got, want)
        got, want = sample.output_process_fn_grad(got), sample.output_process_fn_grad(want)
        exact = compare.exact(sample, lambda s, args: s.output_process_fn_grad(run_call(entry, *args)))
    compare.same(got, want, exact, strides=not compare.signs)
    same_aliases(got, want, here, there)
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
