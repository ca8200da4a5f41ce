"""OpInfo, torch's own database of ops with sample inputs: its entries, and samples copied to a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

import torch

from ..errors import Error, message

DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "bool", "float64", "complex64")

SPREAD = 8
"""Samples are taken from this many times as many: options come late in most entries."""


@cache
def entries() -> Mapping[str, Any]:
    """Every entry of OpInfo by name: "add", "linalg.norm.subgradients_at_zero".

    Raises Error where a package that torch's test modules import is missing.
    """
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise Error(
            message("torch's op database cannot be loaded", because=str(error), hint='pip install "torch_fl[test]"')
        ) from error
    return {f"{e.name}.{e.variant_test_name}".rstrip("."): e for e in op_db}


def supports(entry: Any, dtype: str, derivatives: bool = False) -> bool:
    """Whether the entry declares the dtype (for derivatives) for the CPU, which the device is compared with."""
    return getattr(torch, dtype) in (entry.supported_backward_dtypes if derivatives else entry.supported_dtypes)("cpu")


def samples_of(entry: Any, dtype: str, count: int, requires_grad: bool = False) -> Iterator[Any]:
    """Up to `count` of the entry's samples of strided tensors, spread over its first ones; the same at every call."""
    torch.manual_seed(0)
    made = entry.sample_inputs("cpu", getattr(torch, dtype), requires_grad=requires_grad)
    first = islice(made, SPREAD * count)
    found = [s for s in first if _is_plain(s)]
    steps = min(count, len(found))
    return (found[i * (len(found) - 1) // max(1, steps - 1)] for i in range(steps))


def _is_plain(sample: Any) -> bool:
    """Whether all its tensors are strided ones, and a tensor or an argument says which device is meant."""
    tensors = list(tensors_in((sample.input, sample.args, sample.kwargs)))
    plain = all(type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided for t in tensors)
    return plain and (bool(tensors) or "device" in sample.kwargs or torch.device("cpu") in sample.args)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


class Copies:
    """Copies arguments to a device (the CPU as well) with their storages: strides, offsets and sharing survive.

    `bases` lists (the copied storage as bytes, the original one as bytes) of every storage met, in order.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.bases: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._copied: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def __call__(self, value: Any) -> Any:
        """The same arguments with tensors copied; mentions of the CPU become mentions of the device."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            return {k: self(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            copied = [self(v) for v in value]
            return type(value)(*copied) if hasattr(value, "_fields") else type(value)(copied)
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return self.device
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.detach().resolve_conj().resolve_neg()
        key = (plain.untyped_storage()._cdata, plain.dtype)
        if key not in self._copied:
            flat = torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage())
            self._copied[key] = flat.clone() if self.device.type == "cpu" else flat.to(self.device)
            self.bases.append((self._copied[key], flat))
        there = self._copied[key].as_strided(plain.shape, plain.stride(), plain.storage_offset())
        return there.detach().requires_grad_(tensor.requires_grad)
