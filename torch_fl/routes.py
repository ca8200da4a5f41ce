"""How a plan is found for a call: the first route that applies.

view -> own kernel -> family kernel -> portable kernel -> decomposition -> fallback to the CPU
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from . import fallback
from .builder import Builder
from .errors import Unsupported
from .infer import Inferred, infer, map_tensors, run_on_meta
from .interrupts import uninterrupted
from .plan import Plan
from .refs import Ref, Value
from .registry import Kernel, find_kernels, find_overload
from .runtime.devices import Device, device_at
from .schema import bind_all, functional_of, is_view, params_of
from .spec import Spec, spec_of
from .tensor import Tensor, wrap, wrap_view

_DK = torch._C.DispatchKey


class ViewPlan:
    """New metadata over the same buffer."""

    route, reason, n_launches = "view", "", 0

    def __init__(self, inferred: Inferred, tensors: Sequence[Tensor]) -> None:
        if any(o.arg is None for o in inferred.outs):
            raise Unsupported("not always a view")
        self.outs = [(o.arg or 0, o.is_arg, o.spec, o.offset) for o in inferred.outs]
        self.pack = inferred.pack
        self.one = self.outs[0] if len(self.outs) == 1 and self.pack([1]) == 1 else None
        sizes = {(tensors[i]._spec.itemsize, s.itemsize) for i, _, s, _ in self.outs}
        self.scale = next((s for s in sizes if s[0] != s[1]), None)

    def run(self, tensors: Sequence[Tensor], values: Sequence[Any], args: Any, kwargs: Any) -> Any:
        if self.one is not None:
            return self._view(tensors, *self.one)
        return self.pack([self._view(tensors, *out) for out in self.outs])

    def _view(self, tensors: Sequence[Tensor], index: int, is_arg: bool, spec: Spec, offset: int) -> Tensor:
        base = tensors[index]
        if is_arg:
            return base
        start = base._offset
        if self.scale is not None:  # another itemsize: offsets count in elements of the view
            start = start * self.scale[0] // self.scale[1]
        return wrap_view(base, spec, start + offset)


class CallPlan:
    """A route that is a plain function of the call's own arguments: decomposition, fallback."""

    n_launches = 0

    def __init__(self, route: str, reason: str, run: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self.route = route
        self.reason = reason
        self.call = run

    def run(self, tensors: Any, values: Any, args: Any, kwargs: Any) -> Any:
        return self.call(args, kwargs)


def find_tensors(*values: Any) -> list[Tensor]:
    """All device tensors in nested arguments."""
    found: list[Tensor] = []
    for value in values:
        items = list(value.values()) if isinstance(value, dict) else [value]
        map_tensors(items, lambda t: found.append(t) if isinstance(t, Tensor) else None)
    return found


class Decomposition(CallPlan):
    """An op run as other ops. One that comes back to itself is no decomposition: it goes to the CPU from then on."""

    def __init__(self, func: Any, reason: str, run: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__("decomposition", reason, run)
        self.twin = functional_of(func) or func
        self.func = func

    def run(self, tensors: Any, values: Any, args: Any, kwargs: Any) -> Any:
        mark = (self.twin, *(t._spec for t in tensors))
        if mark in _running.marks:
            raise _Circular(mark)
        _running.marks.append(mark)
        outer, _running.home = _running.home, tensors[0]._spec.device if tensors else _running.home
        try:
            return self.call(args, kwargs)
        except _Circular as circle:
            if circle.mark != mark:
                raise
        except NotImplementedError:
            # torch has a stub there that backends are expected to override
            if not find_tensors(args, kwargs):
                raise
        finally:
            _running.marks.pop()
            _running.home = outer
        self.route, self.reason = "fallback", self.reason or "no kernel"
        self.call = lambda a, k: fallback.run(self.func, a, k, find_tensors(a, k)[0]._spec.device, self.reason)
        return self.call(args, kwargs)


class _Circular(Exception):
    def __init__(self, mark: Any) -> None:
        super().__init__("an op decomposed into itself")
        self.mark = mark


class _Running(threading.local):
    def __init__(self) -> None:
        self.marks: list[Any] = []
        self.home: Device | None = None


_running = _Running()


def home(device: torch.device | None) -> Device:
    """The device a factory means by `device`.

    C++ composites make tensors from `self.options()`, where every chip is index 0: inside a decomposition that is
    the chip of the op's tensors.
    """
    index = None if device is None else device.index
    if _running.home is not None and not index:
        return _running.home
    return device_at(index)


def decomposing() -> bool:
    """Whether this thread is inside an op that runs as other ops: there, a frame of ours catches what is raised."""
    return bool(_running.marks)


AnyPlan = Plan | ViewPlan | CallPlan


def make_plan(func: Any, device: Device, tensors: Sequence[Tensor], args: Any, kwargs: Any) -> AnyPlan:
    """The plan of a call whose tensors all live on `device`. Raises what torch raises for a wrong call."""
    if is_view(func) and not _has_composite(func, "CompositeImplicitAutograd"):
        try:
            return ViewPlan(infer(func, args, kwargs, device), tensors)
        except Unsupported:
            pass
    if torch.Tag.inplace_view in func.tags:
        return CallPlan("view", "", lambda a, k: _inplace_view(func, a, k, device))
    reasons: list[str] = []
    target = func
    kernels = find_kernels(func, device.backend)
    if not kernels and (functional := functional_of(func)) is not None:
        target, kernels = functional, find_kernels(functional, device.backend)
    for entry in kernels:
        try:
            return _kernel_plan(func, target, entry, device, tensors, args, kwargs)
        except Unsupported as missing:
            reasons.append(str(missing))
    found = _decomposition(func, target)
    if found is not None:
        return Decomposition(func, "; ".join(reasons), found)
    reason = "; ".join(reasons) or "no kernel"
    if func.namespace.startswith("torch_fl"):  # a part of one of our handlers: the whole op goes to the CPU
        raise Unsupported(reason)
    return CallPlan("fallback", reason, lambda a, k: fallback.run(func, a, k, device, reason))


def _inplace_view(func: Any, args: Any, kwargs: Any, device: Device) -> Any:
    """t_, squeeze_ and the like: the tensor itself changes its layout."""
    tensor = args[0]
    result, _, twins = run_on_meta(func, args, kwargs)
    spec = spec_of(tuple(result.shape), tuple(result.stride()), tensor._spec.dtype, device)
    set_content(tensor, wrap(tensor._buffer, spec, tensor._offset + twins[0].storage_offset()))
    return tensor


def _kernel_plan(
    func: Any, target: Any, entry: Kernel, device: Device, tensors: Sequence[Tensor], args: Any, kwargs: Any
) -> Plan:
    bound = bind_all(func, args, kwargs)
    inferred = infer(func, args, kwargs, device) if entry.infer else Inferred((), lambda flat: flat[0])
    _check_overlap(func, bound)
    builder = Builder(device, [t._spec for t in tensors], inferred)
    builder.buffers = [id(t._buffer) for t in tensors]
    if not entry.infer:
        builder.pack = _pack_of(func)
    _resize(inferred, builder, tensors)
    if target is not func and not entry.elementwise:
        builder.natural = _natural(func, target, bound, device, inferred)
    if any(p.is_out for p in params_of(func)) and not entry.infer:
        raise Unsupported("out= of an op whose shape depends on data")
    call = _arguments(entry, bound, tensors)
    entry.function(builder, **call)
    plan = builder.finish()
    plan.route = "kernel" if entry.backend else "portable"
    return plan


def _pack_of(func: Any) -> Callable[[list[Any]], Any]:
    returns = len(func._schema.returns)
    if returns == 0:
        return lambda flat: None
    return (lambda flat: flat[0]) if returns == 1 else tuple


def _resize(inferred: Inferred, builder: Builder, tensors: Sequence[Tensor]) -> None:
    """Give out= tensors of the wrong size the right one (torch has warned by now)."""
    for index, spec in inferred.resized:
        give_layout(tensors[index], spec)
        builder.inputs[index] = spec


def give_layout(tensor: Tensor, spec: Spec) -> None:
    """Change a tensor's shape and strides in place; a buffer that is too small is replaced, its contents kept."""
    buffer, nbytes = tensor._buffer, (tensor._offset + spec.extent) * spec.itemsize
    if nbytes > buffer.nbytes:
        grown = spec.device.allocate(nbytes)
        if buffer.nbytes:
            spec.device.backend.copy_d2d(grown.handle, 0, buffer.handle, 0, buffer.nbytes)
        buffer = grown
    set_content(tensor, wrap(buffer, spec, tensor._offset))


def set_content(tensor: Tensor, source: Tensor) -> None:
    """Make `tensor` the same view of the same buffer as `source`, for C++ and for us; identity is kept."""
    with torch.no_grad():
        torch.Tensor.data.__set__(tensor, source)  # type: ignore[attr-defined]
    tensor._buffer, tensor._spec, tensor._offset = source._buffer, source._spec, source._offset


def _natural(func: Any, target: Any, bound: dict[str, Any], device: Device, inferred: Inferred) -> Any:
    """What the functional form returns, where the kernel must not write straight into the destination.

    None (write in place) when every destination has the result's shape and dtype and shares no buffer with an input.
    """
    inputs = {p.name: bound[p.name] for p in params_of(target)}
    functional = infer(target, [], inputs, device)
    written = find_tensors([bound[p.name] for p in params_of(func) if p.written])
    fits = all(
        out.spec.shape == natural.spec.shape and out.spec.dtype == natural.spec.dtype and not out.spec.overlaps_itself
        for out, natural in zip(inferred.outs, functional.outs)
    )
    read = {id(t._buffer) for t in find_tensors(inputs)}
    return None if fits and all(id(t._buffer) not in read for t in written) else functional.outs


def _check_overlap(func: Any, bound: dict[str, Any]) -> None:
    """torch's rule for written tensors: no element twice, and no partial overlap with an input."""
    params = params_of(func)
    for p in params:
        target = bound.get(p.name)
        if not p.written or not isinstance(target, Tensor):
            continue
        if target._spec.overlaps_itself:
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location. Please clone() the tensor before performing the operation."
            )
        for other in find_tensors([v for n, v in bound.items() if n != p.name]):
            if other is not target and _partly_overlap(target, other):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                    "single memory location. Please clone() the tensor before performing the operation."
                )


def _partly_overlap(a: Tensor, b: Tensor) -> bool:
    if a._buffer is not b._buffer or not a._spec.is_dense or not b._spec.is_dense:
        return False  # torch decides nothing for layouts with holes either
    if a._spec is b._spec and a._offset == b._offset:
        return False
    size_a, size_b = a._spec.itemsize, b._spec.itemsize
    start_a, start_b = a._offset * size_a, b._offset * size_b
    return start_a < start_b + b._spec.extent * size_b and start_b < start_a + a._spec.extent * size_a


def _arguments(entry: Kernel, bound: dict[str, Any], tensors: Sequence[Tensor]) -> dict[str, Any]:
    """The kernel function's arguments: Refs for tensors, Values for launch-time numbers, in binder order."""
    func_params = {p.name: p for p in params_of(find_overload(entry.aten))}
    # By position, as the binder collects them: x * x and x * y share a plan, so identity must not count.
    slots, numbers = itertools.count(), itertools.count()

    def value_of(item: Any, kind: type | None = None) -> Any:
        index = next(numbers)
        return Value(kind or type(item), lambda values: values[index])

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
        entry = kernels[0]
        entry.function(builder, **{n: bound[n if n in bound else n[:-1]] for n in entry.names})
        results = [builder.out(i) for i in range(len(inferred.outs))]
    finally:
        builder.outs, builder.out_refs, builder.natural = outer
    return inferred.pack(list(results))


def _example(value: Value) -> Any:
    return {int: 1, float: 1.0, bool: True, complex: 1j}.get(value.kind, 1.0)


def _decomposition(func: Any, functional: Any) -> Callable[[Any, Any], Any] | None:
    """torch's own way to run `func` as other ops, or None."""
    for key, alias in (
        (_DK.CompositeImplicitAutograd, "CompositeImplicitAutograd"),
        (_DK.CompositeExplicitAutograd, "CompositeExplicitAutograd"),
    ):
        if _has_composite(func, alias) and not _makes_twin(func, alias):
            return lambda args, kwargs, key=key: func._op_dk(key, *args, **kwargs)  # type: ignore[misc]
    table = _python_decompositions()
    if func in table:
        decompose = table[func]
        return lambda args, kwargs: decompose(*args, **kwargs)
    if functional is not func and functional in table:
        decompose = table[functional]
        return lambda args, kwargs: _write_results(func, decompose, args, kwargs)
    return None


def _has_composite(func: Any, alias: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), alias)


@lru_cache(maxsize=1)
def _python_decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's decompositions into other aten ops; its references that only rename an op to a prim are left out."""
    with uninterrupted():  # it imports much of torch, which a Ctrl-C must not leave half done
        table: dict[Any, Callable[..., Any]] = dict(torch._decomp.core_aten_decompositions())
    for func, decompose in torch._decomp.decomposition_table.items():
        if getattr(decompose, "__module__", "") == "torch._decomp.decompositions":
            table.setdefault(func, decompose)
    return table


def _makes_twin(func: Any, alias: str) -> bool:
    """Generated out= and functional variants call their twin, which would call them again: not a decomposition."""
    return alias == "CompositeExplicitAutograd" and any(p.is_out for p in params_of(func))


def _write_results(func: Any, decompose: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run the functional form and copy its results into the written arguments."""
    bound = bind_all(func, args, kwargs)
    params = params_of(func)
    result = decompose(**{p.name: bound[p.name] for p in params if not p.is_out})
    results = result if isinstance(result, (list, tuple)) else [result]
    targets = [bound[p.name] for p in params if p.written]
    for target, value in zip(targets, results):
        if target._spec.shape != tuple(value.shape):
            target.resize_(value.shape)
        target.copy_(value)
    return targets[0] if len(targets) == 1 else tuple(targets)
