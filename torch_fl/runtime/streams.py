"""Streams and events of a device: queues that run beside each other, ordered by events only.

Ordering is the program's business, as with CUDA. Memory is ours: each stream has free blocks of its own, and a block
that another stream has used changes hands only behind that use. While a program stays on the default stream nothing
is tracked and a launch costs one test (`Backend.streams is None`). An adapter without queues of its own runs all
streams on its one queue.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .. import engine
from .memory import FreeBlocks

if TYPE_CHECKING:
    from .device import Device

POOL = 8
"""Queues per device besides the default one; further streams share them in turn, as CUDA's share 32."""

_ALL = 1 << 62
"""A position that stands for: whatever has been launched when somebody asks."""


class Stream:
    """One stream: its queue, how much was launched on it, how far it has waited for others, and its free blocks."""

    def __init__(self, device: Device, id: int, queue: Any, free: FreeBlocks, priority: int = 0) -> None:
        self.device = device
        self.id = id
        self.queue = queue
        self.free = free
        self.priority = priority
        self.launched = 0
        self.waited: dict[Stream, int] = {}

    def synchronize(self) -> None:
        """Return when everything launched here is done."""
        self.device.backend.finish_stream(self.queue)
        self.device.check()

    def done(self) -> bool:
        """Whether everything launched here is done; does not wait."""
        event = self.device.backend.record_event(self.queue)
        return event is None or self.device.backend.event_done(event)

    def wait_stream(self, other: Stream) -> None:
        """Have later work here wait for what `other` has now."""
        self.wait_mark(Mark(other))

    def wait_mark(self, mark: Mark) -> None:
        """Have later work here wait for a mark; the host waits instead where the mark is on another chip."""
        stream = mark.stream
        if stream is self or mark.event is None or self.waited.get(stream, -1) >= mark.position:
            return
        if stream.device is self.device:
            self.device.backend.wait_event(self.queue, mark.event)
            self.waited[stream] = mark.position
        else:
            stream.device.backend.finish_event(mark.event)


class Mark:
    """A point in a stream: what had been launched on it when the mark was made. `timed` marks know when it was done."""

    def __init__(self, stream: Stream, timed: bool = False) -> None:
        backend = stream.device.backend
        self.stream = stream
        self.position = stream.launched  # before the event: what comes in between is covered, not counted
        self.event = backend.record_event(stream.queue)
        self.time = 0.0
        self._timed = threading.Event()
        if timed:
            if self.event is None or backend.event_done(self.event):
                self._note_time()
            else:
                backend.when_done(self.event, self._note_time)

    def _note_time(self) -> None:
        self.time = perf_counter()
        self._timed.set()

    def done(self) -> bool:
        """Whether the stream has got there."""
        return self.event is None or self.stream.device.backend.event_done(self.event)

    def synchronize(self) -> None:
        """Return when the stream has got there."""
        if self.event is not None:
            self.stream.device.backend.finish_event(self.event)
        self.stream.device.check()

    def when(self) -> float:
        """The time at which a timed mark was done, in seconds; waits for it."""
        self.synchronize()
        self._timed.wait()
        return self.time


class Streams:
    """The streams of one device, and which of them use memory that belongs to another."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.default = Stream(device, 0, device.backend.default_stream(), device.memory.free)
        self.all = [self.default]
        self._next = 0
        self._lock = threading.RLock()
        self._homes: dict[int, Stream] = {}
        self._uses: dict[int, dict[Stream, int]] = {}

    # -- which streams there are -------------------------------------------------------------------------------
    def new(self, priority: int = 0) -> Stream:
        """A stream besides the default one; the pool's next when there are POOL of them."""
        with self._lock:
            if len(self.all) <= POOL:
                queue = self.device.backend.make_stream(priority)
                free = self.default.free if queue is None else FreeBlocks()
                queue = self.default.queue if queue is None else queue
                self.all.append(Stream(self.device, len(self.all), queue, free, priority))
                return self.all[-1]
            self._next = self._next % POOL + 1
            return self.all[self._next]

    def at(self, id: int) -> Stream:
        """The stream of an id. Raises RuntimeError for one that was never made."""
        if not 0 <= id < len(self.all):
            raise RuntimeError(f"npu:{self.device.index} has no stream {id}")
        return self.all[id]

    def current(self) -> Stream:
        """This thread's stream."""
        return _current.streams.get(self.device.index) or self.default

    def make_current(self, stream: Stream) -> None:
        """Make a stream this thread's; from the first one that has a queue of its own on, uses are tracked."""
        if stream is self.default:
            _current.streams.pop(self.device.index, None)
            return
        if stream.queue is not self.default.queue:
            self._track()
        _current.streams[self.device.index] = stream

    def _track(self) -> None:
        backend = self.device.backend
        if backend.streams is None:
            _order_backward()
            self.device.memory.watch(streams=self)
            backend.streams = self

    # -- who uses what -----------------------------------------------------------------------------------------
    def used(self, stream: Stream, handles: Sequence[Any]) -> None:
        """A launch on `stream` uses these handles; called after the launch, so that marks are never too early."""
        stream.launched += 1
        homes, default = self._homes, self.default
        for handle in handles:
            if homes.get(id(handle), default) is not stream:
                self._uses.setdefault(id(handle), {})[stream] = stream.launched

    def record(self, stream: Stream, handle: Any) -> None:
        """torch's record_stream: `stream` uses the handle until it is freed."""
        if self._homes.get(id(handle), self.default) is not stream:
            self._uses.setdefault(id(handle), {})[stream] = _ALL

    def claim(self, stream: Stream, handle: Any, fresh: bool) -> None:
        """A block has a new owner on `stream`: later work there waits for the old owner's uses elsewhere."""
        if fresh:
            self.forget(handle)
            if stream is not self.default:
                self._homes[id(handle)] = stream
            return
        uses = self._uses.pop(id(handle), None)
        if uses:
            self._wait(stream, uses)

    def forget(self, handle: Any) -> None:
        """A block goes back to the driver, which waits for nothing: the caller has."""
        self._uses.pop(id(handle), None)
        self._homes.pop(id(handle), None)

    def for_host(self, handle: Any) -> Stream:
        """This thread's stream, made to wait for everything that uses a handle: for the host's reads and writes."""
        stream = self.current()
        uses = dict(self._uses.get(id(handle), ()))
        home = self._homes.get(id(handle), self.default)
        uses[home] = home.launched
        self._wait(stream, uses)
        return stream

    def _wait(self, stream: Stream, uses: dict[Stream, int]) -> None:
        for other, position in uses.items():
            if other is not stream and stream.waited.get(other, -1) < min(position, other.launched):
                stream.wait_stream(other)

    def join(self) -> None:
        """Have the default stream wait for all others."""
        for other in self.all[1:]:
            self._wait(self.default, {other: other.launched})


class _Current(threading.local):
    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}


_current = _Current()


# -- backward passes -----------------------------------------------------------------------------------------------
def _order_backward() -> None:
    """Run backward passes on the default streams, behind all streams and before what their caller does next.

    torch's engine would run each on the stream of its forward op, which a device guard in Python cannot tell it.
    """
    if not getattr(engine.entry(), "orders_streams", False):
        engine.wrap(_on_default_streams)


def _on_default_streams(run: engine.Run) -> engine.Run:
    @functools.wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        outer, _current.streams = _current.streams, {}
        for streams in _tracked():
            streams.join()
        try:
            return run(*args, **kwargs)
        finally:
            _current.streams = outer
            for stream in outer.values():
                stream.wait_stream(stream.device.streams.default)

    run_backward.orders_streams = True  # type: ignore[attr-defined]
    return run_backward


def _tracked() -> list[Streams]:
    from .devices import opened

    return [d.backend.streams for d in opened() if d.backend.streams is not None]
