"""`torch.npu.Stream` and `torch.npu.Event`, and which stream is current.

torch answers for streams in C++ from a device guard, and a guard written in Python knows one stream per device. So
streams and events of ours are Python subclasses that carry their own state; to C++ a stream is its id.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import names
from .which import DeviceLike, device_of

_BaseStream: Any = torch._C.Stream
_BaseEvent: Any = torch._C.Event
TYPE: int = torch._C._autograd.DeviceType.PrivateUse1.value


class Stream(_BaseStream):  # type: ignore[misc]
    """A queue of one device that runs beside its others; the arguments and methods of torch.cuda.Stream."""

    _lane: Any
    """The stream of runtime/streams.py."""
    _before: list[tuple[int, Any]]

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **ids: Any) -> Stream:
        if "stream_id" in ids:
            return cls._of(device_of(ids["device_index"]).streams.at(ids["stream_id"]))
        where = device_of(None if isinstance(device, int) and device < 0 else device)
        return cls._of(where.streams.new(priority))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass  # C++ would read the arguments again

    @classmethod
    def _of(cls, lane: Any) -> Stream:
        made = _BaseStream.__new__(cls, stream_id=lane.id, device_index=lane.device.index, device_type=TYPE)
        made._lane, made._before = lane, []
        return made  # type: ignore[no-any-return]

    @property
    def device(self) -> torch.device:
        """The device whose queue it is."""
        return names.shown(self._lane.device.index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """(0, 0): OpenCL's and C's queues have one priority."""
        return (0, 0)

    @property
    def priority(self) -> int:
        """The priority that was asked for."""
        return int(self._lane.priority)

    def synchronize(self) -> None:
        """Wait until everything launched on the stream is done."""
        self._lane.synchronize()

    def query(self) -> bool:
        """Whether everything launched on the stream is done."""
        return bool(self._lane.done())

    def record_event(self, event: Any = None) -> Event:
        """Record an event (a new one by default) and return it."""
        recorded: Event = Event() if event is None else event
        recorded.record(self)
        return recorded

    def wait_event(self, event: Any) -> None:
        """Have later work on the stream wait for an event; returns at once."""
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        """Have later work on the stream wait for what another has now; returns at once."""
        self._lane.wait_stream(lane_of(stream))

    def is_capturing(self) -> bool:
        """False: streams are not captured."""
        return False

    def __enter__(self) -> Stream:
        devices = _devices()
        self._before.append((devices.current_index(), self._lane.device.streams.current()))
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        index, lane = self._before.pop()
        lane.device.streams.make_current(lane)
        _devices().set_current_index(index)

    def __reduce__(self) -> Any:
        raise TypeError("a stream cannot be pickled: it is a queue of this process")

    def __repr__(self) -> str:
        return f"<torch.npu.Stream device=npu:{self._lane.device.index} id={self._lane.id}>"


class Event(_BaseEvent):  # type: ignore[misc]
    """A mark in a stream that others can wait for; the arguments and methods of torch.cuda.Event."""

    _mark: Any
    _timing: bool

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> Event:
        if interprocess:
            raise NotImplementedError("npu events cannot be shared between processes")
        made: Any = _BaseEvent.__new__(cls, device="npu", enable_timing=enable_timing, blocking=blocking)
        made._mark, made._timing = None, enable_timing
        return made  # type: ignore[no-any-return]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @property
    def device(self) -> torch.device:
        """The device whose stream recorded the event."""
        return torch.device(names.name()) if self._mark is None else names.shown(self._mark.stream.device.index)

    @property
    def event_id(self) -> int:
        """A number that stands for what was recorded; 0 before."""
        return 0 if self._mark is None else id(self._mark)

    def record(self, stream: Any = None) -> None:
        """Mark what the stream (default: the current one) has now. Raises RuntimeError for a stream elsewhere."""
        from ..runtime.streams import Mark

        lane = lane_of(stream)
        if self._mark is not None and self._mark.stream.device is not lane.device:
            raise RuntimeError(
                f"Event device index {self._mark.stream.device.index} does not match recording stream's device index "
                f"{lane.device.index}."
            )
        self._mark = Mark(lane, self._timing)

    def wait(self, stream: Any = None) -> None:
        """Have later work of the stream (default: the current one) wait for the event; returns at once."""
        if self._mark is not None:
            lane_of(stream).wait_mark(self._mark)

    def query(self) -> bool:
        """Whether everything the event stands for is done."""
        return self._mark is None or bool(self._mark.done())

    def synchronize(self) -> None:
        """Wait until everything the event stands for is done."""
        if self._mark is not None:
            self._mark.synchronize()

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to another, by the host's clock. Raises RuntimeError as torch.cuda does."""
        if not (self._timing and getattr(end_event, "_timing", False)):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._mark is None or end_event._mark is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return float((end_event._mark.when() - self._mark.when()) * 1e3)

    def ipc_handle(self) -> Any:
        """Raises NotImplementedError."""
        raise NotImplementedError("npu events cannot be shared between processes")

    def __reduce__(self) -> Any:
        raise TypeError("an event cannot be pickled: it belongs to a queue of this process")

    def __repr__(self) -> str:
        return f"<torch.npu.Event {'uninitialized' if self._mark is None else self.device}>"


class StreamContext:
    """What `torch.npu.stream` returns: the stream is the current one inside; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = None if stream is None else Stream._of(lane_of(stream))

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()


def _devices() -> Any:
    from ..runtime import devices

    return devices


def lane_of(stream: Any) -> Any:
    """The runtime's stream behind one of torch's (None: the current one). Raises ValueError for another device type."""
    if stream is None:
        return device_of(None).streams.current()
    if isinstance(stream, Stream):
        return stream._lane
    if getattr(stream, "device_type", None) != TYPE:
        raise ValueError(f"Expected a stream of an npu device, but got: {stream}")
    return device_of(stream.device_index).streams.at(stream.stream_id)


def stream(stream: Any) -> StreamContext:
    """Context manager that makes a stream (and its device) the current one; None changes nothing."""
    return StreamContext(stream)


def set_stream(stream: Any) -> None:
    """Make a stream, and its device, this thread's current one; None changes nothing."""
    if stream is not None:
        lane = lane_of(stream)
        lane.device.streams.make_current(lane)
        _devices().set_current_index(lane.device.index)


def current_stream(device: DeviceLike = None) -> Stream:
    """This thread's stream of a device."""
    return Stream._of(device_of(device).streams.current())


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream of everything that names none."""
    return Stream._of(device_of(device).streams.default)
