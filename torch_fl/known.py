"""What a call returns where that follows from what is known, without torch's meta kernels.

Many of those are Python and cost more than all else in a plan, which counts where lengths change with every call. Here
are the two cases that come again and again; everything else, and every call that may be wrong, is `infer`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .infer import Inferred, Out, infer
from .runtime.devices import Device
from .schema import bind_all, params_of
from .spec import Spec, contiguous_spec
from .tensor import Tensor

_CAT = torch.ops.aten.cat.default
MAX_KNOWN = 4096
_known: dict[Any, tuple[torch.dtype, Callable[[list[Any]], Any]]] = {}
"""Elementwise calls but for the shape -> dtype of the result, and how it is returned."""


def infer_known(func: Any, elementwise: bool, args: Any, kwargs: dict[str, Any], device: Device) -> Inferred:
    """As `infer`. `elementwise`: operands of one layout give a result of that layout."""
    found = None
    if func is _CAT:
        found = _cat(**bind_all(func, args, kwargs), device=device)
    elif elementwise and not any(p.written for p in params_of(func)):
        return _alike(func, args, kwargs, device)
    return infer(func, args, kwargs, device) if found is None else found


def _alike(func: Any, args: Any, kwargs: dict[str, Any], device: Device) -> Inferred:
    """Of row-major operands of one shape: the dtype is asked once for each rank, dtype and set of other arguments."""
    bound = bind_all(func, args, kwargs).values()
    spec = _one_spec(bound)
    if spec is None:
        return infer(func, args, kwargs, device)
    rest = tuple(type(v) if type(v) is Tensor else (type(v), v) for v in bound)
    key = (func, spec.dtype, len(spec.shape), rest)
    known = _known.get(key)
    if known is not None:
        dtype, pack = known
        return Inferred((Out(contiguous_spec(spec.shape, dtype, device)),), pack)
    inferred = infer(func, args, kwargs, device)
    if _is_alike(inferred, spec):
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[key] = inferred.outs[0].spec.dtype, inferred.pack
    return inferred


def _one_spec(values: Any) -> Spec | None:
    """The layout of all tensors among the arguments, where it is one and row-major, and nothing is a list."""
    specs = {v._spec for v in values if type(v) is Tensor}
    if len(specs) != 1 or any(isinstance(v, (list, tuple, torch.Tensor)) and type(v) is not Tensor for v in values):
        return None
    spec = specs.pop()
    return spec if spec.row_major and spec.numel and spec.shape else None


def _is_alike(inferred: Inferred, spec: Spec) -> bool:
    if len(inferred.outs) != 1 or inferred.resized or inferred.pack([1]) != 1:
        return False
    out = inferred.outs[0]
    return out.arg is None and out.spec.shape == spec.shape and out.spec.row_major


def _cat(tensors: Any, dim: int, device: Device) -> Inferred | None:
    """Of tensors of one dtype that fit; one that is row-major makes the result so."""
    if not tensors or any(type(t) is not Tensor for t in tensors):
        return None
    specs = [t._spec for t in tensors]
    shape, dtype = specs[0].shape, specs[0].dtype
    if not -len(shape) <= dim < len(shape) or not any(s.row_major and s.numel for s in specs):
        return None
    dim %= len(shape)
    wanted = shape[:dim], shape[dim + 1 :]
    if any(s.dtype != dtype or (s.shape[:dim], s.shape[dim + 1 :]) != wanted for s in specs):
        return None
    total = sum(s.shape[dim] for s in specs)
    return Inferred((Out(contiguous_spec((*wanted[0], total, *wanted[1]), dtype, device)),), lambda flat: flat[0])
