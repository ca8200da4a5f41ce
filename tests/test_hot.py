"""The compiled hit path: the same as the Python that it stands in for, and no way to crash the process from Python."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from subprocesses import run_python

from torch_fl import hot
from torch_fl.dispatch import op_of
from torch_fl.plan import Plan
from torch_fl.runtime import buffers

HERE = Path(__file__).parent
compiled: Any = hot.compiled
pytestmark = pytest.mark.skipif(compiled is None, reason="the extension was not built, or TORCH_FL_PURE is set")


class Handle:
    """Memory with an address."""

    __slots__ = ("__weakref__", "address", "data")

    def __init__(self, *numbers: float) -> None:
        self.data = (ctypes.c_double * len(numbers))(*numbers)
        self.address = ctypes.addressof(self.data)


# -- buffers ------------------------------------------------------------------------------------------------------
def test_a_buffer_is_counted_and_goes_back_to_its_shelf() -> None:
    counters, shelf = compiled.Counters(), []
    handle = Handle(1)
    one = compiled.Buffer("chip", handle, 8, shelf, counters)
    two = compiled.Buffer("chip", Handle(2), 100, shelf, counters)
    assert (counters.made, counters.made_bytes, counters.active, counters.peak, counters.freed) == (2, 108, 108, 108, 0)
    assert (one.device, one.handle, one.nbytes) == ("chip", handle, 8)
    assert one in gc.get_objects()
    gone = weakref.ref(one)
    del one
    assert gone() is None
    assert shelf == [handle]
    assert (counters.active, counters.peak, counters.freed) == (100, 108, 1)
    del two
    assert counters.active == 0


def test_a_handle_survives_the_collection_of_a_cycle() -> None:
    """The collector clears what it finds in garbage; a handle that goes back to its shelf must keep its memory."""

    class Holder:
        pass

    counters, shelf = compiled.Counters(), []
    holder: Any = Holder()
    holder.me, holder.buffer = holder, compiled.Buffer("chip", Handle(7), 8, shelf, counters)
    del holder
    gc.collect()
    assert shelf[0].data[0] == 7
    assert shelf[0].address


def test_allocation_takes_from_the_shelf_and_asks_python_while_watched() -> None:
    counters, shelf = compiled.Counters(), [Handle(1), Handle(2)]
    asked: list[int] = []

    def slow(nbytes: int) -> Any:
        asked.append(nbytes)
        raise MemoryError("none")

    allocate = compiled.Allocator("chip", counters, {64: shelf}, slow)
    last = shelf[-1]
    made = allocate(64)
    assert made.handle is last
    assert len(shelf) == 1
    for nbytes in (63, 64):
        allocate.watched = nbytes == 64
        with pytest.raises(MemoryError):
            allocate(nbytes)
    assert asked == [63, 64]


def test_python_and_c_have_the_same_names() -> None:
    source = (HERE.parent / "torch_fl/runtime/buffers.py").read_text()
    scope: dict[str, Any] = {"__name__": "torch_fl.runtime.pure"}
    exec(source[: source.index("if compiled is not None")].replace("from ..hot import compiled", ""), scope)
    for name in ("Counters", "Buffer", "Allocator"):
        public = {n for n in vars(scope[name]) if not n.startswith("_")}
        assert public - {"by_request", "counters", "device", "slow"} <= set(dir(getattr(compiled, name)))
    assert buffers.Buffer is compiled.Buffer


# -- launches -----------------------------------------------------------------------------------------------------
KERNEL = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_long, ctypes.c_long, ctypes.c_long)


def _scaled(arguments: Any, n0: int, n1: int, n2: int) -> None:
    """out[0] = x[0] * factor + addend."""
    out, x = (ctypes.cast(arguments[i], ctypes.POINTER(ctypes.POINTER(ctypes.c_double)))[0] for i in (0, 1))
    factor, addend = (ctypes.cast(arguments[i], ctypes.POINTER(ctypes.c_double))[0] for i in (2, 3))
    out[0] = x[0] * factor + addend


_kept = KERNEL(_scaled)
ADDRESS = ctypes.cast(_kept, ctypes.c_void_p).value


def _bytes(number: float) -> bytes:
    return bytes(ctypes.c_double(number))


def _call(get: Any, steady: bool) -> Any:
    arguments = [(1, 0, 8), (0, 1, 8), (get, steady), _bytes(0.5)]
    return compiled.Call(ADDRESS, (1, 1, 1), arguments, compiled.Lock(), None)


def test_a_launch_passes_buffers_offsets_and_numbers() -> None:
    x, out = Handle(1, 2, 3), Handle(0, 0)
    _call(lambda values: _bytes(values[0]), True)([x, out], [1, 1], [10.0])
    assert list(out.data) == [0, 30.5]


@pytest.mark.parametrize("steady", [False, True])
def test_only_steady_numbers_are_kept(steady: bool) -> None:
    asked: list[Any] = []

    def get(values: list[Any]) -> bytes:
        asked.append(values[0])
        return _bytes(len(asked))

    call, ten, x, out = _call(get, steady), 10.0, Handle(0, 1), Handle(0)
    for value in (ten, ten, float("10.0")):
        call([x, out], [0, 0], [value])
    assert len(asked) == (2 if steady else 3)
    assert out.data[0] == len(asked) + 0.5


def test_wrong_launches_are_exceptions() -> None:
    call = _call(lambda values: b"x" * 17, False)
    with pytest.raises(ValueError, match="16 bytes"):
        call([Handle(1, 2), Handle(0)], [0, 0], [1.0])
    with pytest.raises(IndexError):
        call([Handle(1)], [0], [])
    with pytest.raises(AttributeError):
        call([object(), object()], [0, 0], [])
    with pytest.raises(TypeError):
        call((), ())
    with pytest.raises(ValueError, match="65 arguments"):
        compiled.Call(ADDRESS, (1, 1, 1), [b"12345678"] * 65, compiled.Lock(), None)
    with pytest.raises(ValueError, match="slot"):
        compiled.Call(ADDRESS, (1, 1, 1), [(64, 0, 8)], compiled.Lock(), None)
    with pytest.raises(ZeroDivisionError):
        _call(lambda values: 1 / 0, True)([Handle(1, 2), Handle(0)], [0, 0], [])


# -- launches on a queue ------------------------------------------------------------------------------------------
SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p)
SIZES = ctypes.POINTER(ctypes.c_size_t)
RUN = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_uint, ctypes.c_void_p, SIZES, SIZES)


class Driver:
    """OpenCL's two functions, what they were called with, the state that a launch looks at, and the way of Python."""

    def __init__(self, numbers: list[Any]) -> None:
        self.status, self.seen, self.slow = 0, [], []
        self.streams, self.last, self.waiting = None, None, []
        self.kept = SET(self.set_arg), RUN(self.run)
        functions = [ctypes.cast(f, ctypes.c_void_p).value for f in self.kept]
        self.step = compiled.Enqueue(lambda *launch: self.slow.append(launch), self, self)
        buffers = [(0, 1, 0), (8, 0, 5)]
        self.arm = lambda: self.step.arm(tuple(functions), 7, 8, (4, 2), (1, 1), buffers, numbers, bytes(24), None)

    def set_arg(self, kernel: int, index: int, nbytes: int, data: int) -> int:
        numbers = (ctypes.c_longlong * (nbytes // 8)).from_address(data)
        self.seen.append((index, *numbers))
        return self.status

    def run(self, queue: int, kernel: int, dims: int, start: Any, size: Any, local: Any) -> int:
        self.seen.append((queue, kernel, size[:dims], local[:dims]))
        return self.status

    def launch(self, *values: Any, offset: int = 0) -> list[Any]:
        """What the driver saw of one launch of two buffers, inside a plan."""
        x, out = Memory(), Memory()
        x.pointer, out.pointer = 11, 12
        del self.seen[:], self.slow[:]
        buffers = [compiled.Buffer("chip", m, 8, [], compiled.Counters()) for m in (x, out)]
        tensors = [Holds(b, offset) for b in buffers]
        made = ("make", "cls", "device")
        plan = compiled.Replay(made, list, 2, (), (self.step,), ((1, (), None),), None)
        assert plan(tensors, list(values), (), {}) is tensors[1]
        return self.seen


class Memory:
    pointer: int


class Holds:
    def __init__(self, buffer: Any, offset: int) -> None:
        self._buffer, self._offset = buffer, offset


NOW = (7, 8, [4, 2], [1, 1])


def test_an_armed_launch_sets_only_what_changes() -> None:
    driver = Driver([(16, 8, lambda values: values[0].to_bytes(4, "little"), False)])
    assert not driver.launch(3)
    assert len(driver.slow) == 1
    driver.arm()
    assert driver.launch(3) == [(0, 12), (1, 11), (2, 0, 5, 3), NOW]
    assert driver.launch(3) == [NOW]
    assert driver.launch(4, offset=1) == [(2, 1, 6, 4), NOW]
    assert not driver.slow


@pytest.mark.parametrize(
    ("name", "value"), [("streams", object()), ("last", object()), ("waiting", [1]), ("status", -5)]
)
def test_what_comes_first_and_what_fails_goes_to_python(name: str, value: Any) -> None:
    driver = Driver([])
    driver.arm()
    was = getattr(driver, name)
    setattr(driver, name, value)
    assert (driver.launch() == []) == (name != "status")
    ((handles, offsets, values),) = driver.slow
    assert ([h.pointer for h in handles], offsets, values) == ([11, 12], [0, 0], [])
    setattr(driver, name, was)
    assert driver.launch() == [(0, 12), (1, 11), (2, 0, 5, 0), NOW]


def test_wrong_arms_are_exceptions() -> None:
    with pytest.raises(ValueError, match="outside"):
        Driver([(20, 8, bytes, False)]).arm()
    driver = Driver([(16, 8, lambda values: 1 / 0, True)])
    driver.arm()
    with pytest.raises(ValueError, match="twice"):
        driver.arm()
    with pytest.raises(ZeroDivisionError):
        driver.launch(1)


# -- plans --------------------------------------------------------------------------------------------------------
def _plan_of(device: torch.device) -> Any:
    x = torch.ones(3, device=device)
    torch.sinh(x)
    op: Any = op_of(torch.ops.aten.sinh.default)
    return x, op.plans[op.bind((x,), {})[0]]


def test_a_plan_refuses_what_is_no_list_of_tensors(device: torch.device) -> None:
    x, plan = _plan_of(device)
    assert isinstance(plan, Plan)
    for arguments in (([], []), ((x,), []), (None, None), ([x],)):
        with pytest.raises(TypeError, match="list"):
            plan.run(*arguments)
    with pytest.raises(AttributeError):
        plan.run([torch.ones(3)], [], (), {})
    torch.testing.assert_close(plan.run([x], [], (), {}).cpu(), torch.ones(3).sinh())


def test_nothing_is_lost_or_kept(device: torch.device) -> None:
    """Ten thousand replays, views and failures leave no reference behind."""
    x, y = torch.ones(2, 3, device=device), torch.ones(3, device=device)

    def work() -> None:
        for _ in range(1000):
            z = (x + y).t().relu_()
            z.split(1)
            with pytest.raises(RuntimeError):
                x @ y.new_ones(7)

    work()
    gc.collect()
    before = sys.getrefcount(y._spec), sys.getrefcount(y._buffer), y._spec.device.memory.active  # type: ignore[attr-defined]
    work()
    gc.collect()
    after = sys.getrefcount(y._spec), sys.getrefcount(y._buffer), y._spec.device.memory.active  # type: ignore[attr-defined]
    assert after == before


def test_threads_do_not_mix_their_numbers(device: torch.device) -> None:
    x = torch.ones(64, device=device)
    wrong: list[float] = []

    def work(k: float) -> None:
        wrong.extend(k for _ in range(200) if torch.add(x, x, alpha=k).sum().item() != 64 * (1 + k))

    threads = [threading.Thread(target=work, args=(float(k),)) for k in range(2, 6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


@pytest.mark.device
def test_the_python_way_passes_the_same_tests() -> None:
    tests = [str(HERE / name) for name in ("test_spine.py", "test_memory.py", "test_random.py")]
    command = ("-m", "pytest", "-q", "-m", "not model", "-p", "no:cacheprovider", *tests)
    done = run_python(*command, timeout=600, TORCH_FL_PURE="1")
    assert done.returncode == 0, done.stdout[-3000:]
