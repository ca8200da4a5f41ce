"""What an op's schema says, and the argument binder generated from it.

The binder of an overload turns (args, kwargs) into a plan-cache key, the list of tensors and the list of launch-time
values. It is generated once per overload, because this code runs on every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from .compat.untraced import untraced
from .tensor import Tensor

Bind = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, list[Any], list[Any]]]

_NUMBERS = (int, float, bool, complex)


@dataclass(frozen=True)
class Param:
    """One schema argument. `kind`: "tensor", "tensors", "generator", "value" or "values" (numbers given at launch), or
    "static" (in the key).
    """

    name: str
    kind: str
    default: Any
    required: bool
    keyword_only: bool
    written: bool
    is_out: bool


def _kind(type_text: str) -> str:
    if type_text == "List[number]":
        return "values"
    text = type_text.replace("Optional[", "").rstrip("]")
    if type_text.startswith(("List[", "Optional[List[")):
        return "tensors" if "Tensor" in text else "static"
    if text == "Tensor":
        return "tensor"
    if text in ("number", "float", "Scalar"):
        return "value"
    if text == "Generator":
        return "generator"
    return "static"


@cache
def params_of(func: Any) -> tuple[Param, ...]:
    """The arguments of an overload in schema order."""
    found = []
    for a in func._schema.arguments:
        written = a.alias_info is not None and a.alias_info.is_write
        required = not a.has_default_value()
        kind = _kind(str(a.type))
        found.append(
            Param(a.name, kind, None if required else a.default_value, required, a.kwarg_only, written, a.is_out)
        )
    return tuple(found)


def bind_all(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Every argument by name, defaults filled in (torch drops arguments that equal their default)."""
    bound = {}
    positional = iter(args)
    for p in params_of(func):
        if not p.keyword_only:
            value = next(positional, _MISSING)
            if value is not _MISSING:
                bound[p.name] = value
                continue
        bound[p.name] = kwargs.get(p.name, p.default)
    return bound


_MISSING = object()


def is_view(func: Any) -> bool:
    """Whether the result is a view by the schema: an output aliases an input that is not written."""
    schema = func._schema
    written = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    return not written and any(r.alias_info is not None for r in schema.returns)


@cache
def functional_of(func: Any) -> Any:
    """The functional twin of an in-place or out= overload, or None.

    In-place `add_.Tensor` -> `add.Tensor`; `add.out` -> the overload of `add` with the same other arguments, which may
    write some of them itself (running statistics).
    """
    packet_name = func._schema.name.removeprefix("aten::")
    params = params_of(func)
    outs = [p for p in params if p.is_out]
    if not outs and not (packet_name.endswith("_") and not packet_name.endswith("__")):
        return None
    base = packet_name if outs else packet_name[:-1]
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        return None
    wanted = _signature(func)
    kept = {p.name for p in params if p.written and not p.is_out} if outs else set()
    for name in packet.overloads():
        candidate = getattr(packet, name)
        if {p.name for p in params_of(candidate) if p.written} == kept and _signature(candidate) == wanted:
            return candidate
    return None


def _signature(func: Any) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in func._schema.arguments if not a.is_out]


class NotOurs(Exception):
    """A tensor of another subclass is among the arguments: __torch_dispatch__ returns NotImplemented."""


def _foreign(value: Any, tensors: list[Any], values: list[Any]) -> Any:
    """Key part of something that is not a device tensor where the schema says Tensor."""
    if value is None:
        return None
    kind = type(value)
    if kind in _NUMBERS:
        values.append(value)
        return kind
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        if value.dim() == 0 and value.device.type == "cpu":
            values.append(value.item())
            return ("cpu scalar", value.dtype)
        tensors.append(value)
        return ("foreign", value.device, value.dtype, tuple(value.shape))
    if isinstance(value, Tensor):
        tensors.append(value)
        return value._spec
    if isinstance(value, torch.Tensor):
        raise NotOurs
    values.append(value)
    return kind


def _list_key(value: Any, tensors: list[Any], values: list[Any]) -> Any:
    if value is None:
        return None
    try:
        key = [v._spec for v in value]
    except AttributeError:  # not only device tensors
        key = []
    else:
        tensors += value
        return tuple(key)
    for v in value:
        if type(v) is Tensor:
            tensors.append(v)
            key.append(v._spec)
        else:
            key.append(_foreign(v, tensors, values))
    return tuple(key)


def _distinct(value: Any) -> bool:
    """Whether a list names no tensor twice: elements that are written must not meet."""
    return value is None or len(set(map(id, value))) == len(value)


def _freeze(value: Any) -> Any:
    if type(value) is list or type(value) is tuple:
        return tuple([_freeze(v) for v in value])
    # 1, 1.0 and True are equal and hash alike but mean different things to an op
    return (float, value) if type(value) is float else (bool, value) if type(value) is bool else value


def _aliases(tensors: list[Any], written: list[Any]) -> Any:
    """Which arguments share a buffer with a written one, and how far apart they start; None when none does."""
    found = None
    for target in written:
        buffer = target._buffer
        for k, other in enumerate(tensors):
            if other is not target and type(other) is Tensor and other._buffer is buffer:
                found = (*(found or ()), (k, other._offset - target._offset))
    return found


def make_binder(func: Any, static: Sequence[str]) -> Bind:
    """Generate bind(args, kwargs) -> (key, tensors, values) for an overload.

    `static`: number arguments that a kernel needs at planning time; they go into the key by value. The key of an op
    that writes also says how its other tensors overlap the written ones.
    """
    lines = ["def bind(args, kwargs):", "  n = len(args)", "  T = []", "  V = []"]
    key = []
    names: dict[str, Any] = {
        "Tensor": Tensor, "foreign": _foreign, "list_key": _list_key, "freeze": _freeze, "aliases": _aliases,
        "distinct": _distinct,
        "type": type, "len": len,
    }  # fmt: skip
    params = params_of(func)
    check = any(p.written and p.kind == "tensor" for p in params) and sum(p.kind == "tensor" for p in params) > 1
    if check:
        lines.append("  W = []")
    for i, p in enumerate(params):
        names[f"d{i}"] = p.default
        if p.keyword_only:
            get = f"kwargs['{p.name}'] if '{p.name}' in kwargs else d{i}" if not p.required else f"kwargs['{p.name}']"
        elif p.required:
            get = f"args[{i}] if n > {i} else kwargs['{p.name}']"
        else:
            get = f"args[{i}] if n > {i} else (kwargs['{p.name}'] if '{p.name}' in kwargs else d{i})"
        lines.append(f"  a = {get}")
        key.append(f"k{i}")
        if p.kind == "tensor":
            note = "; W.append(a)" if check and p.written else ""
            lines += [f"  if type(a) is Tensor: T.append(a); k{i} = a._spec{note}", f"  else: k{i} = foreign(a, T, V)"]
        elif p.kind == "tensors":
            lines.append(f"  k{i} = list_key(a, T, V){', distinct(a)' if p.written else ''}")
        elif p.kind == "value" and p.name not in static:
            lines += [f"  k{i} = type(a)", "  if a is not None: V.append(a)"]
        elif p.kind == "values":
            lines += [f"  k{i} = tuple([type(v) for v in a])", "  V.extend(a)"]
        elif p.kind == "generator":
            lines += [f"  k{i} = a is None", "  V.append(a)"]
        else:
            lines += [f"  k{i} = freeze(a)"]
    if check:
        key.append("(aliases(T, W) if len(T) > 1 else None)")
    lines.append(f"  return ({''.join(k + ', ' for k in key)}), T, V")
    exec("\n".join(lines), names)
    return untraced(names["bind"])  # type: ignore[no-any-return]
