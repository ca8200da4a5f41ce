"""The contract of an adapter, run against every one there is: what a new chip has to do before any op is tried."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from subprocesses import output_of
from toy_chip import Toy, ToyError

from torch_fl.errors import KernelError, OutOfMemoryError
from torch_fl.kernels import source
from torch_fl.runtime.adapter import Backend, BufferArg, Properties, ValueArg
from torch_fl.runtime.devices import Device, backend_classes, devices

CHIPS = [d.backend for d in devices()] + [Toy(p) for p in Toy.discover().found]
COMPILING = [b for b in CHIPS if b.dialect is not None]
SIZES = (1, 3, 4, 63, 64, 65, 511, 513, 4096, 100_003)


def _name(backend: Backend) -> str:
    return f"{backend.name}-{backend.properties.name.split()[-1]}"


@pytest.fixture(params=CHIPS, ids=_name)
def chip(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each adapter, opened."""
    yield request.param
    Toy.fail.clear()


@pytest.fixture(params=COMPILING, ids=_name)
def compiler(request: pytest.FixtureRequest) -> Backend:
    """Each adapter that compiles kernels."""
    return request.param  # type: ignore[no-any-return]


def _bytes(n: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, n, np.uint8).tobytes()


def _read(chip: Backend, handle: Any, n: int, at: int = 0) -> bytes:
    data = bytearray(n)
    chip.copy_d2h(memoryview(data), handle, at)
    return bytes(data)


def _made(chip: Backend, data: bytes) -> Any:
    handle = chip.allocate(max(1, len(data)))
    chip.copy_h2d(handle, 0, memoryview(data))
    return handle


def _build(chip: Backend, text: str, **defines: object) -> Any:
    return chip.compile(source.render(text, str(chip.dialect), {"IDX": "int", **defines}))


# -- discovery ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", [*backend_classes().values(), Toy], ids=lambda b: b.name)
def test_discover_never_raises(backend: type[Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("", "/nonexistent"):
        monkeypatch.setenv("PATH", path)
        result = backend.discover()
        assert result.found or result.absent


def test_properties_are_filled(chip: Backend) -> None:
    p = chip.properties
    assert p.name
    assert p.vendor
    assert p.driver
    assert p.fingerprint
    assert p.kind in ("gpu", "cpu", "accelerator")
    assert p.total_memory > 1 << 20
    assert p.compute_units >= 1
    assert chip.name in ("toy", *backend_classes())


# -- memory -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", SIZES)
def test_round_trip_at_odd_sizes_and_offsets(chip: Backend, n: int) -> None:
    room = n + 77
    handle = _made(chip, _bytes(room))
    want = bytearray(_bytes(room))
    for at in (0, 1, 7, 64, 77):
        data = _bytes(n, at)
        chip.copy_h2d(handle, at, memoryview(data))
        want[at : at + n] = data
        assert _read(chip, handle, n, at) == data
    assert _read(chip, handle, room) == bytes(want)


def test_source_may_be_reused_after_h2d(chip: Backend) -> None:
    data = bytearray(_bytes(4096))
    handle = chip.allocate(4096)
    chip.copy_h2d(handle, 0, memoryview(data))
    before = bytes(data)
    data[:] = bytes(4096)
    assert _read(chip, handle, 4096) == before


def test_read_only_sources_and_numpy_targets(chip: Backend) -> None:
    array = np.arange(256, dtype=np.uint8)
    handle = _made(chip, array.tobytes())
    back = np.zeros(256, np.uint8)
    chip.copy_d2h(memoryview(back), handle, 0)
    assert (array == back).all()


@pytest.mark.parametrize("n", SIZES)
def test_d2d(chip: Backend, n: int) -> None:
    a, b = _made(chip, _bytes(n + 16)), _made(chip, bytes(n + 16))
    chip.copy_d2d(b, 5, a, 9, n)
    assert _read(chip, b, n + 16) == bytes(5) + _bytes(n + 16)[9 : 9 + n] + bytes(11)


def test_d2d_inside_one_buffer(chip: Backend) -> None:
    data = _bytes(1024)
    handle = _made(chip, data)
    chip.copy_d2d(handle, 512, handle, 0, 512)
    assert _read(chip, handle, 1024) == data[:512] * 2


def test_device_allocates_zero_bytes_and_frees(chip: Backend) -> None:
    device = Device(90, chip)
    assert device.allocate(0).nbytes == 0
    assert device.allocated_bytes() == 0
    buffers = [device.allocate(n) for n in SIZES]
    assert device.allocated_bytes() == sum(SIZES)
    assert device.reserved_bytes() >= sum(SIZES)
    del buffers
    assert device.allocated_bytes() == 0
    assert device.peak_bytes == sum(SIZES)


def test_out_of_memory_and_on(chip: Backend) -> None:
    device = Device(90, chip)
    with pytest.raises(OutOfMemoryError) as caught:
        device.allocate(1 << 55)
    assert isinstance(caught.value, torch.OutOfMemoryError)
    for part in ("npu:90", "because:", "try:", str(1 << 55)):
        assert part in str(caught.value)
    buffer = device.allocate(64)
    chip.copy_h2d(buffer.handle, 0, memoryview(_bytes(64)))
    assert _read(chip, buffer.handle, 64) == _bytes(64)


def test_memory_info(chip: Backend) -> None:
    free, total = chip.memory_info()
    assert 0 <= free <= total


def test_streams_and_events(chip: Backend) -> None:
    """An adapter may have one queue for all streams; an event is done when what came before it is."""
    first = chip.default_stream()
    second = chip.make_stream(0)
    source, target = _made(chip, _bytes(4096)), chip.allocate(4096)
    chip.copy_d2d(target, 0, source, 0, 4096)
    event = chip.record_event(first)
    if event is not None:
        called = threading.Event()
        chip.when_done(event, called.set)
        chip.wait_event(second, event)
        chip.finish_event(event)
        assert chip.event_done(event)
        assert called.wait(10)
    chip.finish_stream(second)
    chip.finish_stream(first)
    assert _read(chip, target, 4096) == _bytes(4096)


def test_many_blocks_do_not_overlap(chip: Backend) -> None:
    device = Device(90, chip)
    for _ in range(2):
        buffers = [device.allocate(100 + i) for i in range(50)]
        for i, b in enumerate(buffers):
            chip.copy_h2d(b.handle, 0, memoryview(bytes([i]) * b.nbytes))
        for i, b in enumerate(buffers):
            assert _read(chip, b.handle, b.nbytes) == bytes([i]) * b.nbytes
        del buffers


def test_synchronize_empty_cache_and_again(chip: Backend) -> None:
    handle = _made(chip, b"abc")
    chip.synchronize()
    chip.empty_cache()
    assert _read(chip, handle, 3) == b"abc"


# -- kernels ------------------------------------------------------------------------------------------------------
ADD_ONE = "kernel add_one(inout float x) {\n  x[GID0] += 1;\n}\n"


def _floats(chip: Backend, handle: Any, n: int) -> list[float]:
    return list(struct.unpack(f"<{n}f", _read(chip, handle, 4 * n)))


def test_launches_and_copies_are_ordered(compiler: Backend) -> None:
    n = 1000
    run = compiler.bind(_build(compiler, ADD_ONE), "add_one", (n, 1, 1), [BufferArg(0, 0, 4)])
    x, y = _made(compiler, bytes(4 * n)), _made(compiler, bytes(4 * n))
    for step in range(20):
        run([x], [0], [])
        run([x], [0], [])
        compiler.copy_d2d(y, 0, x, 0, 4 * n)
        run([x], [0], [])
        assert _floats(compiler, y, n) == [3.0 * step + 2] * n
    run([x], [0], [])
    compiler.copy_h2d(x, 0, memoryview(bytes(4 * n)))
    run([x], [0], [])
    assert _floats(compiler, x, n) == [1.0] * n


@pytest.mark.parametrize(
    ("ctype", "form", "value"),
    [("char", "b", -7), ("uchar", "B", 200), ("short", "h", -3000), ("ushort", "H", 60000), ("int", "i", -(2**30)),
     ("uint", "I", 2**31 + 5), ("long", "q", -(2**60)), ("ulong", "Q", 2**63 + 9), ("float", "f", 0.5),
     ("double", "d", 1e-300)],
)  # fmt: skip
def test_scalars_of_every_type(compiler: Backend, ctype: str, form: str, value: Any) -> None:
    if ctype == "double" and not compiler.properties.fp64:
        pytest.skip("this chip has no float64")
    text = "kernel put(out S x, S fixed, S late) {\n  x[0] = fixed; x[1] = late;\n}\n"
    data = struct.pack(f"<{form}", value)
    run = compiler.bind(
        _build(compiler, text, S=ctype), "put", (1, 1, 1), [BufferArg(0, 0, len(data)), data, ValueArg(lambda v: v[0])]
    )
    x = _made(compiler, bytes(2 * len(data)))
    for late in (value, 1):
        run([x], [0], [struct.pack(f"<{form}", late)])
        assert struct.unpack(f"<2{form}", _read(compiler, x, 2 * len(data))) == (value, late)


def test_structs(compiler: Backend) -> None:
    text = "kernel sizes(out int x, Layout2 m) {\n  x[GID0] = m.size[GID0] * m.stride[1][GID0] + m.rank;\n}\n"
    layout = struct.pack("<25i", 3, *range(1, 9), *([0] * 8), *range(10, 18))
    run = compiler.bind(_build(compiler, text), "sizes", (8, 1, 1), [BufferArg(0, 0, 4), layout])
    x = _made(compiler, bytes(32))
    run([x], [0], [])
    assert struct.unpack("<8i", _read(compiler, x, 32)) == tuple((i + 1) * (10 + i) + 3 for i in range(8))


def test_offsets(compiler: Backend) -> None:
    run = compiler.bind(_build(compiler, ADD_ONE), "add_one", (2, 1, 1), [BufferArg(1, 3, 4)])
    unused, x = _made(compiler, bytes(4)), _made(compiler, bytes(40))
    for offset in (0, 1, 5, 1):
        run([unused, x], [0, offset], [])
    assert _floats(compiler, x, 10) == [0, 0, 0, 1, 3, 2, 0, 0, 1, 1]


@pytest.mark.parametrize("grid", [(1, 1, 1), (63, 1, 1), (65, 1, 1), (1_000_003, 1, 1), (5, 3, 1), (70, 2, 3)])
def test_grids(compiler: Backend, grid: tuple[int, int, int]) -> None:
    text = (
        "kernel mark(inout int x) {\n  long at = GID0 + GSIZE0 * (GID1 + GSIZE1 * GID2);\n  x[at] += (int)at + 1;\n}\n"
    )
    n = grid[0] * grid[1] * grid[2]
    run = compiler.bind(_build(compiler, text), "mark", grid, [BufferArg(0, 0, 4)])
    x = _made(compiler, bytes(4 * n + 64))
    run([x], [0], [])
    got = np.frombuffer(_read(compiler, x, 4 * n + 64), np.int32)
    assert (got[:n] == np.arange(1, n + 1)).all()
    assert not got[n:].any()


def test_an_empty_grid_launches_nothing(compiler: Backend) -> None:
    from torch_fl.builder import Builder
    from torch_fl.infer import Inferred

    builder = Builder(Device(90, compiler), [], Inferred((), tuple))
    builder.launch("kernel never() {\n  this does not compile\n}\n", "never", (0, 4), [])
    assert not builder.steps


def test_compile_error_shows_the_log(compiler: Backend) -> None:
    device = Device(90, compiler)
    text = "kernel broken(out float x) {\n  x[0] = no_such_name;\n}\n"
    with pytest.raises(KernelError, match="could not compile broken") as caught:
        device.program(text, {})
    assert "no_such_name" in str(caught.value)
    assert device.program(ADD_ONE, {}) is device.program(ADD_ONE, {})


def test_two_threads(chip: Backend) -> None:
    device = Device(90, chip)
    run = None
    if chip.dialect is not None:
        run = chip.bind(_build(chip, ADD_ONE), "add_one", (64, 1, 1), [BufferArg(0, 0, 4)])
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for i in range(200):
            buffer = device.allocate(256)
            start = np.full(64, seed * 1000 + i, np.float32)
            chip.copy_h2d(buffer.handle, 0, memoryview(start.view(np.uint8)))
            if run is not None:
                run([buffer.handle], [0], [])
            got = np.frombuffer(_read(chip, buffer.handle, 256), np.float32)
            if not (got == start + (run is not None)).all():
                wrong.append((seed, i, got))

    threads = [threading.Thread(target=work, args=(s,)) for s in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong
    assert device.allocated_bytes() == 0


# -- a failing chip -----------------------------------------------------------------------------------------------
def test_failures_of_the_driver_pass_through_the_adapter(chip: Backend) -> None:
    if chip.name != "toy":
        pytest.skip("only the toy can be told to fail")
    handle = chip.allocate(4)
    Toy.fail.update(("allocate", "copy"))
    with pytest.raises(ToyError):
        chip.allocate(4)
    with pytest.raises(ToyError):
        chip.copy_h2d(handle, 0, memoryview(b"abcd"))
    Toy.fail.clear()
    chip.copy_h2d(handle, 0, memoryview(b"abcd"))
    assert _read(chip, handle, 4) == b"abcd"


OPS_ON_TOY = """
import warnings
import pytest, torch, torch_fl
import toy_chip
from torch_fl import fallback
torch_fl.register_backend(toy_chip.Toy)
toy_chip.register_ops()
torch_fl.init("toy")
torch_fl.set_fallback("allow")
assert [d.properties.name for d in torch_fl.devices()] == ["toy 0", "toy 1"]
for where in ("npu:0", "npu:1"):
    x = torch.arange(6, dtype=torch.float32, device=where).reshape(2, 3)
    y = (x.t() + 2 * x.t()[:, :1]).requires_grad_()
    assert y.device == torch.device(where)
    torch.testing.assert_close(y.cpu(), x.cpu().t() + 2 * x.cpu().t()[:, :1])
    before = fallback.counts()[0]
    torch.add(y, y, alpha=3).mul(0.5).neg()
    assert fallback.counts()[0] == before, "add, mul and neg have kernels"
    loss = (torch.softmax(y * y, 1) * y).sum()
    assert fallback.counts()[0] > before, "softmax has none"
    loss.backward()
    want = y.detach().cpu().requires_grad_()
    (torch.softmax(want * want, 1) * want).sum().backward()
    torch.testing.assert_close(y.grad.cpu(), want.grad)
    for what in ("allocate", "copy", "kernel"):
        toy_chip.Toy.fail.add(what)
        with pytest.raises(torch_fl.DeviceError, match=f"(?s)npu:{where[-1]}.*call:.*TOY_{what.upper()}_FAILED"):
            (torch.full((7, len(what), 9), 1.0, device=where) if what == "allocate" else x + x).cpu()
        toy_chip.Toy.fail.clear()
        torch.testing.assert_close((x + x).cpu(), 2 * x.cpu())
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        torch.empty(1 << 32, device=where)
moved = torch.ones(3, device="npu:0").to("npu:1")
assert moved.device.index == 1
print("right")
"""


def test_ops_on_a_chip_without_a_compiler() -> None:
    assert output_of(OPS_ON_TOY) == "right\n"


def test_fingerprints_are_distinct() -> None:
    names = [(b.name, b.properties.fingerprint) for b in CHIPS]
    assert len(set(names)) == len(names)
    assert isinstance(CHIPS[0].properties, Properties)
