"""What a chip must give: the abstract class every backend adapter implements, in one file of its own.

A backend is a class; an instance is one opened chip. Required are `discover`, `allocate`, `copy_h2d` and `copy_d2h`;
a chip with a C compiler adds `compile` and `launch` and gets every portable kernel, a chip without one registers op
functions (`torch_fl.registry.kernel(op, backend=name)` with `Builder.function`). Everything else has a default.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch

    from ..builder import Builder
    from ..refs import Ref
    from .streams import Streams

Handle = Any
"""Device memory as the adapter's driver knows it (a buffer object, a pointer, an array). Freed when Python frees it."""

Launcher = Callable[[Sequence[Handle], Sequence[int], Sequence[Any]], None]
"""A bound kernel: called with the handles and offsets of all slots of a plan, and with its launch-time values."""


@dataclass(frozen=True)
class Properties:
    """One chip as its driver describes it. Sizes in bytes; `kind` is "gpu", "cpu" or "accelerator"."""

    name: str
    vendor: str = ""
    driver: str = ""
    kind: str = "gpu"
    total_memory: int = 0
    compute_units: int = 1
    local_memory: int = 0
    fp64: bool = False
    fp16: bool = False
    bf16: bool = False
    int64_atomics: bool = False
    host_memory: bool = False
    """The chip computes in the host's memory (an integrated GPU, a driver for the CPU)."""
    fingerprint: str = ""
    """Equal for two views of the same chip (PCI address where the driver tells, else vendor and name)."""
    capability: tuple[int, int] = (0, 0)
    """Version of the instruction set as the vendor counts it; (0, 0) where the driver does not tell."""
    architecture: str = ""
    """Instruction set as the chip's compiler names it, without features; "" where the driver does not tell."""
    pci_domain_id: int = -1
    """-1, here and in the other parts of the PCI address: the chip has none, or the driver does not tell."""
    pci_bus_id: int = -1
    pci_device_id: int = -1
    handle: Any = field(default=None, compare=False, repr=False)

    # The names that torch.cuda.get_device_properties has.
    @property
    def multi_processor_count(self) -> int:
        """`compute_units`."""
        return self.compute_units

    @property
    def major(self) -> int:
        """First number of `capability`."""
        return self.capability[0]

    @property
    def minor(self) -> int:
        """Second number of `capability`."""
        return self.capability[1]

    @property
    def is_integrated(self) -> bool:
        """`host_memory`."""
        return self.host_memory


@dataclass(frozen=True)
class Matrix:
    """Instructions by which the work-items of a wave multiply small matrices, for sums in float32.

    `text`: C in the chip's dialect that says how many work-items make a wave, what each holds of the operands and of
    the result, and multiplies one unit (native/matrix_wmma.h is one); it stands before native/tiles.h. `dtypes`: those
    of which both operands may be, where results are as exact as without the instructions.
    """

    text: str
    dtypes: tuple[torch.dtype, ...]
    depth: int = 32
    """Steps of the depth that a group takes at once: 16 where registers are few."""


@dataclass(frozen=True)
class Discovery:
    """Result of looking for chips: those found, or why there are none."""

    found: tuple[Properties, ...] = ()
    absent: str = ""


@dataclass(frozen=True)
class BufferArg:
    """A buffer parameter: `slot` of the plan, a fixed extra offset, and the element size in bytes."""

    slot: int
    offset: int
    itemsize: int


@dataclass(frozen=True)
class ValueArg:
    """A scalar or struct that is known only at launch: `get(values)` gives its bytes, `nbytes` at most, from the plan's
    launch-time values."""

    get: Callable[[Sequence[Any]], bytes]
    steady: bool = False
    """The bytes depend on the launch-time values alone."""
    nbytes: int = 8


@dataclass(frozen=True)
class AddressArg:
    """A struct of `nbytes` with the addresses of buffers: `get(handles, offsets)` gives it from those of all slots.

    Only where `Backend.addresses` is true. `slots`: the buffers whose addresses these are.
    """

    slots: tuple[int, ...]
    nbytes: int
    get: Callable[[Sequence[Handle], Sequence[int]], bytes]


KernelArg = BufferArg | ValueArg | AddressArg | bytes
"""Parameters in kernel order; `bytes` is a scalar or struct fixed at planning time."""


def host_bytes(address: int, nbytes: int) -> memoryview:
    """Writable view of host memory; for adapters whose chip computes there. It does not keep the memory alive."""
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")


class Backend(ABC):
    """One adapter; an instance is one opened chip. Methods may raise the exceptions named in `driver_errors`."""

    name: ClassVar[str]
    """Word by which users choose it, and `backend=` of its own kernels."""
    family: ClassVar[str] = ""
    """Kernels registered for a family serve all its adapters (those that share a vendor library)."""
    dialect: ClassVar[str | None] = None
    """C dialect the chip compiles ("opencl", "c"), or None: no portable kernels."""
    groups: bool = False
    """Whether `bind` takes groups of up to 256 work-items with 32 KiB of local memory (kernels/source.py)."""
    matrix: Matrix | None = None
    """The chip's instructions for products of matrices; None: it has none, or `groups` is false."""
    addresses: bool = False
    """Whether handles have an `address` that kernels may use as a pointer, so that one launch takes any number."""
    preference: ClassVar[int] = 0
    """Higher wins when two adapters see the same chip, and when npu:0 is chosen (cards come before the CPU)."""
    driver_errors: tuple[type[Exception], ...] = ()
    """Exceptions of the driver: users see them as DeviceError, with the call that failed."""
    memory_errors: tuple[type[Exception], ...] = ()
    """Those of them that mean the chip is out of memory: users see OutOfMemoryError."""

    streams: Streams | None = None
    """Set by the core once a stream besides the default one is in use, and only where `make_stream` makes any.

    A launch then goes to the queue of `streams.current()` and is followed by `streams.used(stream, handles)`; host
    copies go to the queue of `streams.for_host(handle)`.
    """

    def __init__(self, properties: Properties) -> None:
        self.properties = properties
        self.streams = None  # on the instance, where looking it up is fastest

    @classmethod
    @abstractmethod
    def discover(cls) -> Discovery:
        """Look for chips without opening them. Never raises: says in `absent` why there are none."""

    @classmethod
    def on_paper(cls, architecture: str) -> type[Backend] | None:
        """An adapter of one chip of an architecture, which the machine need not have; None: there is no such thing.

        Launches on that chip do nothing, its `sources` are those it was asked to compile, and `build(source)` makes one
        for this adapter to find: False where that is there, Error where it cannot be made.
        """
        return None

    @abstractmethod
    def allocate(self, nbytes: int) -> Handle:
        """`nbytes` (at least 1) of device memory, freed when the handle is. Raises MemoryError when there is none."""

    @abstractmethod
    def copy_h2d(self, handle: Handle, byte_offset: int, source: memoryview) -> None:
        """Copy host bytes into the buffer, after everything launched before; the source may be reused on return.

        Host memory comes as a one-dimensional memoryview of format "B", here and in `copy_d2h`.
        """

    @abstractmethod
    def copy_d2h(self, target: memoryview, handle: Handle, byte_offset: int) -> None:
        """Copy `len(target)` bytes of the buffer to the host, after everything launched before; done on return."""

    def copy_d2d(self, target: Handle, target_offset: int, source: Handle, source_offset: int, nbytes: int) -> None:
        """Copy between two buffers of this chip, which do not overlap. Default: through the host."""
        data = bytearray(nbytes)
        self.copy_d2h(memoryview(data), source, source_offset)
        self.copy_h2d(target, target_offset, memoryview(data))

    def pin(self, nbytes: int) -> Any | None:
        """Host memory (a writable buffer) that `send` and `fetch` copy without the host; None: there is none."""
        return None

    def send(self, handle: Handle, byte_offset: int, source: memoryview, keep: Any) -> None:
        """copy_h2d from pinned memory, which may return before the source is read; `keep` is held until then."""
        self.copy_h2d(handle, byte_offset, source)

    def fetch(self, target: memoryview, handle: Handle, byte_offset: int, keep: Any) -> None:
        """copy_d2h to pinned memory, which may return before the target is written; `keep` is held until then."""
        self.copy_d2h(target, handle, byte_offset)

    def copy_peer(
        self, target: Handle, target_offset: int, other: Backend, source: Handle, source_offset: int, nbytes: int
    ) -> bool:
        """Copy from another chip without the host, after what was launched on both; False: these two cannot."""
        return False

    def synchronize(self) -> None:
        """Return when everything launched is done. Default: launches are synchronous, nothing to wait for."""

    # -- streams: without these all streams are the one queue, which is right and serial ------------------------------
    def make_stream(self, priority: int) -> Any:
        """A queue that runs beside the others; None: this adapter has one queue only. `priority` as in torch."""
        return None

    def default_stream(self) -> Any:
        """The queue of everything that names no stream."""
        return None

    def record_event(self, stream: Any) -> Any:
        """An event that is done when everything launched on `stream` so far is; None: it is done. Default: wait."""
        self.synchronize()
        return None

    def wait_event(self, stream: Any, event: Any) -> None:
        """Have what is launched on `stream` from now on wait for an event of this chip; returns at once."""

    def event_done(self, event: Any) -> bool:
        """Whether an event is done; does not wait."""
        return True

    def finish_event(self, event: Any) -> None:
        """Return when an event is done."""

    def when_done(self, event: Any, callback: Callable[[], None]) -> None:
        """Call `callback` once when an event is done, from any thread; for the time of events."""
        callback()

    def finish_stream(self, stream: Any) -> None:
        """Return when everything launched on `stream` is done."""
        self.synchronize()

    def utilization(self) -> int | None:
        """Percent of the recent past in which the chip was busy; None where the driver does not tell."""
        return None

    def compile(self, source: str) -> Any:
        """Build a rendered source; returns what `launch` and `bind` take. Raises with the compiler's log."""
        raise NotImplementedError(f"{self.name} has no compiler")

    def launch(self, program: Any, name: str, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        """Run kernel `name` on `grid` work-items; args are bytes, or (handle, offset in elements, itemsize)."""
        raise NotImplementedError(f"{self.name} has no compiler")

    def bind(
        self, program: Any, name: str, grid: tuple[int, int, int], args: Sequence[KernelArg], local: int = 0
    ) -> Launcher:
        """A reusable launch with the fixed arguments set. Override where the driver can keep arguments.

        `local`: the kernel has groups of so many work-items, and the grid counts groups; never where `groups` is false.
        """
        assert not local, f"{self.name} binds no groups"

        def run(handles: Sequence[Handle], offsets: Sequence[int], values: Sequence[Any]) -> None:
            full: list[Any] = []
            for a in args:
                if isinstance(a, BufferArg):
                    full.append((handles[a.slot], offsets[a.slot] + a.offset, a.itemsize))
                else:
                    full.append(a.get(values) if isinstance(a, ValueArg) else a)
            self.launch(program, name, grid, full)

        return run

    def product(self, b: Builder, out: Ref, a: Ref, x: Ref, c: Ref | None, alpha: Any, beta: Any) -> bool:
        """Record out = alpha * a @ x + beta * c by the vendor's library, as `emit_gemm` is asked to; False: it cannot.

        [..., m, n], [..., m, k] and [..., k, n] with up to two batch dimensions; c broadcasts to out.
        """
        return False

    def routine(self, b: Builder, name: str, *arguments: Any) -> bool:
        """Record a routine of the vendor's linear algebra, as LAPACK names it without the dtype; False: it cannot.

        Arguments are those of the functions of torch_fl/ops/linalg*.py that ask: matrices as [batch, rows, columns],
        dense by columns, which change as LAPACK changes them; vectors and infos dense.
        """
        return False

    def layer(self, b: Builder, name: str, args: tuple[Any, ...], portable: Callable[..., None]) -> bool:
        """Record a layer of a network by the vendor's library; False: it cannot, or our kernels are as good.

        `name` and `args` are those of the function that asks: "convolution", "convolution input gradient" and
        "convolution weight gradient" of torch_fl/kernels/conv.py, "attention" and "attention gradients" of
        torch_fl/kernels/attention.py. `portable(b, *args)` records the same with our kernels, at once or in an `Aside`.
        """
        return False

    def notes(self) -> list[str]:
        """For whoever lists the devices: parts of the vendor's software that are used or not, and why."""
        return []

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes as the driver reports them, without what the pool holds; (0, 0) if it cannot tell."""
        return 0, self.properties.total_memory

    def reserved_bytes(self) -> int | None:
        """Bytes the adapter's own pool took from the driver; None: it has no pool, the core keeps free blocks."""
        return None

    def empty_cache(self) -> None:
        """Give cached memory back to the driver."""

    def close(self) -> None:
        """Called once at interpreter exit, with work possibly in flight."""
