"""A stand-in for CuPy on a machine without a card, so that the adapters of backends/_cupy.py run as they are.

It has the calls they make and no others; those of arrays are in tests/cupy_double_arrays.py, those of libraries in
tests/cupy_double_solver.py. "Cards" are host memory; sources are compiled as C++ with tests/cuda_on_cpu.h, and a launch
runs block by block; work-items of a block that has barriers are fibers. It is stricter than a card where that finds
mistakes: what is put on a stream runs only when somebody waits for it, pinned memory is read then and not before, a
struct of arguments must have the kernel's size, and calls made with another card current fail. `fail` names calls that
fail, and libraries that cannot be loaded, from now on.
With CUPY_DOUBLE_SOURCES every source that is compiled is also written to that folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

HERE = Path(__file__).parent
MEMORY = 1 << 30
"""Bytes of each card."""
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
fail: set[str] = set()
calls: list[tuple[Any, ...]] = []
"""What was launched: kernel, grid, block, arguments."""
waits = [0]
"""How often somebody waited for a stream."""
compiled: list[str] = []
"""Every source that was compiled, in order."""

_lock = threading.RLock()
_count, _driver, _capability, _architecture = 1, 13000, (9, 0), ""


class CUDARuntimeError(RuntimeError):
    """An error of the runtime, with its number."""

    status = 999


class CUDADriverError(RuntimeError):
    """An error of the driver."""


class OutOfMemoryError(MemoryError):
    """The card has no more."""


class CuFFTError(RuntimeError):
    """An error of cuFFT."""


class CompileException(Exception):
    """The compiler's log."""


def _check(name: str) -> None:
    if name in fail:
        raise CUDARuntimeError(f"cudaErrorUnknown: {name}")


# -- cards -----------------------------------------------------------------------------------------------------------
_here = threading.local()


def getDevice() -> int:
    return getattr(_here, "card", 0)


class Device:
    """A card made current by `with`."""

    def __init__(self, index: int) -> None:
        self.id = index
        self._outer: list[int] = []

    @property
    def cublas_handle(self) -> int:
        _check("cublasCreate")
        assert self.id == getDevice()
        return self.id + 1

    @property
    def cusolver_handle(self) -> int:
        _check("cusolverDnCreate")
        assert self.id == getDevice()
        return self.id + 1

    def __enter__(self) -> Device:
        self._outer.append(getDevice())
        _here.card = self.id
        return self

    def __exit__(self, *error: Any) -> None:
        _here.card = self._outer.pop()


# -- streams: a queue for each card and pointer ------------------------------------------------------------------------
_queues: dict[tuple[int, int], deque[Callable[[], None]]] = {}


def _queue(pointer: int) -> deque[Callable[[], None]]:
    return _queues.setdefault((getDevice(), pointer), deque())


def _drain(queue: deque[Callable[[], None]], until: Callable[[], bool] = lambda: False) -> None:
    with _lock:
        while queue and not until():
            queue.popleft()()


class Event:
    """A mark in a queue."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.passed = False
        self.queue: deque[Callable[[], None]] | None = None

    def record(self, stream: Stream) -> None:
        self.queue = stream.queue()
        self.queue.append(lambda: setattr(self, "passed", True))

    @property
    def done(self) -> bool:
        with _lock:  # asking gives the card time for one more step
            if not self.passed and self.queue:
                self.queue.popleft()()
        return self.passed

    def synchronize(self) -> None:
        assert self.queue is not None
        _drain(self.queue, lambda: self.passed)


class Stream:
    """A queue; `null` is that of each card that needs no making."""

    null: Stream
    _ids = itertools.count(1)
    _current = threading.local()

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
    ) -> None:
        assert null or non_blocking, "the null stream would wait for it"
        self.ptr = 0 if null else next(self._ids)
        self.device_id = -1 if null else getDevice()
        self.priority = priority

    def queue(self) -> deque[Callable[[], None]]:
        if self.device_id not in (-1, getDevice()):
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle: another card is current")
        return _queue(self.ptr)

    def synchronize(self) -> None:
        _check("streamSynchronize")
        waits[0] += 1
        _drain(self.queue())

    def wait_event(self, event: Event) -> None:
        self.queue().append(event.synchronize)

    def __enter__(self) -> Stream:
        self._stack().append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack().pop()

    @classmethod
    def _stack(cls) -> list[Stream]:
        if not hasattr(cls._current, "stack"):
            cls._current.stack = [cls.null]
        stack: list[Stream] = cls._current.stack
        return stack


Stream.null = Stream(null=True)


# -- memory ------------------------------------------------------------------------------------------------------------
class MemoryPointer:
    """A place in a block of memory."""

    def __init__(self, block: Any, offset: int = 0) -> None:
        self.mem = block
        self.ptr = block.ctypes.data + offset
        self._offset = offset

    def __add__(self, nbytes: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self._offset + nbytes)


def _aligned(nbytes: int) -> Any:
    """Memory that starts where a card's does."""
    raw = np.full(nbytes + 512, 0xFF, np.uint8)
    return raw[-raw.ctypes.data % 512 :][:nbytes]


class MemoryPool:
    """Blocks of 512 bytes and more, by card; freed ones are kept, and hold nonsense."""

    def __init__(self) -> None:
        self._free: dict[int, list[Any]] = {}
        self._total: dict[int, int] = {}

    def malloc(self, nbytes: int) -> MemoryPointer:
        _check("malloc")
        room, card = -(-nbytes // 512) * 512, getDevice()
        free = self._free.setdefault(card, [])
        found = next((i for i, b in enumerate(free) if b.size == room), None)
        if found is None and self.total_bytes() + room > MEMORY:
            raise OutOfMemoryError(f"Out of memory allocating {room} bytes")
        if found is None:
            self._total[card] = self.total_bytes() + room
        block = _aligned(room) if found is None else free.pop(found)
        view = block[:]
        weakref.finalize(view, free.append, block).atexit = False
        return MemoryPointer(view)

    def total_bytes(self) -> int:
        return self._total.get(getDevice(), 0)

    def free_all_blocks(self) -> None:
        deviceSynchronize()  # as cudaFree does
        free = self._free.setdefault(getDevice(), [])
        self._total[getDevice()] = self.total_bytes() - sum(b.size for b in free)
        for block in free:
            block[:] = 0xFF
        free.clear()


class _Pinned(np.ndarray[Any, Any]):
    """Pinned memory, as a buffer."""

    @property
    def ptr(self) -> int:
        return int(self.ctypes.data)


_pinned: weakref.WeakValueDictionary[int, _Pinned] = weakref.WeakValueDictionary()
_ever_pinned: list[Any] = []


class PinnedMemoryPool:
    """A freed block holds nonsense at once, so that a copy that still needs it shows."""

    def malloc(self, nbytes: int) -> _Pinned:
        _check("hostAlloc")
        base = np.zeros(nbytes, np.uint8)
        _ever_pinned.append(base)
        block = base.view(_Pinned)
        weakref.finalize(block, base.fill, 0xFF).atexit = False
        _pinned[block.ptr] = block
        return block

    def free_all_blocks(self) -> None:
        """Nothing is kept."""


def _is_pinned(address: int) -> bool:
    return any(start <= address < start + block.nbytes for start, block in list(_pinned.items()))


def memcpyAsync(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
    _check("memcpyAsync")
    assert nbytes > 0
    late = kind != HOST_TO_DEVICE or _is_pinned(source)  # of pageable memory the driver takes a copy before it returns
    data = source if late else ctypes.string_at(source, nbytes)
    _queue(stream).append(lambda: ctypes.memmove(target, data, nbytes) and None)


def memcpyPeerAsync(target: int, card: int, source: int, other: int, nbytes: int, stream: int) -> None:
    _check("memcpyPeerAsync")
    assert card == getDevice() != other
    assert nbytes > 0
    calls.append(("memcpyPeerAsync", card, other, nbytes))
    _queue(stream).append(lambda: ctypes.memmove(target, source, nbytes) and None)


def memGetInfo() -> tuple[int, int]:
    return MEMORY // 2, MEMORY


def deviceSynchronize() -> None:
    _check("deviceSynchronize")
    for (card, _), queue in list(_queues.items()):
        if card == getDevice():
            _drain(queue)


def getDeviceCount() -> int:
    if _driver < runtimeGetVersion():
        raise _error(35, "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version")
    if not _count:
        raise _error(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
    return _count


def _error(status: int, text: str) -> CUDARuntimeError:
    error = CUDARuntimeError(text)
    error.status = status
    return error


def driverGetVersion() -> int:
    return _driver


def runtimeGetVersion() -> int:
    return 12090


def getDeviceProperties(index: int) -> dict[str, Any]:
    return {
        "name": b"a card in memory", "totalGlobalMem": MEMORY, "multiProcessorCount": 4, "sharedMemPerBlock": 49152,
        "integrated": 0, "major": _capability[0], "minor": _capability[1], "pciDomainID": 0,
        "pciBusID": 3 + index, "pciDeviceID": 0,
        **({"gcnArchName": f"{_architecture}:sramecc+:xnack-".encode()} if runtime.is_hip else {}),
    }  # fmt: skip


# -- kernels -----------------------------------------------------------------------------------------------------------
_ENTRY = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\((\w+), 2\) )?(\w+)\(([^)]*)\)')
_FLAGS = ("-O1", "-march=native", "-shared", "-fPIC", "-w", "-x", "c++")


def _loop(group: str | None, name: str, params: list[str]) -> str:
    """What launches a kernel: every work-item of every block, then the next one; of a group, all of a block at once."""
    types = [p.rpartition("__restrict__")[0] for p in params[:-1]]
    scalars = f"*(const {name}_args*)pointers[{len(types)}]"
    arguments = ", ".join([*(f"({t})pointers[{i}]" for i, t in enumerate(types)), scalars])
    items = f"for (unsigned t = 0; t < bx; ++t) {name}_item(pointers, 0, t);"
    return f"""
extern "C" const long {name}_shape[3] = {{{len(types)}, sizeof({name}_args), {group or 0}}};
static void {name}_item(void** pointers, const long*, int t) {{
  threadIdx = {{(unsigned)t, 0, 0}};
  {name}({arguments});
}}
extern "C" void {name}_run(void** pointers, unsigned gx, unsigned gy, unsigned bx) {{
  gridDim = {{gx, gy, 1}}; blockDim = {{bx, 1, 1}};
  for (unsigned y = 0; y < gy; ++y) for (unsigned x = 0; x < gx; ++x) {{
    blockIdx = {{x, y, 0}};
    {f"group_run(bx, {name}_item, pointers, 0);" if group else items}
  }}
}}
"""


def compile_using_nvrtc(
    source: str, options: tuple[str, ...] = (), arch: str | None = None, filename: str = "kern.cu"
) -> tuple[bytes, None]:
    compiled.append(source)
    if folder_of_sources := os.environ.get("CUPY_DOUBLE_SOURCES"):
        Path(folder_of_sources, f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.cu").write_text(source)
    loops = "".join(_loop(m.group(1), m.group(2), m.group(3).split(",")) for m in _ENTRY.finditer(source))
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernels.so"
        text = "".join((HERE / f"{h}_on_cpu.h").read_text() for h in ("cuda", "matrix")) + source + loops
        fibers = ["-x", "c", str(HERE / "groups_on_cpu.c")] if "__launch_bounds__" in source else []
        command = ["g++", *_FLAGS, "-", *fibers, "-o", str(library)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileException(done.stderr)
        return library.read_bytes(), None


class Module:
    """A loaded binary."""

    def load(self, binary: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(binary)
            file.flush()
            self.library = ctypes.CDLL(file.name)

    def get_function(self, name: str) -> Function:
        return Function(self, name)


class Function:
    """A kernel: called with blocks, the size of a block, and pointers with the struct of scalars behind them."""

    def __init__(self, module: Module, name: str) -> None:
        self.name = name
        self.run = getattr(module.library, f"{name}_run")
        self.run.restype = None
        self.pointers, self.nbytes, self.group = (ctypes.c_long * 3).in_dll(module.library, f"{name}_shape")
        self.card = getDevice()

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: Any, shared_mem: int = 0, *, stream: Stream
    ) -> None:
        _check("launchKernel")
        if self.card != getDevice():
            raise CUDADriverError("CUDA_ERROR_INVALID_HANDLE: another card is current")
        *pointers, scalars = args
        assert all(type(p) is int for p in pointers)
        assert isinstance(scalars, np.ndarray)
        assert scalars.size == 1, "only arrays of size one are passed by value"
        assert (len(pointers), scalars.nbytes) == (self.pointers, self.nbytes)
        assert 0 < grid[0] < 1 << 31
        assert grid[1] < 1 << 16
        assert block[0] == (self.group or block[0]) <= 1024
        calls.append((self.name, grid, block, pointers))
        struct = ctypes.create_string_buffer(scalars.tobytes())
        found = (ctypes.c_void_p * (len(pointers) + 1))(*pointers, ctypes.addressof(struct))
        sizes = [ctypes.c_uint(n) for n in (grid[0], grid[1], block[0])]
        stream.queue().append(lambda struct=struct: self.run(found, *sizes))


# -- products of halves -----------------------------------------------------------------------------------------------
def _halves_at(pointer: int, kind: int, count: int, step: int, shape: tuple[int, int], turned: int, jump: int) -> Any:
    """A batch of matrices of columns, as bits."""
    itemsize, (rows, columns) = 2, shape[::-1] if turned else shape
    reach = ((count - 1) * jump + (columns - 1) * step + rows) * itemsize
    assert step >= rows
    bits = np.ndarray(
        (count, rows, columns), np.uint16, (ctypes.c_char * reach).from_address(pointer), 0,
        (jump * itemsize, itemsize, step * itemsize),
    )  # fmt: skip
    return bits.swapaxes(1, 2) if turned else bits


def _widened(bits: Any, kind: int) -> Any:
    return bits.view(np.float16).astype(np.float32) if kind == 2 else (bits.astype(np.uint32) << 16).view(np.float32)


def _narrowed(values: Any, kind: int) -> Any:
    if kind == 2:
        return values.astype(np.float16).view(np.uint16)
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    nan = np.isnan(values)
    return np.where(nan, 0x7FC0, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def gemmStridedBatchedEx(
    handle: int, turned_a: int, turned_b: int, m: int, n: int, k: int, alpha: int, a: int, kind_a: int, step_a: int,
    jump_a: int, b: int, kind_b: int, step_b: int, jump_b: int, beta: int, c: int, kind_c: int, step_c: int,
    jump_c: int, count: int, compute: int, algo: int,
) -> None:  # fmt: skip
    """alpha * op(a) @ op(b) + beta * c of halves, columns first, added up in float32."""
    assert handle == getDevice() + 1
    assert (compute, algo) == (68, -1)
    calls.append(("gemm", m, n, k, count))
    by, of = (ctypes.c_float.from_address(p).value for p in (alpha, beta))

    def run() -> None:
        left = _widened(_halves_at(a, kind_a, count, step_a, (m, k), turned_a, jump_a).copy(), kind_a)
        right = _widened(_halves_at(b, kind_b, count, step_b, (k, n), turned_b, jump_b).copy(), kind_b)
        target = _halves_at(c, kind_c, count, step_c, (m, n), 0, jump_c)
        added = of * _widened(target.copy(), kind_c) if of else 0
        target[...] = _narrowed(by * np.matmul(left, right) + added, kind_c)

    Stream._stack()[-1].queue().append(run)


class _Libraries(ModuleType):
    """Bindings of libraries: one that `fail` names cannot be loaded, as if it were not installed."""

    def __getattr__(self, name: str) -> Any:
        if name in fail:
            raise ImportError(f"lib{name}.so: cannot open shared object file")
        found = vars(self).get(f"the_{name}")
        if found is None:
            raise AttributeError(name)
        return found


def install(
    cards: int = 1, hip: bool = False, driver: int = 13000, capability: tuple[int, int] = (9, 0), architecture: str = ""
) -> None:
    """Make `import cupy` give this; `architecture` is what HIP calls its cards'."""
    global _count, _driver, _capability, _architecture
    _count, _driver, _capability, _architecture, runtime.is_hip = cards, driver, capability, architecture, hip
    sys.modules["cupy"], sys.modules["cupy.cuda"] = cupy, cuda
    sys.modules["cupy_backends.cuda.libs"] = libs


runtime = SimpleNamespace(
    is_hip=False, CUDARuntimeError=CUDARuntimeError, getDevice=getDevice, getDeviceCount=getDeviceCount,
    getDeviceProperties=getDeviceProperties, memcpyAsync=memcpyAsync,
    memcpyPeerAsync=memcpyPeerAsync, memGetInfo=memGetInfo,
    deviceSynchronize=deviceSynchronize, runtimeGetVersion=runtimeGetVersion, driverGetVersion=driverGetVersion,
    memcpyHostToDevice=HOST_TO_DEVICE, memcpyDeviceToHost=DEVICE_TO_HOST, memcpyDeviceToDevice=DEVICE_TO_DEVICE,
)  # fmt: skip
cuda = _Libraries("cupy.cuda")
vars(cuda).update(
    runtime=runtime, driver=SimpleNamespace(CUDADriverError=CUDADriverError), Device=Device, Stream=Stream, Event=Event,
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError), MemoryPool=MemoryPool, PinnedMemoryPool=PinnedMemoryPool,
    compiler=SimpleNamespace(compile_using_nvrtc=compile_using_nvrtc), function=SimpleNamespace(Module=Module),
    the_cufft=SimpleNamespace(CuFFTError=CuFFTError), the_thrust=SimpleNamespace(available=True),
)  # fmt: skip
sys.modules.setdefault("cupy_double", sys.modules[__name__])
import cupy_double_arrays as _arrays  # noqa: E402 - they need what stands above
import cupy_double_solver as _solver  # noqa: E402

libs = _Libraries("cupy_backends.cuda.libs")
vars(libs).update(
    the_cusolver=SimpleNamespace(**_solver.cusolver),
    the_nvrtc=SimpleNamespace(getSupportedArchs=lambda: (75, 80, 90)),
    the_cublas=SimpleNamespace(**_solver.cublas, gemmStridedBatchedEx=gemmStridedBatchedEx),
)
cupy = ModuleType("cupy")
_FUNCTIONS = ("ndarray", "matmul", "argsort", "take_along_axis", "cumsum", "cumprod", "fft")
vars(cupy).update(__version__="a double", cuda=cuda, **{name: getattr(_arrays, name) for name in _FUNCTIONS})
