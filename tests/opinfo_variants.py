"""Group `variants`: every way to write a call (function, method, operator, in place, alias) does what the CPU's does.

Beside values: which argument is returned as the very object, what is a view, how versions of the arguments advanced,
and what carries a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from opinfo_compare import Comparison, both, run_call
from torch.utils._pytree import tree_map_only

from torch_fl.commands.samples import tensors_in


class Facts(NamedTuple):
    """What a call did, beside the values of its results."""

    returned: list[int | None]
    """For each result, the number of the argument that it is."""
    views: list[bool]
    versions: list[int]
    """How much the versions of the arguments advanced."""
    gradients: list[tuple[bool, bool]]
    """(requires_grad, has a grad_fn) of each result."""


WHOLE = ("nn.functional.linear",)
"""The CPU makes their results as views of a product; the device makes them as they are."""


def check_variants(entry: Any, sample: Any, compare: Comparison) -> int:
    """Every variant, without and with gradients; returns how many calls were compared."""
    checked = 0
    for name, call, in_place in variants(entry):
        if not (in_place and sample.broadcasts_input):
            for gradients in (False, True):
                checked += _check(entry, name, call, in_place, sample, gradients, compare)
    return checked


def variants(entry: Any) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """(name, callable, whether it writes into its first argument), each callable once."""
    seen = []
    for prefix, owner in [("", entry), *((f"{a.name} ", a) for a in entry.aliases)]:
        for name, in_place in (
            ("op", False),
            ("method_variant", False),
            ("operator_variant", False),
            ("inplace_variant", True),
            ("inplace_operator_variant", True),
        ):
            call = getattr(owner, name, None)
            if call is not None and call not in seen:
                seen.append(call)
                yield f"{prefix}{name}", call, in_place


def _check(
    entry: Any, name: str, call: Callable[..., Any], in_place: bool, sample: Any, gradients: bool, compare: Comparison
) -> int:
    here, cpu, there, device = both(sample)
    if gradients and not any(_differentiable(t) for t in tensors_in(cpu)):
        return 0
    what = f"{name}{' with gradients' if gradients else ''}"
    try:
        want, wanted = _run(call, cpu, gradients, in_place)
    except Exception:  # noqa: BLE001 - the CPU does not take this variant of the call
        return 0
    got, found = _run(call, device, gradients, in_place)
    if compare.signs:  # the sample says what of the result is defined
        got, want = sample.output_process_fn_grad(got), sample.output_process_fn_grad(want)
    exact = compare.exact(sample, lambda s, args: _run(call, args, gradients, in_place)[0])
    compare.same(got, want, exact, what, strides=not compare.signs)
    for fact, cpus, ours in zip(Facts._fields, wanted, found):
        if fact == "views" and entry.name in WHOLE:
            continue
        assert ours == cpus, f"{what}: {fact} {ours} instead of {cpus}"
    compare.same_memory(here, there)
    return 1


def _differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _run(call: Callable[..., Any], given: Any, gradients: bool, in_place: bool) -> tuple[Any, Facts]:
    def prepare(tensor: torch.Tensor) -> torch.Tensor:
        if not (gradients and _differentiable(tensor)):
            return tensor.detach()
        leaf = tensor.detach().requires_grad_()
        return leaf.clone() if in_place else leaf  # neither a leaf nor a view of one may be written

    args, kwargs = tree_map_only(torch.Tensor, prepare, given)
    inputs = list(tensors_in((args, kwargs)))
    versions = [t._version for t in inputs]
    result = run_call(call, args, kwargs)
    results = list(tensors_in(result))
    return result, Facts(
        [next((i for i, t in enumerate(inputs) if t is r), None) for r in results],
        [r._is_view() for r in results],
        [t._version - v for t, v in zip(inputs, versions)],
        [(r.requires_grad, r.grad_fn is not None) for r in results],
    )
