"""Short launches on a CPU: PoCL's `basic` device runs a kernel in the thread that launches it.

Its `pthread` device wakes workers, which compete for the cores with the thread that launches: 10 to 30 us for a kernel
that takes one. So a program whose launches are small gets a build for `basic` too, once it has been used a few times,
and what takes no longer than waking somebody runs there whenever the queue has nothing in flight. A launch that turns
out to take longer goes to the workers from then on. Both devices are one chip here, in one context; their memory is
the host's.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

from torch_fl.runtime.adapter import Handle

from ._opencl_launch import Submit
from ._opencl_queue import Queue

WARM = 8
"""Launches of a program that could have run here before it is built for this thread, which takes 0.15 seconds."""

MAX_ITEMS = 16
MAX_BYTES = 1 << 19
"""Work-items and bytes of all buffers beyond which a launch is not even tried in this thread."""

MAX_SECONDS = 20e-6
"""What a launch may take in this thread."""

_TRIALS, _PATIENCE = 16, 3
"""Launches that are timed, and those in a row that may take longer: any may be interrupted by another process."""


@contextlib.contextmanager
def offered(platform: Any) -> Iterator[None]:
    """Have PoCL list `basic` beside `pthread` in what is asked inside, unless the user has chosen its devices.

    Only versions that have these names; PoCL reads the variable once, at the first question for devices.
    """
    version = re.search(r"PoCL [123]\.", platform.version)
    if version is None or "POCL_DEVICES" in os.environ:
        yield
        return
    os.environ["POCL_DEVICES"] = "pthread basic"
    try:
        yield
    finally:
        os.environ.pop("POCL_DEVICES", None)


def is_inline(device: Any) -> bool:
    """Whether this is PoCL's device that computes in the calling thread."""
    return bool(device.name.startswith("basic-"))


def inline_device(device: Any) -> Any:
    """The device that computes in the calling thread beside `device`; None where there is none."""
    found = [d for d in device.platform.get_devices() if is_inline(d)]
    return found[0] if found and not is_inline(device) else None


class Program:
    """A program of the chip, and the same for this thread once that pays: `build(devices)` gives either."""

    def __init__(self, build: Callable[[list[Any]], Any], device: Any) -> None:
        self.build = build
        self.main = build([device])
        self.inline: Any = None
        self.launches = 0

    def warm(self) -> bool:
        """Whether it is time for a build for this thread: counts the launches that could have run there."""
        self.launches += 1
        return self.launches > WARM


class Thread:
    """The `basic` device beside a `pthread` one: a queue whose launches are done when the call returns."""

    def __init__(self, cl: Any, context: Any, device: Any) -> None:
        self.device = device
        self.driver = cl.CommandQueue(context, device)

    def built(self, program: Program) -> Any:
        """The program for this device, built at first use."""
        program.inline = program.inline or program.build([self.device])
        return program.inline


class Inline:
    """A bound kernel in this thread, as long as that is the faster place.

    `run` does it unless `queue` has something in flight, which must come first, and says whether it has; it is None
    where this is the wrong place.
    """

    def __init__(self, thread: Thread, queue: Queue, program: Program, bind: Callable[[Any], Submit]) -> None:
        self.run: Callable[..., bool] | None = self._try
        self._thread = thread
        self._queue = queue
        self._program = program
        self._bind = bind
        self.when_trusted: Callable[[Thread, Program], None] | None = None
        """Called once when the launch has proved short."""
        self._submit: Submit | None = None
        self._tried = self._slow = 0

    def _try(self, found: Sequence[Handle], wanted: Sequence[int], packed: Sequence[bytes]) -> bool:
        with self._queue.lock:
            if self._queue.heavy and not self._queue.idle():
                return False
            submit = self._prepared(found)
            if submit is None:
                return False
            self._queue.finish()
            start = perf_counter()
            submit(self._thread.driver, found, wanted, packed)
            self._judge(perf_counter() - start)
        return True

    def _prepared(self, found: Sequence[Handle]) -> Submit | None:
        if self._submit is None and sum(handle.bytes.nbytes for handle in found) > MAX_BYTES:
            self.run = None
        elif self._submit is None and self._program.warm():
            self._submit = self._bind(self._thread.built(self._program))
        return self._submit

    def _judge(self, seconds: float) -> None:
        self._tried += 1
        self._slow = self._slow + 1 if seconds > MAX_SECONDS else 0
        if self._slow == _PATIENCE:
            self.run = None
        elif self._tried >= _TRIALS and not self._slow:
            self.run = self._trusted()
            trusted, self.when_trusted = self.when_trusted, None  # another thread may be on its way through `_try`
            if trusted is not None:
                trusted(self._thread, self._program)

    def _trusted(self) -> Callable[..., bool]:
        """`run` of a launch that has proved short: the hot path of small ops."""
        queue, lock, driver, submit = self._queue, self._queue.lock, self._thread.driver, self._submit
        assert submit is not None

        def run(found: Sequence[Handle], wanted: Sequence[int], packed: Sequence[bytes]) -> bool:
            with lock:
                if (queue.last is not None or queue.waiting) and not queue.clear():
                    return False
                submit(driver, found, wanted, packed)
            return True

        return run
