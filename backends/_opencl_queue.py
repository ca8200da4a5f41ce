"""One in-order OpenCL command queue, and the launches on their way to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from torch_fl.runtime.adapter import Handle

Launch = tuple[Any, Sequence[Handle], Sequence[int], Sequence[bytes]]


class Queue:
    """Launches reach the driver in order; a CPU driver gets small ones in bursts.

    Its worker sleeps when the queue runs dry, and waking it costs more than a small kernel. Whoever reads, writes or
    waits calls `flush` first, so values and order are those of launching at once. Waiting launches hold their buffers.
    """

    def __init__(self, cl: Any, context: Any, device: Any, burst: int, small: int, lock: threading.RLock) -> None:
        self.cl = cl
        self.driver = cl.CommandQueue(context, device)
        self.burst = burst
        self.small = small
        self.last: Any = None
        """The driver's event of the last command: the queue is in order, so it stands for all before it. None: done."""
        self.heavy = False
        """Whether anything in flight may take long."""
        self.waiting: list[Launch] = []
        self._done = cl.command_execution_status.COMPLETE
        self.lock = lock
        # All queues of a device share the lock: they share its kernels, whose arguments are set at each launch.

    def add(self, small: bool, launch: Launch, light: bool = False) -> None:
        """Launch now or with the next burst: a function, and the handles, offsets and values to call it with."""
        with self.lock:
            self.waiting.append(launch)
            self.heavy = self.heavy or not light
            if not small or len(self.waiting) >= self.burst:
                self.flush()

    def flush(self) -> None:
        """Hand everything that waits to the driver. A launch that fails is raised; those after it stay."""
        with self.lock:
            waiting, done, driver, last = self.waiting, 0, self.driver, self.last
            try:
                for submit, handles, offsets, values in waiting:
                    done += 1
                    last = submit(driver, handles, offsets, values)
            finally:
                self.last = last
                del waiting[:done]

    def idle(self) -> bool:
        """Whether everything launched here is done; under the lock."""
        if self.last is not None:
            if self.last.command_execution_status > self._done:
                return False
            self.last = None
        self.heavy = self.heavy and bool(self.waiting)
        return not self.waiting

    def clear(self) -> bool:
        """Whether everything launched here is done; waits where nothing of it takes long. Under the lock."""
        if self.heavy and not self.idle():
            return False
        self.finish()
        return True

    def copy(self, target: Any, source: Any, **options: Any) -> None:
        """A copy on the queue, after everything launched before."""
        with self.lock:
            self.flush()
            self.heavy = True
            self.last = self.cl.enqueue_copy(self.driver, target, source, **options)

    def finish(self) -> None:
        """Return when everything launched here is done."""
        self.flush()
        last = self.last
        if last is not None:
            self.driver.finish()
            with self.lock:
                if self.last is last:
                    self.last = None
                    self.heavy = self.heavy and bool(self.waiting)

    def record(self) -> Any:
        """The event of everything launched so far; None: nothing has been."""
        self.flush()
        self.driver.flush()
        return self.last

    def wait(self, event: Any) -> None:
        """Have everything launched here from now on wait for an event of any queue of the device."""
        with self.lock:
            self.flush()
            self.heavy = True
            self.last = self.cl.enqueue_barrier(self.driver, wait_for=[event])
