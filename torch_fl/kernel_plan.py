"""From a registered kernel and a call to a plan: outputs, destinations, overlap checks, and the kernel's arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import overlap, rejection
from .builder import Builder
from .errors import Unsupported
from .infer import Inferred, Out, find_tensors, infer
from .known import infer_known
from .plan import Plan
from .refs import Ref, Value
from .registry import COMPLEX, Kernel, find_kernels, find_overload
from .resizing import resize_out
from .runtime.devices import Device
from .schema import bind_all, params_of
from .tensor import Tensor


def kernel_plan(
    func: Any, target: Any, entry: Kernel, device: Device, tensors: Sequence[Tensor], args: Any, kwargs: Any
) -> Plan:
    bound = bind_all(func, args, kwargs)
    inferred = (
        infer_known(func, entry.elementwise, args, kwargs, device)
        if entry.infer
        else Inferred((), lambda flat: flat[0])
    )
    overlap.check(func, bound)
    builder = Builder(device, [t._spec for t in tensors], inferred)
    builder.buffers = [id(t._buffer) for t in tensors]
    builder.places = [(id(t._buffer), t._offset) for t in tensors]
    if not entry.infer:
        builder.pack = _pack_of(func)
    functional = None if target is func else _functional(target, entry, bound, device)
    if functional is not None:
        _check_dtypes(func, entry, inferred, functional, args, kwargs)
    _resize(inferred, builder, tensors)
    if functional is not None and not entry.elementwise:
        builder.natural = _natural(func, target, bound, inferred, functional)
    if any(p.is_out for p in params_of(func)) and not entry.infer:
        raise Unsupported("out= of an op whose shape depends on data")
    call = _arguments(entry, bound, tensors)
    entry.function(builder, **call)
    plan = builder.finish()
    plan.route = "portable" if entry.backend in ("", COMPLEX) else "kernel"
    return plan


def _pack_of(func: Any) -> Callable[[list[Any]], Any]:
    returns = len(func._schema.returns)
    if returns == 0:
        return lambda flat: None
    return (lambda flat: flat[0]) if returns == 1 else tuple


def _resize(inferred: Inferred, builder: Builder, tensors: Sequence[Tensor]) -> None:
    """Give out= tensors of the wrong size the right one."""
    for index, spec in inferred.resized:
        resize_out(tensors[index], spec.shape, spec)
        builder.inputs[index] = tensors[index]._spec


def _functional(target: Any, entry: Kernel, bound: dict[str, Any], device: Device) -> Inferred:
    """What the functional form returns."""
    return infer_known(target, entry.elementwise, [], {p.name: bound[p.name] for p in params_of(target)}, device)


def _check_dtypes(func: Any, entry: Kernel, inferred: Inferred, functional: Inferred, args: Any, kwargs: Any) -> None:
    """Results are cast to their destination, unless that loses a kind of number (float to int; not double to float).

    An out= of another dtype than the result's is such a cast for pointwise ops; others may compute in that dtype.
    """
    pairs = [(o.spec.dtype, n.spec.dtype) for o, n in zip(inferred.outs, functional.outs)]
    if all(there == made for there, made in pairs):
        return
    taken = rejection.check_out(func, args, kwargs)
    if not entry.elementwise and any(p.is_out for p in params_of(func)):
        raise Unsupported("out= of another dtype than the result's")
    for there, made in pairs:
        if taken and not torch.can_cast(made, there):  # as of nothing, where the CPU never comes to look
            raise Unsupported("a cast that is torch's own affair")
        if not torch.can_cast(made, there):
            raise RuntimeError(f"result type {made} can't be cast to the desired output type {there}")


def _natural(
    func: Any, target: Any, bound: dict[str, Any], inferred: Inferred, functional: Inferred
) -> tuple[Out, ...] | None:
    """What the functional form returns, where the kernel must not write straight into the destination.

    None (write in place) when every destination has the result's shape and dtype and shares no buffer with an input.
    """
    written = find_tensors([bound[p.name] for p in params_of(func) if p.written])
    fits = all(
        out.spec.shape == natural.spec.shape and out.spec.dtype == natural.spec.dtype and not out.spec.overlaps_itself
        for out, natural in zip(inferred.outs, functional.outs)
    )
    read = {id(t._buffer) for t in find_tensors([bound[p.name] for p in params_of(target)])}
    return None if fits and all(id(t._buffer) not in read for t in written) else functional.outs


def _arguments(entry: Kernel, bound: dict[str, Any], tensors: Sequence[Tensor]) -> dict[str, Any]:
    """The kernel function's arguments: Refs for tensors, Values for launch-time numbers, in binder order."""
    func_params = {p.name: p for p in params_of(find_overload(entry.aten))}
    # By position, as the binder collects them: x * x and x * y share a plan, so identity must not count.
    slots, numbers = itertools.count(), itertools.count()

    def value_of(item: Any, kind: type | None = None) -> Any:
        index = next(numbers)
        return Value(kind or type(item), lambda values: values[index], steady=True)

    def convert(item: Any) -> Any:
        if item is None:
            return None
        if isinstance(item, Tensor):
            spec = item._spec
            return Ref(next(slots), spec.shape, spec.strides, spec.dtype)
        if isinstance(item, torch.Tensor):
            return value_of(item.item(), _number_kind(item.dtype))
        return value_of(item)

    found = {}
    for name, item in bound.items():
        kind = func_params[name].kind if name in func_params else "tensor"
        if kind == "tensor":
            converted = convert(item)
        elif kind == "tensors":
            converted = None if item is None else [convert(v) for v in item]
        elif kind == "values":
            converted = [value_of(v) for v in item]
        elif kind == "generator" or (kind == "value" and item is not None and name not in entry.static):
            converted = value_of(item)
        else:
            converted = item
        found[name] = converted
    return {n: found[n if n in found else n[:-1]] for n in entry.names}


def _number_kind(dtype: torch.dtype) -> type:
    if dtype.is_complex:
        return complex
    if dtype.is_floating_point:
        return float
    return bool if dtype == torch.bool else int


def inline(builder: Builder, op: str, args: Sequence[Any], kwargs: dict[str, Any], out: Ref | None) -> Any:
    """Run the kernel of another op inside a plan that is being built; see Builder.call."""
    func = find_overload(op)
    bound = bind_all(func, args, kwargs)
    device = builder.device

    def to_spec_meta(item: Any) -> Any:
        if isinstance(item, Ref):
            return torch.empty_strided(item.shape, item.strides, dtype=item.dtype, device="meta")
        if isinstance(item, (list, tuple)):
            return type(item)(to_spec_meta(v) for v in item)
        return _example(item) if isinstance(item, Value) else item

    kernels = find_kernels(func, device.backend)
    if not kernels:
        raise Unsupported(f"{op} has no kernel")
    inferred = infer(func, [], {n: to_spec_meta(v) for n, v in bound.items()}, device)
    outer = (builder.outs, builder.out_refs, builder.natural)
    builder.outs = list(inferred.outs)
    builder.out_refs = {} if out is None else {0: out}
    builder.natural = None
    try:
        _first_that_can(builder, kernels, bound)
        results = [builder.out(i) for i in range(len(inferred.outs))]
    finally:
        builder.outs, builder.out_refs, builder.natural = outer
    return inferred.pack(list(results))


def _first_that_can(builder: Builder, kernels: Sequence[Kernel], bound: dict[str, Any]) -> None:
    """Run the first kernel that takes these arguments; what one recorded before it gave up is taken back."""
    mark = builder.mark()
    for last, entry in enumerate(kernels, 1 - len(kernels)):
        try:
            entry.function(builder, **{n: bound[n if n in bound else n[:-1]] for n in entry.names})
            return
        except Unsupported:
            if last == 0:
                raise
            builder.take_back(mark)


def _example(value: Value) -> Any:
    return {int: 1, float: 1.0, bool: True, complex: 1j}.get(value.kind, 1.0)
