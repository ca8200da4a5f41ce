"""Group `errors`: calls that torch refuses are refused on the device, with the same type and words.

The calls are the entry's own `error_inputs`, and good samples with one argument spoiled. What the CPU does with a call
decides; an index or a divisor that only a kernel sees may be noticed at the next read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import torch
from opinfo_compare import CPU, DEVICE
from torch.utils._pytree import tree_map_only

from torch_fl.commands.samples import Copies, samples_of, tensors_in
from torch_fl.errors import Error


class Wrong(NamedTuple):
    """A call that torch's CPU refuses, and what the entry declares about that, if it does."""

    what: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    kind: type[Exception] = Exception
    regex: str = ""
    declared_only: bool = False
    """The CPU takes the call, as it is about devices."""
    exact: bool = True
    """The words must be the CPU's. Not where composed ops may take another path than on the CPU."""


def check_error(entry: Any, wrong: Wrong, compare: Any) -> int:
    """One call: 1 if it is refused everywhere, 0 if the CPU takes it or has no kernel to ask. Raises AssertionError."""
    want = wrong.kind(wrong.regex) if wrong.declared_only else _error_of(entry, *_copies(wrong, CPU))
    if want is None or (isinstance(want, NotImplementedError) and wrong.kind is Exception):
        return 0
    got = _error_of(entry, *_copies(wrong, DEVICE))
    assert got is not None, f"{wrong.what}: accepted, the CPU raises {type(want).__name__}: {want}"
    told = f"{wrong.what}: {type(got).__name__}: {got}\n    instead of {type(want).__name__}: {want}"
    assert isinstance(got, type(want)), told
    assert isinstance(got, wrong.kind), told
    assert not isinstance(got, (NotImplementedError, Error)) or isinstance(want, NotImplementedError), told
    assert re.search(wrong.regex, str(got)), told
    assert not wrong.exact or _words(got) == _words(want), told
    return 1


def _copies(wrong: Wrong, device: torch.device) -> Any:
    """The arguments on a device, unless some are there: those were made for it."""
    call = (wrong.args, dict(wrong.kwargs))
    if all(t.device.type == "cpu" for t in tensors_in(call)):
        return Copies(device)(call)
    return call if device is DEVICE else tree_map_only(torch.Tensor, torch.Tensor.cpu, call)


def _error_of(entry: Any, args: Any, kwargs: Any) -> Exception | None:
    """What a call raises, at once or when its results are read."""
    torch.manual_seed(0)
    try:
        for tensor in tensors_in(entry(*args, **kwargs)):
            tensor.detach().cpu()
        torch.ones(1).to(DEVICE).cpu()
    except Exception as error:  # noqa: BLE001 - the subject of the check
        return error
    return None


_PLACE = re.compile(r"\b(npu|cpu|meta|CPU|PrivateUse1)(:\d+)?\b")


def _words(error: Exception) -> str:
    """A message without what must differ: names of devices and dispatch keys, and that it came late."""
    text = str(error).strip().split("\n  because: npu:")[0]
    return _PLACE.sub("<device>", re.sub(r"0x[0-9a-f]+", "<address>", text))


def _made(entry: Any, device: str) -> Iterator[Any]:
    if entry.error_inputs_func is None:
        return
    torch.manual_seed(0)
    for made in entry.error_inputs(device):
        sample = made.sample_input
        tensors = list(tensors_in((sample.input, sample.args, sample.kwargs)))
        if all(t.layout == torch.strided and t.device.type in ("cpu", DEVICE.type) for t in tensors):
            yield made


def declared_errors(entry: Any, dtype: str, count: int) -> Iterator[Wrong]:
    """The entry's error inputs, and those that torch makes for the device itself: some are for accelerators only."""
    for n, made in enumerate(islice(_made(entry, "cpu"), count)):
        args = (made.sample_input.input, *made.sample_input.args)
        yield Wrong(f"error input {n}", args, made.sample_input.kwargs, made.error_type, made.error_regex)
    for n, made in enumerate(islice(_made(entry, str(DEVICE)), count)):
        call = f"error input {n} made on the device", (made.sample_input.input, *made.sample_input.args)
        of_devices = (made.error_type, made.error_regex, True, False) if "device" in made.error_regex else ()
        yield Wrong(*call, made.sample_input.kwargs, *of_devices)


# -- good samples, spoiled -----------------------------------------------------------------------------------------


def spoiled_samples(entry: Any, dtype: str, count: int) -> Iterator[Wrong]:
    """Good samples with one argument that may be wrong."""
    spoilers = {how: make for how, make in SPOILERS.items() if (entry.name, how) not in UNSAFE}
    for n, sample in enumerate(samples_of(entry, dtype, count)):
        args = (sample.input, *sample.args)
        _error_of(
            entry, *Copies(DEVICE)((args, sample.kwargs))
        )  # a plan made for right numbers must not serve wrong ones
        for at, value in [*enumerate(args), *sample.kwargs.items()]:
            for how, make in spoilers.items():
                for spoiled in islice(make(value), 2):
                    what = f"sample {n}, argument {at}, {how}"
                    if isinstance(at, int):
                        yield Wrong(what, (*args[:at], spoiled, *args[at + 1 :]), sample.kwargs, exact=False)
                    else:
                        yield Wrong(what, args, {**sample.kwargs, at: spoiled}, exact=False)


def _other_shape(value: Any) -> Iterator[Any]:
    """One more element in a dimension, one more dimension."""
    if isinstance(value, torch.Tensor) and value.dim():
        shape = [*value.shape[:-1], value.shape[-1] + 3]
        yield value.new_zeros(shape)
        yield value.detach()[None, None]


def _other_dtype(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value.detach().to(torch.int32 if value.is_floating_point() else torch.float32)
        yield value.detach().to(torch.complex64)


def _far_number(value: Any) -> Iterator[Any]:
    """Dimensions out of range, negative sizes."""
    if type(value) is int:
        yield from (97, -97)
    elif isinstance(value, (tuple, list)) and value and all(type(v) is int for v in value):
        yield type(value)([*value[:-1], -97])


def _far_index(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.numel():
        yield torch.full_like(value, 9973)
        yield torch.full_like(value, -9973)


SPOILERS: Mapping[str, Callable[[Any], Iterator[Any]]] = {
    "another shape": _other_shape,
    "another dtype": _other_dtype,
    "a number far out": _far_number,
    "indices far out": _far_index,
}

UNSAFE = (("lu_unpack", "another shape"),)
"""What torch's CPU does not survive: it writes outside of its memory."""
