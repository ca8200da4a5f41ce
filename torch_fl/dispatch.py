"""The one route of every op: plan cache, then plan; misses go to `routes`. This file is the hot path.

On a hit the work per op is: look up the op, bind arguments to a key, look up the plan, replay it. Telemetry costs
one test while nobody listens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import fallback, interrupts, migration, names, rejection
from .decomposition import home
from .errors import Error, Unsupported, describe_call, message, several_devices
from .hot import compiled
from .infer import find_tensors
from .interrupts import watch
from .plan import CallPlan
from .registry import find_handler, static_of
from .routes import AnyPlan, make_plan
from .runtime import faults, settings
from .runtime.devices import Device, check_fork, on_fork
from .schema import NotOurs, bind_all, functional_of, make_binder, params_of
from .tensor import Tensor

MAX_PLANS = 2048
"""Plans kept per overload; the cache of an overload is emptied when it is full."""

CPU_ALLOWED = (
    "copy_", "_copy_from", "_foreach_copy_", "set_",
    "index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index",
)  # fmt: skip
"""Ops that take CPU tensors beside device tensors, as on CUDA (indices; copies between devices)."""


class Op:
    """One overload on its way through the route: its binder and its plans, or its handler."""

    __slots__ = ("bind", "func", "handler", "name", "plans")

    def __init__(self, func: Any) -> None:
        self.func = func
        self.name = func.name()
        self.forget()

    def forget(self) -> None:
        """Look into the registry anew, without plans."""
        func = self.func
        self.handler = find_handler(func)
        self.plans: dict[Any, AnyPlan | Bumped] = {}
        self.bind = make_binder(func, (*static_of(func), *static_of(functional_of(func))))


_OPS: dict[Any, Op] = {}
listener: Any = None
"""The telemetry hub while somebody listens, else None. Set through `telemetry.listen`."""


def op_of(func: Any) -> Op:
    """The Op of an overload, made at first sight."""
    found = _OPS.get(func)
    if found is None:
        from . import ops

        ops.load()
        found = _OPS.setdefault(func, Op(func))
    return found


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one op on the device. Raises what torch would raise for the same call on a GPU."""
    op = _OPS.get(func)
    if op is None:
        op = op_of(func)
    watching = listener
    if watching is not None:
        return watching.run(op, args, kwargs)
    if op.handler is not None:
        return op.handler(*args, **kwargs)
    key, tensors, values = op.bind(args, kwargs)
    plan = op.plans.get(key)
    if plan is None:
        plan = find_plan(op, key, tensors, args, kwargs)
    return plan.run(tensors, values, args, kwargs)


def planned(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an op through its plan although it has a handler: for handlers that serve some calls themselves.

    Whoever listens is told of the op that the dispatcher is running; where it is running none, of this one.
    """
    watching = listener
    if watching is not None and watching.idle():
        return watching.run(op, args, kwargs, planned)
    key, tensors, values = op.bind(args, kwargs)
    plan = op.plans.get(key)
    if plan is None:
        plan = find_plan(op, key, tensors, args, kwargs)
    if watching is not None:
        watching.planned(plan, tensors)
    return plan.run(tensors, values, args, kwargs)


def find_plan(op: Op, key: Any, tensors: Sequence[Any], args: Any, kwargs: Any) -> AnyPlan | Bumped:
    """The plan for a key that is not in the cache; cached unless it only serves this call."""
    device = _common_device(op, tensors, kwargs)
    if device is None:
        move = migration.run
        return CallPlan("migrate", "tensors on several devices", lambda a, k: move(op.func, call, tensors, a, k))
    before = [t._spec for t in tensors if type(t) is Tensor]
    made = make_plan(op.func, device, tensors, args, kwargs)
    plan: AnyPlan | Bumped = made
    if any(p.written and p.kind == "tensors" for p in params_of(op.func)):
        plan = Bumped(op.func, made, tensors, args, kwargs)
    if not tensors and getattr(kwargs.get("device"), "index", 0) is None:
        return plan  # "npu" is the current device, which may be another at the next call
    if len(op.plans) >= MAX_PLANS:
        op.plans.clear()
    # A call that resized its out= tensor was planned for the layout after it: the key describes the one before.
    if len(before) == len(tensors) and before == [t._spec for t in tensors]:
        op.plans[key] = plan
    return plan


class Bumped:
    """A plan of an op that writes lists of tensors: torch counts versions of single arguments only."""

    def __init__(self, func: Any, plan: AnyPlan, tensors: Sequence[Any], args: Any, kwargs: Any) -> None:
        self.plan = plan
        bound = bind_all(func, args, kwargs)
        written = {id(t) for t in find_tensors([bound[p.name] for p in params_of(func) if p.written])}
        self.written = [k for k, t in enumerate(tensors) if id(t) in written]
        """Their places among the tensors of the call, which the key of the plan fixes."""
        self.route, self.reason, self.n_launches = plan.route, plan.reason, plan.n_launches

    def run(self, tensors: Any, values: Any, args: Any, kwargs: Any) -> Any:
        result = self.plan.run(tensors, values, args, kwargs)
        written = [tensors[k] for k in self.written]
        try:
            torch.autograd.graph.increment_version(written)
        except RuntimeError:  # inference tensors count no versions
            torch.autograd.graph.increment_version([t for t in written if not t.is_inference()])
        return result


def forget_plans() -> None:
    """Empty every plan cache: a kernel, policy or device property that plans depend on has changed."""
    for op in _OPS.values():
        op.forget()


def _common_device(op: Op, tensors: Sequence[Any], kwargs: dict[str, Any]) -> Device | None:
    """The device all tensors are on; None if they are on several and something has to move."""
    devices = {t._spec.device for t in tensors if type(t) is Tensor}
    foreign = [t for t in tensors if type(t) is not Tensor]
    if foreign and devices:
        if op.func._schema.name.removeprefix("aten::") in CPU_ALLOWED and all(t.device.type == "cpu" for t in foreign):
            return None
        where = names.shown(next(iter(devices)).index)
        raise several_devices(where, foreign[0].device, describe_call(op.name, tensors))
    if len(devices) > 1:
        return None
    if devices:
        return devices.pop()
    return home(kwargs.get("device"))


def _on_cpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], reason: Unsupported) -> Any:
    """Serve a call whose handler needs a kernel that this chip does not have."""
    tensors = find_tensors(args, kwargs)
    device = tensors[0]._spec.device if tensors else home(kwargs.get("device"))
    return fallback.run(func, args, kwargs, device, str(reason))


def _told(error: Exception, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception:
    """What users see of an exception: a driver's failure explained, a wrong call in torch's words, or `error`."""
    explained = faults.explain(error, func, args, kwargs)
    if explained is not None:
        explained.__cause__ = error
        return explained
    told = rejection.as_on_cpu(error, func, args, kwargs)
    told.__suppress_context__ = told is not error or told.__suppress_context__
    return told


def _failed(error: Exception, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call that raised `error`, where there is one: by another tensor class, or from the CPU."""
    if isinstance(error, NotOurs):
        return NotImplemented
    if isinstance(error, Unsupported):
        return _on_cpu(func, args, kwargs, error)
    raise _told(error, func, args, kwargs)


def _torch_dispatch(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    watch()
    try:
        return call(func, args, kwargs or {})
    except Exception as error:  # noqa: BLE001 - told in torch's words
        return _failed(error, func, args, kwargs or {})


def boxed(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Entry for the PrivateUse1 dispatch key: factories, and calls that skip __torch_dispatch__."""
    try:
        return call(func, args, kwargs)
    except NotOurs:
        raise Error(message(f"{func.name()} mixes device tensors with another tensor subclass")) from None
    except Exception as error:  # noqa: BLE001 - told in torch's words
        return _failed(error, func, args, kwargs)


def install() -> None:
    """Put the route and the overridden methods into the tensor class; tell optimizers about it."""
    from . import tensor_methods
    from .compat import autocast
    from .compat.optim import allow_foreach
    from .compat.untraced import untraced

    tensor_methods.install()
    autocast.install()
    allow_foreach(Tensor)
    untraced(boxed)
    untraced(_failed)
    slow = untraced(_torch_dispatch)
    Tensor.__torch_dispatch__ = staticmethod(_compiled(slow) if compiled else slow)  # type: ignore[method-assign]


def _compiled(slow: Any) -> Any:
    assert compiled is not None
    getsignal, sigint = interrupts.handler_in_force, interrupts.SIGINT
    return compiled.Route(_OPS, globals(), vars(interrupts), getsignal, sigint, slow, _failed)


class _Forked:
    """The listener of a forked child: every op there is refused before it reaches a driver."""

    def idle(self) -> bool:
        """Raise DeviceError."""
        check_fork()
        return False

    def run(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Raise DeviceError."""
        check_fork()

    def planned(self, plan: Any, tensors: Any) -> None:
        """Raise DeviceError."""
        check_fork()


def _after_fork() -> None:
    global listener
    listener = _Forked()


install()
on_fork(_after_fork)
if settings.log_level() != "WARNING":
    from .telemetry.log import set_log_level

    set_log_level(settings.log_level())
