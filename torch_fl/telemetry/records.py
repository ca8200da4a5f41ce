"""One record per op, and the hub that makes them while somebody listens.

The hub stands in `dispatch.listener`. It keeps a stack of running ops per thread: an op that runs as other ops is
charged its own time only, and bytes go to the innermost op that moved them, so sums over records add up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any, Protocol

from ..errors import dtype_name
from ..schema import is_view
from ..tensor import Tensor
from . import traffic, where


@dataclass(slots=True)
class Record:
    """One op that ran. Times in seconds, without the ops it called; `shapes` and `dtype` are those of its tensors.

    `route` is "view", "kernel" (the chip's own), "portable", "decomposition" (ran as other ops, which have their own
    records), "fallback" (ran on the CPU), "migrate" (moved tensors between devices) or "direct" (served without a
    kernel: allocation, copies between host and device). `module` is the path of the nn.Module that ran it; ops of
    the backward pass carry the path of the forward op. `source` is the user's line, known for fallbacks.
    """

    op: str
    overload: str
    route: str
    device: str
    reason: str
    seconds: float
    h2d_bytes: int
    d2h_bytes: int
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    module: str
    source: str
    thread: int

    @property
    def name(self) -> str:
        """The op as torch writes it: aten::add.Tensor."""
        return f"{self.op}.{self.overload}" if self.overload else self.op


class Sink(Protocol):
    """What may listen: called after every op, from the thread that ran it."""

    sync: bool
    """Wait for the device after every op, so that `seconds` is the time of the work and not of its launch."""

    def add(self, record: Record) -> None:
        """Take one record."""


class Frame:
    """An op that is running."""

    __slots__ = ("d2h_bytes", "h2d_bytes", "inner_seconds", "plan", "reason", "route", "source", "tensors")

    def __init__(self) -> None:
        self.plan: Any = None
        self.tensors: Any = ()
        self.route = self.reason = self.source = ""
        self.inner_seconds = 0.0
        self.h2d_bytes = self.d2h_bytes = 0


class _Thread(threading.local):
    def __init__(self) -> None:
        self.frames: list[Frame] = []


_thread = _Thread()


def fell_back(reason: str) -> None:
    """Called by the fallback: the op this thread is running goes to the CPU."""
    if _thread.frames:
        frame = _thread.frames[-1]
        frame.route, frame.reason, frame.source = "fallback", reason, where.user_line()


def count_bytes(h2d: int, d2h: int) -> None:
    """Called by the traffic counter: this thread's running op moved bytes."""
    if _thread.frames:
        frame = _thread.frames[-1]
        frame.h2d_bytes += h2d
        frame.d2h_bytes += d2h


class Hub:
    """Runs ops for the dispatcher and tells the sinks. A sink that raises is dropped, the user's op is not harmed."""

    def __init__(self, sinks: tuple[Sink, ...]) -> None:
        from .. import dispatch

        self.sinks = sinks
        self.sync = any(s.sync for s in sinks)
        self.run_plan = dispatch.planned

    def idle(self) -> bool:
        """Whether this thread is running no op."""
        return not _thread.frames

    def planned(self, plan: Any, tensors: Any) -> None:
        """The dispatcher found the plan of the op that this thread is running."""
        if _thread.frames:
            frame = _thread.frames[-1]
            frame.plan, frame.tensors = plan, tensors

    def run(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], serve: Any = None) -> Any:
        """Run one op as the dispatcher would, or by `serve(op, args, kwargs)`, and record it unless it raises."""
        frames = _thread.frames
        frame = Frame()
        frames.append(frame)
        start = perf_counter()
        try:
            if serve is None and op.handler is not None:
                result = op.handler(*args, **kwargs)
            else:
                result = (serve or self.run_plan)(op, args, kwargs)
            if self.sync:
                _wait(_device_of(frame, args, kwargs, result))
        except BaseException:
            frames.pop()
            if frames:
                frames[-1].inner_seconds += frame.inner_seconds
            raise
        seconds = perf_counter() - start
        frames.pop()
        if frames:
            frames[-1].inner_seconds += seconds
        self._deliver(op, frame, args, kwargs, result, seconds - frame.inner_seconds)
        return result

    def _deliver(self, op: Any, frame: Frame, args: Any, kwargs: Any, result: Any, seconds: float) -> None:
        try:
            record = _record(op, frame, args, kwargs, result, seconds)
        except Exception as error:  # noqa: BLE001 - a record is lost; the user's op has succeeded
            logging.getLogger("torch_fl").warning("no record of %s: %r", op.name, error)
            return
        for sink in self.sinks:
            try:
                sink.add(record)
            except Exception as error:  # noqa: BLE001 - a listener must not break the program it watches
                remove(sink)
                logging.getLogger("torch_fl").warning("%r was dropped as a listener: %r", type(sink).__name__, error)


def _record(op: Any, frame: Frame, args: Any, kwargs: Any, result: Any, seconds: float) -> Record:
    plan, route, reason = frame.plan, frame.route, frame.reason
    name, overload, direct = _parts(op.func)
    if not route:
        route, reason = (plan.route, plan.reason) if plan is not None else (direct, "")
    specs = [t._spec for t in frame.tensors or _flat(args) if type(t) is Tensor]
    spec = specs[0] if specs else getattr(result, "_spec", None)
    device = spec.device if spec is not None else _device_of(frame, args, kwargs, result)
    return Record(
        name,
        overload,
        route,
        "cpu" if device is None else _device_name(device.index),
        reason,
        seconds if seconds > 0 else 0.0,
        frame.h2d_bytes,
        frame.d2h_bytes,
        tuple([s.shape for s in specs]),
        "" if spec is None else _dtype_name(spec.dtype),
        where.module_path(),
        frame.source,
        threading.get_ident(),
    )


@cache
def _parts(func: Any) -> tuple[str, str, str]:
    """Name, overload, and the route of a call that needed no plan."""
    name, _, overload = func.name().partition(".")
    return name, overload, "view" if is_view(func) else "direct"


@cache
def _device_name(index: int) -> str:
    return f"npu:{index}"


_dtype_name = cache(dtype_name)


def _flat(values: Any) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        flat.extend(value if isinstance(value, (list, tuple)) else [value])
    return flat


def _device_of(frame: Frame, args: Any, kwargs: Any, result: Any) -> Any:
    """The device an op ran on: its plan's, else that of the first device tensor it took or gave."""
    found = getattr(frame.plan, "device", None)
    if found is not None:
        return found
    for value in (*frame.tensors, *_flat(args), *kwargs.values(), *_flat([result])):
        if type(value) is Tensor:
            return value._spec.device
    return None


def _wait(device: Any) -> None:
    if device is not None:
        device.backend.synchronize()


_lock = threading.RLock()
_sinks: list[Sink] = []


def add(sink: Sink) -> None:
    """Start telling `sink` about every op of every thread."""
    with _lock:
        _sinks.append(sink)
        _install()


def remove(sink: Sink) -> None:
    """Stop telling `sink`; does nothing if it was dropped already."""
    with _lock:
        _sinks[:] = [s for s in _sinks if s is not sink]
        _install()


def _install() -> None:
    """Put a hub with the present sinks into the dispatcher, or take it out; module and byte tracking follow."""
    from .. import dispatch

    dispatch.listener = Hub(tuple(_sinks)) if _sinks else None
    where.watch_modules(bool(_sinks))
    traffic.watch(bool(_sinks), count_bytes)


@contextmanager
def listen(sink: Sink) -> Iterator[Sink]:
    """Tell `sink` about every op inside the block, of all threads. Blocks may nest; nothing is left behind."""
    add(sink)
    try:
        yield sink
    finally:
        remove(sink)
