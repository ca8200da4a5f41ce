"""Group `out`: every tensor that a caller may give as out=, the right one, odd ones and wrong ones.

Where the CPU refuses the tensor the device must refuse it in the same words; where the CPU warns, so must the device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from opinfo_compare import CPU, Comparison, both, run_call

from torch_fl.commands.samples import Copies, tensors_in


def check_out(entry: Any, sample: Any, compare: Comparison) -> int:
    """Each kind of out=: its values and layout afterwards, the memory around it, and that it is what is returned."""
    try:
        result = run_call(entry, *both(sample)[1])
    except Exception:  # noqa: BLE001 - the CPU cannot do it
        return 0
    if not all(isinstance(r, torch.Tensor) for r in (result if isinstance(result, (list, tuple)) else [result])):
        return 0
    return sum(_check(entry, sample, compare, what, result) for what in MAKERS)


def _check(entry: Any, sample: Any, compare: Comparison, what: str, result: Any) -> int:
    outs = _outs(result, MAKERS[what])
    here, (cpu, kwargs), there, (device, device_kwargs) = both(sample)
    ours, theirs = there(outs), here(outs)
    want, error, told = _call(entry, cpu, kwargs, theirs)
    if error and (what not in REFUSED or error.startswith("NotImplementedError")):
        return 0  # this op takes no out= for these arguments, or has no CPU kernel of that dtype
    got, found, heard = _call(entry, device, device_kwargs, ours)
    assert found == error, f"out= {what}: {found or 'no error'!r} instead of {error or 'no error'!r}"
    if error:
        return 1
    assert heard or not told or what != "of a wrong size", "no warning that out= was resized"
    assert told or not heard or what == "of a wrong size", f"out= {what}: a warning that it was resized"
    _same_tensors(got, want, ours, theirs)
    if "dtype" in what:
        compare = compare.of_widened()
    else:
        theirs = _expected(result, theirs, outs, here, what in RESIZED)
    # torch's own kernels differ in the strides they give a resized tensor: row-major, or the functional form's
    compare.same(ours, theirs, what=f"out= {what}", strides=what not in RESIZED)
    if what in RESIZED or compare.ties:  # the memory of a resized tensor is not what it was, that of ties not defined
        there.bases = there.bases[: -len(list(tensors_in([outs])))]
    compare.same_memory(here, there)
    return 1


def _expected(result: Any, theirs: Any, outs: Any, here: Copies, resized: bool) -> Any:
    """The functional form's values in out= tensors, which the CPU has laid out if resized; takes their place in `here`.

    Some kernels of the CPU write elsewhere, or other numbers, where their out= is not row-major.
    """
    copies = Copies(CPU)
    expected = copies(outs)
    for target, model, value in zip(tensors_in([expected]), tensors_in([theirs]), tensors_in([result])):
        if model.shape != value.shape:  # batch normalization without training leaves its statistics alone
            return theirs
        if resized:
            target.resize_(model.shape).as_strided_(model.shape, model.stride())
        target.copy_(value)
    here.bases[-len(copies.bases) :] = copies.bases
    return expected


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
    for mine, given, cpus, cpu_given in zip(*(tensors_in([v]) for v in (got, ours, want, theirs))):
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
    return tensor.new_zeros((*(n + 1 for n in tensor.shape), 2))


def _wider(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, dtype=torch.complex128 if tensor.is_complex() else torch.float64)


def _narrower(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, dtype=torch.int32 if tensor.dtype != torch.bool else torch.uint8)


MAKERS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of the right size": torch.empty_like,
    "with holes": _with_holes,
    "inside a larger tensor": _inside,
    "of size 0": lambda tensor: tensor.new_empty(0),
    "of a wrong size": _too_large,
    "of a wider dtype": _wider,
    "of another kind of dtype": _narrower,
}
RESIZED = ("of size 0", "of a wrong size")
REFUSED = ("of a wrong size", "of a wider dtype", "of another kind of dtype")
"""Kinds that torch refuses for some ops; the device must, too."""
