"""Group `out`: every tensor that a caller may give as out=, the right one, odd ones and wrong ones.

Where the CPU refuses the tensor the device must refuse it in the same words; where the CPU warns, so must the device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from opinfo_compare import Comparison, both, run_call

from torch_fl.commands.samples import tensors_in


def check_out(entry: Any, sample: Any, compare: Comparison) -> int:
    """Each kind of out=: its values and layout afterwards, the memory around it, and that it is what is returned."""
    try:
        result = run_call(entry, *both(sample)[1])
    except Exception:  # noqa: BLE001 - the CPU cannot do it
        return 0
    return sum(_check(entry, sample, compare, what, _outs(result, make)) for what, make in MAKERS.items())


def _check(entry: Any, sample: Any, compare: Comparison, what: str, outs: Any) -> int:
    here, (cpu, kwargs), there, (device, device_kwargs) = both(sample)
    ours, theirs = there(outs), here(outs)
    want, error, told = _call(entry, cpu, kwargs, theirs)
    if error and what not in REFUSED:
        return 0  # this op takes no out= for these arguments
    got, found, heard = _call(entry, device, device_kwargs, ours)
    assert found == error, f"out= {what}: {found or 'no error'!r} instead of {error or 'no error'!r}"
    assert heard == told, f"out= {what}: {heard} warnings about its size instead of {told}"
    if error:
        return 1
    _same_tensors(got, want, ours, theirs)
    compare.same(got, want, what=f"out= {what}")
    if not compare.ties:
        compare.same_memory(here, there)
    return 1


def _call(entry: Any, args: Any, kwargs: Any, out: Any) -> tuple[Any, str, int]:
    """(result, the error's type and first line, number of warnings about the size of out=)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result, error = None, ""
        try:
            result = run_call(entry, args, {**kwargs, "out": out})
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as raised:
            error = f"{type(raised).__name__}: {str(raised).splitlines()[0]}"
    return result, error, sum("was resized" in str(w.message) for w in caught)


def _same_tensors(got: Any, want: Any, ours: Any, theirs: Any) -> None:
    """What is returned is out= itself, as on the CPU."""
    returned = list(zip(tensors_in([got]), tensors_in([ours]), tensors_in([want]), tensors_in([theirs])))
    assert returned
    for mine, given, cpus, cpu_given in returned:
        assert (mine is given) == (cpus is cpu_given), "another tensor than out= was returned"


def _outs(result: Any, make: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Tensors made for every result, full of ones."""
    if isinstance(result, torch.Tensor):
        return make(result.detach()).fill_(1)
    return tuple(_outs(r, make) for r in result)


def _with_holes(tensor: torch.Tensor) -> torch.Tensor:
    shape = (*tensor.shape[:-1], 2 * tensor.shape[-1]) if tensor.dim() else (2,)
    wide = torch.zeros(shape, dtype=tensor.dtype)
    return wide[..., ::2] if tensor.dim() else wide[1]


def _inside(tensor: torch.Tensor) -> torch.Tensor:
    size = tensor.numel()
    return torch.zeros(size + 7, dtype=tensor.dtype)[3 : size + 3].view(tensor.shape)


def _too_large(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_zeros((*tensor.shape, 2))


def _wider(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, dtype=torch.complex128 if tensor.is_complex() else torch.float64)


def _narrower(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, dtype=torch.int32 if tensor.dtype != torch.bool else torch.uint8)


MAKERS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of the right size": torch.empty_like,
    "with holes": _with_holes,
    "inside a larger tensor": _inside,
    "without elements": lambda tensor: tensor.new_empty(0),
    "of a wrong size": _too_large,
    "of a wider dtype": _wider,
    "of another kind of dtype": _narrower,
}
REFUSED = ("of a wrong size", "of a wider dtype", "of another kind of dtype")
"""Kinds that torch refuses for some ops; the device must, too."""
