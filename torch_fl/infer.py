"""Output shape, dtype, strides and aliasing of any op, by running it on torch's meta device.

torch's own meta kernels are the one source of truth, and of the error messages for wrong shapes and dtypes: no kernel
of ours computes an output shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from .errors import Unsupported
from .runtime.devices import Device
from .schema import bind_all, functional_of, params_of
from .spec import Spec, spec_of
from .tensor import Tensor

_META = torch.device("meta")
_STRUCTURED = "CompositeExplicitAutogradNonFunctional"


@dataclass(frozen=True)
class Out:
    """One tensor an op returns. `arg`: index of the input tensor that it is or shares its buffer with.

    `is_arg`: it is that very tensor. Otherwise with `arg` a view of it, `offset` elements from that tensor's own
    offset; without `arg` a new tensor.
    """

    spec: Spec
    arg: int | None = None
    is_arg: bool = False
    offset: int = 0


@dataclass(frozen=True)
class Inferred:
    """All results of a call: flat outputs, and `pack` that gives them the op's return structure."""

    outs: tuple[Out, ...]
    pack: Callable[[list[Any]], Any]
    resized: tuple[tuple[int, Spec], ...] = ()
    """Inputs whose metadata the op changes: (index, new Spec)."""


def map_tensors(value: Any, fn: Callable[[Any], Any]) -> Any:
    """`value` with `fn` applied to every tensor in it; lists and tuples are walked, nothing else is."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, fn) for v in value)
    return value


def find_tensors(*values: Any) -> list[Tensor]:
    """All device tensors in nested arguments."""
    found: list[Tensor] = []
    for value in values:
        items = list(value.values()) if isinstance(value, dict) else [value]
        map_tensors(items, lambda t: found.append(t) if isinstance(t, Tensor) else None)
    return found


def to_meta(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor with the metadata of `tensor`; offset 0, storage as large as the layout needs."""
    if isinstance(tensor, Tensor):
        spec = tensor._spec
        return torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=_META)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)


def _meta_kwargs(kwargs: dict[str, Any], convert: Callable[..., Any], hollow: Sequence[str]) -> dict[str, Any]:
    changed = {k: map_tensors(v, partial(convert, hollow=k in hollow)) for k, v in kwargs.items()}
    if changed.get("device") is not None:
        changed["device"] = _META
    if changed.get("pin_memory"):
        changed["pin_memory"] = False
    return changed


def run_on_meta(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], hollow: Sequence[str] = ()
) -> tuple[Any, list[torch.Tensor], list[torch.Tensor]]:
    """`func` on meta twins of its tensors: (result, the original tensors, their twins), in argument order.

    `hollow`: keyword arguments whose twins have no elements.
    """
    originals: list[torch.Tensor] = []
    twins: list[torch.Tensor] = []

    def convert(tensor: torch.Tensor, hollow: bool = False) -> torch.Tensor:
        # One twin per occurrence, as the binder counts them.
        originals.append(tensor)
        twins.append(torch.empty(0, dtype=tensor.dtype, device=_META) if hollow else to_meta(tensor))
        return twins[-1]

    meta_args = [_META if isinstance(a, torch.device) else map_tensors(a, convert) for a in args]
    meta_kwargs = _meta_kwargs(kwargs, convert, hollow)
    if "generator" in meta_kwargs:
        meta_kwargs["generator"] = None
    return func(*meta_args, **meta_kwargs), originals, twins


def _wrong_outs(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """The out= arguments that have another shape than the results.

    They are found with empty ones in their place: torch resizes those in silence, and its meta functions do not warn
    about others as its kernels do. Whoever resizes a tensor has to warn.
    """
    outs = [p.name for p in params_of(func) if p.is_out and p.kind == "tensor" and kwargs.get(p.name) is not None]
    if not outs:
        return outs
    _, originals, twins = run_on_meta(func, args, kwargs, outs)
    shapes = {id(t): twin.shape for t, twin in zip(originals, twins)}
    return [name for name in outs if shapes[id(kwargs[name])] != kwargs[name].shape]


def _given_outs(
    func: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    originals: Sequence[torch.Tensor],
    twins: Sequence[torch.Tensor],
) -> list[Any]:
    """The twins of the out= arguments of a call, which are its results.

    They keep their strides where they have the right shape. Else structured ops, and others where the argument is
    empty, lay them out as new results. Some of torch's meta functions return other tensors, or give them other strides.
    """
    twin_of = {id(t): twin for t, twin in zip(originals, twins)}
    given = [kwargs.get(p.name) for p in params_of(func) if p.is_out and p.kind == "tensor"]
    found = [(t, twin_of[id(t)]) for t in given if t is not None]
    if len(found) != len(func._schema.returns):
        return []
    fresh = _new_results(func, args, kwargs, found)
    for (tensor, twin), new in zip(found, fresh):
        model = tensor if twin.shape == tensor.shape else new
        if model is not None and twin.stride() != model.stride() and twin.shape == model.shape:
            twin.as_strided_(model.shape, model.stride())
    return [twin for _, twin in found]


def _new_results(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], found: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> list[Any]:
    """What the functional form returns on the meta device, where one of the out= arguments has another shape."""
    functional = functional_of(func)
    if functional is None or all(tensor.shape == twin.shape for tensor, twin in found):
        return [None] * len(found)
    names = {p.name for p in params_of(functional)}
    fresh = _structure(run_on_meta(functional, args, {k: v for k, v in kwargs.items() if k in names})[0])[0]
    structured = torch._C._dispatch_has_kernel_for_dispatch_key(functional.name(), _STRUCTURED)
    return [new if structured or not tensor.numel() else None for new, (tensor, _) in zip(fresh, found)]


def _structure(result: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    if isinstance(result, torch.Tensor):
        return [result], lambda flat: flat[0]
    if isinstance(result, (list, tuple)):
        return _nested(result)
    return [], lambda flat: result


def _nested(result: Sequence[Any]) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    kind = tuple if isinstance(result, tuple) else list
    flat: list[Any] = []
    rebuild: list[Callable[[list[Any]], Any]] = []
    for item in result:
        inner, pack = _structure(item)
        at, n = len(flat), len(inner)
        flat += inner
        rebuild.append(lambda f, at=at, n=n, pack=pack: pack(f[at : at + n]))  # type: ignore[misc]
    if all(isinstance(r, torch.Tensor) for r in result):
        return flat, tuple if kind is tuple else list
    return flat, lambda f: kind(r(f) for r in rebuild)


def _refusal(error: Exception, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Exception:
    """What to raise for a call that the meta kernel refuses: the CPU's error, or Unsupported where the CPU takes it."""
    from . import rejection

    answer = rejection.ask(func, args, kwargs)
    if answer.asked and answer.error is None:
        return Unsupported(f"torch's meta kernel refuses what its CPU kernel takes ({str(error)[:120]})")
    return answer.error or error


_ATEN = torch.ops.aten
_LIKE = {
    **dict.fromkeys((_ATEN.logical_and.default, _ATEN.logical_or.default, _ATEN.logical_xor.default), _ATEN.ne.Tensor),
    **dict.fromkeys((_ATEN.copysign.Tensor, _ATEN.xlogy.Tensor, _ATEN.special_xlog1py.default), _ATEN.div.Tensor),
    **dict.fromkeys((_ATEN.logaddexp.default, _ATEN.logaddexp2.default, _ATEN.heaviside.default), _ATEN.mul.Tensor),
    _ATEN.floor_divide.default: _ATEN.mul.Tensor,
}
"""Ops whose meta kernels are Python, and lay out the result of operands of several layouts unlike the CPU -> an op that
infers the same shape and dtype, and the CPU's strides."""


def _as_input(bound: dict[str, Any]) -> Any:
    return suggest_memory_format(bound["input"])


_FORMATS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "roll": lambda bound: suggest_memory_format(bound["self"]) if bound["dims"] else None,
    "_log_softmax_backward_data": lambda bound: torch.contiguous_format,
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"), _as_input),
    **dict.fromkeys(("_native_batch_norm_legit_no_training", "native_batch_norm_backward"), _as_input),
}
"""Ops whose first result the CPU lays out in a memory format, unlike their meta kernels -> which one, or None."""


def _give_format(func: Any, args: Sequence[Any], kwargs: dict[str, Any], flat: list[Any]) -> None:
    """Lay the first result out as `_FORMATS` says."""
    choose = _FORMATS.get(func._schema.name.removeprefix("aten::"))
    found = None if choose is None else choose(bind_all(func, args, kwargs))
    if found is not None and isinstance(flat[0], torch.Tensor):
        flat[0] = torch.empty(flat[0].shape, dtype=flat[0].dtype, device=_META, memory_format=found)


def infer(func: Any, args: Sequence[Any], kwargs: dict[str, Any], device: Device) -> Inferred:
    """What `func` returns for these arguments, on `device`.

    Raises what torch's CPU raises for wrong shapes, dtypes or values; Unsupported when torch has no meta kernel or the
    shape depends on data.
    """
    try:
        result, originals, twins = run_on_meta(_LIKE.get(func, func), args, kwargs, _wrong_outs(func, args, kwargs))
    except NotImplementedError as error:
        raise Unsupported(f"torch cannot infer its shape ({str(error).splitlines()[0][:120]})") from None
    except Exception as error:  # noqa: BLE001 - whatever it is, the CPU is asked
        raise _refusal(error, func, args, kwargs) from None
    storages = {t.untyped_storage()._cdata: i for i, t in enumerate(twins)}
    flat, pack = _structure(result)
    _give_format(func, args, kwargs, flat)
    outs = []
    for out in _given_outs(func, args, kwargs, originals, twins) or flat:
        spec = spec_of(tuple(out.shape), tuple(out.stride()), out.dtype, device)
        same = next((i for i, t in enumerate(twins) if t is out), None)
        shared = storages.get(out.untyped_storage()._cdata) if same is None else same
        outs.append(Out(spec, shared, same is not None, out.storage_offset()))
    changed = []
    for i, (tensor, twin) in enumerate(zip(originals, twins)):
        if isinstance(tensor, Tensor):
            now = spec_of(tuple(twin.shape), tuple(twin.stride()), twin.dtype, device)
            if now is not tensor._spec and (now.shape, now.strides) != (tensor._spec.shape, tensor._spec.strides):
                changed.append((i, now))
    return Inferred(tuple(outs), pack, tuple(changed))
