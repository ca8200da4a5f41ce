"""Ops that run as other ops: composite kernels and decompositions, torch's own and libraries'; none is written here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch

from . import fallback, rejection
from .infer import find_tensors
from .interrupts import uninterrupted
from .plan import CallPlan
from .registry import find_handler, registered
from .resizing import resize_out
from .runtime.devices import Device, device_at
from .schema import bind_all, functional_of, params_of
from .spec import spec_of

_DK = torch._C.DispatchKey


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


@contextmanager
def at_home(device: Device) -> Iterator[None]:
    """While C++ makes tensors that belong beside one of `device`."""
    outer, _running.home = _running.home, device
    try:
        yield
    finally:
        _running.home = outer


_ours: dict[Any, Callable[..., Any]] = {}


def composed_by(func: Any, composition: Callable[..., Any]) -> None:
    """Let `composition` run `func` as other ops where there is no kernel: for ops that torch decomposes nowhere."""
    _ours[func] = composition


def find_decomposition(func: Any, functional: Any) -> Callable[[Any, Any], Any] | None:
    """torch's own way to run `func` as other ops, or that of a library that has one for the device type; or None."""
    if func.namespace != "aten" and has_composite(func, "PrivateUse1"):
        return lambda args, kwargs: func._op_dk(_DK.PrivateUse1, *args, **kwargs)
    for key, alias in (
        (_DK.CompositeImplicitAutograd, "CompositeImplicitAutograd"),
        (_DK.CompositeExplicitAutograd, "CompositeExplicitAutograd"),
        (_DK.CompositeExplicitAutogradNonFunctional, "CompositeExplicitAutogradNonFunctional"),
    ):
        if has_composite(func, alias) and not _makes_twin(func, alias):
            return lambda args, kwargs, key=key: func._op_dk(key, *args, **kwargs)  # type: ignore[misc]
    ours = _ours.get(func)
    if ours is not None:
        return lambda args, kwargs: ours(*args, **kwargs)
    outs, known = any(p.is_out for p in params_of(func)), functional is not func
    table = _python_decompositions()
    if outs and known and _runs_here(functional, table):
        return lambda args, kwargs: _write_results(func, functional, args, kwargs)
    found = table.get(func) or (table.get(functional) if known else None)
    if found is None:
        return None
    decompose = found
    if func in table and not (outs and known):
        return lambda args, kwargs: decompose(*args, **kwargs)
    return lambda args, kwargs: _write_results(func, decompose, args, kwargs)


def _runs_here(functional: Any, table: Mapping[Any, Any]) -> bool:
    """Whether an op has another route than the CPU, and than its out= form: some composites of C++ call that one."""
    if find_handler(functional) or functional in registered():
        return True
    return functional not in table and find_decomposition(functional, functional) is not None


def has_composite(func: Any, alias: str) -> bool:
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
    """Generated out= and functional variants call their twin, which would call them again: not a decomposition.

    A functional form that is generated has a kernel for the CPU (linalg_pinv is written out, and has none).
    """
    if alias == "CompositeExplicitAutogradNonFunctional":
        return has_composite(func, "CPU")
    return alias == "CompositeExplicitAutograd" and any(p.is_out for p in params_of(func))


def _write_results(func: Any, decompose: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run the functional form and copy its results into the written arguments."""
    bound = bind_all(func, args, kwargs)
    params = params_of(func)
    outs = {p.name for p in params if p.is_out}
    result = decompose(*args, **{k: v for k, v in kwargs.items() if k not in outs})
    results = find_tensors(*(result if isinstance(result, (list, tuple)) else [result]))
    targets = find_tensors([bound[p.name] for p in params if (p.name in outs if outs else p.written)])
    if outs and any(t.dtype != r.dtype for t, r in zip(targets, results)):  # each op has its own rule for that
        rejection.check_out(func, args, kwargs)
        return fallback.run(func, args, kwargs, targets[0]._spec.device, "out= of another dtype than the result's")
    for target, value in zip(targets, results):
        resize_out(target, value.shape, spec_of(tuple(value.shape), value.stride(), target.dtype, target._spec.device))
        target.copy_(value)
    if not func._schema.returns:
        return None
    return targets[0] if len(targets) == 1 else tuple(targets)
