"""How a plan is found for a call: the first route that applies.

view -> own kernel -> family kernel -> portable kernel -> decomposition -> fallback to the CPU
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import fallback, overlap, rejection
from .decomposition import Decomposition, find_decomposition, has_composite
from .errors import Unsupported
from .infer import infer, run_on_meta
from .kernel_plan import kernel_plan
from .plan import CallPlan, Plan, ViewPlan
from .registry import find_kernels
from .runtime.devices import Device
from .schema import bind_all, functional_of, is_view
from .spec import spec_of
from .tensor import Tensor, give_layout, set_content, wrap

AnyPlan = Plan | ViewPlan | CallPlan


def make_plan(func: Any, device: Device, tensors: Sequence[Tensor], args: Any, kwargs: Any) -> AnyPlan:
    """The plan of a call whose tensors all live on `device`. Raises what torch raises for a wrong call."""
    if is_view(func) and not has_composite(func, "CompositeImplicitAutograd"):
        try:
            return ViewPlan(infer(func, args, kwargs, device), tensors)
        except Unsupported:
            pass
    rejection.check(func, args, kwargs)
    if torch.Tag.inplace_view in func.tags:
        return CallPlan("view", "", lambda a, k: _inplace_view(func, a, k, device))
    if overlap.is_left_to_cpu(func, bind_all(func, args, kwargs)):
        return _fallback(func, device, "an element is written more than once")
    reasons: list[str] = []
    target = func
    kernels = find_kernels(func, device.backend)
    if not kernels and (functional := functional_of(func)) is not None:
        target, kernels = functional, find_kernels(functional, device.backend)
    for entry in kernels:
        try:
            return kernel_plan(func, target, entry, device, tensors, args, kwargs)
        except Unsupported as missing:
            reasons.append(str(missing))
    found = find_decomposition(func, target)
    if found is not None:
        return Decomposition(func, "; ".join(reasons), found)
    reason = "; ".join(reasons) or "no kernel"
    if func.namespace.startswith("torch_fl"):  # a part of one of our handlers: the whole op goes to the CPU
        raise Unsupported(reason)
    return _fallback(func, device, reason)


def _fallback(func: Any, device: Device, reason: str) -> CallPlan:
    return CallPlan("fallback", reason, lambda a, k: fallback.run(func, a, k, device, reason))


def _inplace_view(func: Any, args: Any, kwargs: Any, device: Device) -> Any:
    """t_, squeeze_ and the like: the tensor itself changes its layout."""
    tensor = args[0]
    result, _, twins = run_on_meta(func, args, kwargs)
    spec = spec_of(tuple(result.shape), tuple(result.stride()), tensor._spec.dtype, device)
    offset = tensor._offset + twins[0].storage_offset()
    if (offset + spec.extent) * spec.itemsize > tensor._buffer.nbytes:  # resize_as_
        give_layout(tensor, spec)
    else:
        set_content(tensor, wrap(tensor._buffer, spec, offset))
    return tensor
