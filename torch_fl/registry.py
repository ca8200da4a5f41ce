"""Kernels by (op, backend): what is registered, and how it is looked up.

A kernel is a function of a `Builder` and the op's own arguments by name; it runs once per plan. Only functional
overloads are registered; in-place and out= forms are found through the schema. Ops that no functional form exists
for (`normal_`, the fused optimizers) are registered as they are and write into their argument's Ref.

Mistakes raise RegistryError at import: unknown ops, duplicates, parameter names that the schema does not have.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .errors import RegistryError, did_you_mean, message
from .schema import params_of

KernelFunction = Callable[..., None]

COMPLEX = "complex numbers"
"""In the place of a backend: the portable kernel of an op for complex numbers, asked after all others."""


@dataclass(frozen=True)
class Kernel:
    """One registration. `static`: number arguments wanted at planning time. `elementwise`: may write over its inputs.

    `infer=False`: torch cannot infer the outputs, the kernel declares them with `Builder.new_out`.
    `aten`: overload for messages, `backend`: adapter or family name, "" for portable.
    """

    aten: str
    function: KernelFunction
    backend: str = ""
    static: tuple[str, ...] = ()
    elementwise: bool = False
    infer: bool = True
    names: tuple[str, ...] = ()


_KERNELS: dict[Any, dict[str, Kernel]] = {}
_HANDLERS: dict[Any, Callable[..., Any]] = {}


def find_overload(name: str) -> Any:
    """The OpOverload of "aten::add.Tensor" (or "aten::mm", its default overload).

    Raises RegistryError with a hint for names torch does not have.
    """
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if packet is None:
        known = [n.partition("::")[2].split(".")[0] for n in torch._C._dispatch_get_all_op_names()]
        raise RegistryError(message(f"there is no op {name!r}", hint=did_you_mean(base, set(known))))
    found = getattr(packet, overload or "default", None)
    if found is None:
        raise RegistryError(message(f"there is no overload {name!r}", hint=f"known: {', '.join(packet.overloads())}"))
    return found


def _check_names(name: str, func: Any, function: Callable[..., Any]) -> tuple[str, ...]:
    wanted = [p.name for p in inspect.signature(function).parameters.values()][1:]
    known = [p.name for p in params_of(func)]
    known += [f"{n}_" for n in ("from", "lambda") if n in known]
    unknown = [n for n in wanted if n not in known]
    if unknown:
        raise RegistryError(
            message(f"the kernel of {name} takes {unknown}", because=f"the schema has {known}: {func._schema}")
        )
    return tuple(wanted)


def kernel(
    *names: str,
    backend: str = "",
    static: Sequence[str] = (),
    elementwise: bool = False,
    infer: bool = True,
) -> Callable[[KernelFunction], KernelFunction]:
    """Register a function as the kernel of ops: `@kernel("aten::mm")` over `def mm(b, self, mat2)`.

    The first parameter is the Builder, the others are the schema's arguments that the kernel needs, by name (Refs,
    lists of Refs, Values, or plain values). The kernel raises Unsupported for what it cannot do.
    """

    def register(function: KernelFunction) -> KernelFunction:
        for name in names:
            func = find_overload(name)
            known = _check_names(name, func, function)
            add_kernel(func, Kernel(name, function, backend, tuple(static), elementwise, infer, known))
        return function

    return register


def add_kernel(func: Any, entry: Kernel) -> None:
    """Put one entry into the table. Raises RegistryError for a second one of the same op and backend."""
    table = _KERNELS.setdefault(func, {})
    if entry.backend in table:
        raise RegistryError(f"{entry.aten} already has a kernel for {entry.backend or 'every chip'}")
    table[entry.backend] = entry


def handler(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that serves an op without a plan: called with the op's own arguments on every call."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            func = find_overload(name)
            if func in _HANDLERS:
                raise RegistryError(f"{name} already has a handler")
            _HANDLERS[func] = function
        return function

    return register


def find_handler(func: Any) -> Callable[..., Any] | None:
    """The handler of an overload, or None."""
    return _HANDLERS.get(func)


def find_kernels(func: Any, backend: Any) -> list[Kernel]:
    """Kernels of a functional overload for an adapter: its own first, its family's, then the portable ones."""
    table = _KERNELS.get(func, {})
    return [table[k] for k in dict.fromkeys((backend.name, backend.family or backend.name, "", COMPLEX)) if k in table]


def static_of(func: Any) -> tuple[str, ...]:
    """Union of what the kernels of an overload want at planning time; nothing for None."""
    return tuple({n for k in _KERNELS.get(func, {}).values() for n in k.static})


def registered() -> dict[Any, dict[str, Kernel]]:
    """The whole table: overload -> backend -> entry."""
    return _KERNELS
