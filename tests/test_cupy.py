"""The adapters for CUDA and ROCm on a stand-in for CuPy (tests/cupy_double.py): everything but a real card."""

from __future__ import annotations

import ast
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cupy_double
import numpy as np
import pytest
from subprocesses import HERE, output_of, run_python
from torch_fl.backends import _cupy
from torch_fl.backends.cuda import Cuda
from torch_fl.backends.rocm import Rocm

from torch_fl.kernels import source
from torch_fl.runtime.adapter import BufferArg, ValueArg

DOUBLE = {"PYTHONPATH": f"{HERE / 'double'}:{HERE}", "TORCH_FL_BACKENDS": "cuda"}
ADD = "kernel add(in float x, out float y, float a, int n, long m) { y[GID0] = x[GID0] + a * n + m; }\n"
PLACES = """kernel places(out int y) {
  const long at = (GID2 * GSIZE1 + GID1) * GSIZE0 + GID0;
  y[at] = (int)(GID0 + 10 * GID1 + 100 * GID2);
}
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for compiled kernels."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Any]:
    """The stand-in, with two cards."""
    monkeypatch.setitem(sys.modules, "cupy", cupy_double.cupy)
    monkeypatch.setenv("TORCH_FL_CACHE", str(cache))
    cupy_double.install(cards=2)
    yield cupy_double
    cupy_double.fail.clear()
    cupy_double.calls.clear()


@pytest.fixture
def chips(cupy: Any) -> list[Cuda]:
    """Both cards, opened."""
    return [Cuda(p) for p in Cuda.discover().found]


# -- discovery -----------------------------------------------------------------------------------------------------
def test_every_card_is_found_with_the_mark_that_opencl_gives_it(cupy: Any) -> None:
    found = Cuda.discover().found
    assert [p.fingerprint for p in found] == ["pci:0:3:0", "pci:0:4:0"]
    assert (found[0].name, found[0].vendor, found[0].capability) == ("a card in memory", "NVIDIA", (9, 0))
    from torch_fl.backends import _opencl_discovery

    nvidia = SimpleNamespace(pci_bus_id_nv=3, pci_slot_id_nv=0, pci_domain_id_nv=0)
    assert "pci:{}:{}:{}".format(*_opencl_discovery._pci(nvidia)) == found[0].fingerprint


def test_why_there_is_none(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "CuPy is built for CUDA, not for ROCm" in Rocm.discover().absent
    cupy_double.install(hip=True)
    assert "CuPy is built for ROCm, not for CUDA" in Cuda.discover().absent
    assert len(Rocm.discover().found) == 1
    cupy_double.install(cards=0)
    assert "lists no card that this process may use (CUDA_VISIBLE_DEVICES?)" in Cuda.discover().absent
    cupy_double.install(driver=0)
    assert Cuda.discover().absent == "no NVIDIA driver is installed, or this process cannot see it"
    cupy_double.install(driver=11040)
    assert "driver is too old: it serves CUDA 11.4, CuPy is built for 12.9" in Cuda.discover().absent
    cupy_double.install(capability=(7, 0))
    assert not Cuda.discover().found
    assert "a card in memory is of an architecture (7.0) that this CUDA no longer serves: it needs 7.5" in (
        Cuda.discover().absent
    )
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert Cuda.discover().absent.startswith("CuPy is not installed; pip install torch_fl[cuda12] or [cuda13]")


def test_an_import_that_fails_is_told_in_a_line(tmp_path: Path) -> None:
    banner = "====\\nCuPy is not well.\\n\\nOriginal error:\\n  ImportError: libnvrtc.so.13: no such file\\n===="
    (tmp_path / "cupy.py").write_text(f"raise ImportError('{banner}')")
    code = "from torch_fl.backends.cuda import Cuda; print(Cuda.discover().absent)"
    text = output_of(code, PYTHONPATH=f"{tmp_path}:{HERE}")
    assert text.startswith("CuPy is installed but cannot be imported (ImportError: libnvrtc.so.13: no such file); pip")


def test_the_command_tells_what_is_missing() -> None:
    code = """
import cupy_double, sys
cupy_double.install(cards=1)
cupy_double.fail.add("cufft")
from torch_fl.cli import main
sys.exit(main(["devices"]))
"""
    text = output_of(code, **DOUBLE)
    assert "npu:0: cufft is not used for Fourier transforms: libcufft.so: cannot open shared object file" in text
    assert "ok," in text


SEEN = """
import cupy_double, dataclasses, torch_fl
from torch_fl.runtime import discovery, devices
from torch_fl.runtime.adapter import Discovery
from torch_fl.backends.cuda import Cuda
from toy_chip import Toy
cupy_double.install(cards=2)
cards = Cuda.discover().found
class Other(Toy):
    name = "opencl"
    preference = 20
    @classmethod
    def discover(cls):
        return Discovery(tuple(dataclasses.replace(p, **CHANGE) for p in cards))
discovery._in_tree = lambda: {Cuda, Other}
torch_fl.devices()
print([(f.backend, f.index, f.note) for f in devices.discoveries()])
"""


@pytest.mark.parametrize("change", ["{}", "{'fingerprint': 'NVIDIA Corporation: a card', 'pci_bus_id': -1}"])
def test_a_card_that_opencl_sees_too_is_opened_once(change: str) -> None:
    text = output_of(f"CHANGE = {change}\n" + SEEN, PYTHONPATH=DOUBLE["PYTHONPATH"])
    twins = [("opencl", None, f"same chip as npu:{i}") for i in (0, 1)]
    assert ast.literal_eval(text) == [("cuda", 0, ""), ("cuda", 1, ""), *twins]


def test_cupy_is_imported_only_when_its_adapter_is_asked() -> None:
    code = "import sys, torch_fl; torch_fl.devices(); print('cupy' in sys.modules)"
    assert output_of(code, **{**DOUBLE, "TORCH_FL_BACKENDS": "host"}) == "False\n"


# -- launches ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("grid", "lines"),
    [
        ((1, 1, 1), (1, 1)),
        ((256, 1, 1), (1, 1)),
        ((257, 1, 1), (2, 1)),
        ((16, 4, 5), (2, 1)),
        ((1 << 33, 1, 1), (1 << 22, 8)),
    ],
)
def test_lines_of_blocks_cover_the_grid(grid: tuple[int, int, int], lines: tuple[int, int]) -> None:
    assert _cupy.lines_of_blocks(grid) == lines
    assert lines[0] * lines[1] * _cupy.BLOCK >= grid[0] * grid[1] * grid[2]


def test_scalars_stand_where_the_struct_has_them() -> None:
    value = ValueArg(lambda values: values[0])
    args = [BufferArg(0, 0, 4), b"\x01\0\0\0", value, bytes(12)]
    data, values_at = _cupy.scalars(args, (7, 8, 9))
    assert (len(data), [at for at, _ in values_at]) == (8 + 8 + 16 + 24, [8])
    assert np.frombuffer(data[32:], np.int64).tolist() == [7, 8, 9]


def _read(chip: Cuda, handle: Any, dtype: Any, n: int) -> Any:
    data = np.empty(n, dtype)
    chip.copy_d2h(memoryview(data).cast("B"), handle, 0)
    return data


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000])
def test_a_kernel_with_offsets_and_late_values(chips: list[Cuda], n: int) -> None:
    for chip in chips:  # the second one is not the current card
        x, y = chip.allocate(4 * n + 12), chip.allocate(4 * n)
        chip.copy_h2d(x, 0, memoryview(np.arange(n + 3, dtype=np.float32)).cast("B"))
        program = chip.compile(source.render(ADD, "cuda", {"IDX": "int"}))
        late = ValueArg(lambda values: np.float32(values[0]).tobytes())
        args = [BufferArg(0, 1, 4), BufferArg(1, 0, 4), late, (2).to_bytes(4, "little"), (5).to_bytes(8, "little")]
        run = chip.bind(program, "add", (n, 1, 1), args)
        for a in (0.5, 3.0):
            run([x, y], [2, 0], [a])
            assert np.array_equal(_read(chip, y, np.float32, n), np.arange(3, n + 3, dtype=np.float32) + 2 * a + 5)


@pytest.mark.parametrize("grid", [(1, 1, 1), (300, 1, 1), (3, 5, 1), (1, 1, 400), (7, 11, 13), (1, 700, 1)])
def test_places_in_grids_of_three_dimensions(chips: list[Cuda], grid: tuple[int, int, int]) -> None:
    n = grid[0] * grid[1] * grid[2]
    y = chips[0].allocate(4 * n)
    program = chips[0].compile(source.render(PLACES, "cuda", {"IDX": "int"}))
    chips[0].bind(program, "places", grid, [BufferArg(0, 0, 4)])([y], [0], [])
    z, j, i = np.indices(grid[::-1])
    assert np.array_equal(_read(chips[0], y, np.int32, n), (i + 10 * j + 100 * z).ravel())


def test_a_source_that_does_not_compile_and_one_that_is_kept(chips: list[Cuda]) -> None:
    with pytest.raises(cupy_double.CompileException, match="no_such_function"):
        chips[0].compile(source.render("kernel f(out int y) { no_such_function(); }\n", "cuda", {}))
    text = source.render(ADD, "cuda", {"IDX": "long"})
    chips[0].compile(text)
    before = len(cupy_double.compiled)
    chips[1].compile(text)
    assert len(cupy_double.compiled) == before  # from the disk


# -- memory, streams, errors -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [100, _cupy.STAGED + 1])
def test_a_source_may_be_reused_and_pinned_memory_is_held(chips: list[Cuda], n: int) -> None:
    chip = chips[1]
    handles = [chip.allocate(n) for _ in range(3)]
    data = bytearray(n)
    for k, handle in enumerate(handles):
        data[:] = bytes([k]) * n
        chip.copy_h2d(handle, 0, memoryview(data))
    chip.copy_d2d(handles[0], 1, handles[2], 0, n - 1)
    assert _read(chip, handles[0], np.uint8, n).tolist() == [0] + [2] * (n - 1)
    assert _read(chip, handles[1], np.uint8, n).tolist() == [1] * n


def test_memory_is_counted_given_back_and_runs_out(chips: list[Cuda]) -> None:
    chip = chips[1]
    held = chip.allocate(5000)
    assert chip.reserved_bytes() == 5120
    del held
    assert chip.reserved_bytes() == 5120
    chip.empty_cache()
    assert (chip.reserved_bytes(), chips[0].reserved_bytes()) == (0, 0)
    assert chip.memory_info() == (cupy_double.MEMORY // 2, cupy_double.MEMORY)
    with pytest.raises(chip.memory_errors):
        chip.allocate(cupy_double.MEMORY + 1)


def test_events_order_streams_and_call_back(chips: list[Cuda]) -> None:
    chip = chips[1]
    stream, called = chip.make_stream(-1), threading.Event()
    handle = chip.allocate(16)
    chip.copy_h2d(handle, 0, memoryview(bytes(16)))
    event = chip.record_event(chip.main)
    chip.wait_event(stream, event)
    late = chip.record_event(stream)
    assert stream.priority == -1
    chip.when_done(late, called.set)
    assert called.wait(10)
    assert chip.event_done(event)
    assert chip.event_done(late)


@pytest.mark.parametrize("call", ["memcpyAsync", "deviceSynchronize", "malloc"])
def test_errors_of_the_driver_have_their_type(chips: list[Cuda], call: str) -> None:
    chip = chips[0]
    handle = chip.allocate(16)
    cupy_double.fail.add(call)
    use = {
        "memcpyAsync": lambda: chip.copy_h2d(handle, 0, memoryview(bytes(16))),
        "deviceSynchronize": chip.synchronize,
        "malloc": lambda: chip.allocate(100),
    }
    with pytest.raises(chip.driver_errors, match=call):
        use[call]()


def test_the_current_card_is_put_back(chips: list[Cuda]) -> None:
    chips[1].allocate(10)
    chips[1].synchronize()
    assert cupy_double.getDevice() == 0


# -- torch on it -----------------------------------------------------------------------------------------------------
PRODUCTS = """
import cupy, cupy_double, torch, torch_fl
torch_fl.set_fallback("error")
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64):
    a, x, c = (torch.randn(s).mul(3).to(dtype) for s in ((3, 5, 7), (3, 4, 7), (3, 5, 4)))
    for where in ("npu:0", "npu:1"):
        for stream in (torch.npu.default_stream(where), torch.npu.Stream(where)):
            with stream:
                u, v, w = (t.to(where) for t in (a, x, c))
                found = [u @ v.mT, u[1] @ v[2].t(), torch.addmm(w[0], u[1], v[2].t(), alpha=2, beta=3),
                         torch.baddbmm(w, u, v.mT), torch.mm(u[0].t(), w[0]), u[:, :, :0] @ v.mT[:, :0]]
            got = [t.cpu() for t in found]
            want = [a @ x.mT, a[1] @ x[2].t(), torch.addmm(c[0], a[1], x[2].t(), alpha=2, beta=3),
                    torch.baddbmm(c, a, x.mT), torch.mm(a[0].t(), c[0]), a[:, :, :0] @ x.mT[:, :0]]
            torch.testing.assert_close(got, want)
    print(str(dtype), *(sum(c[0] == n for c in cupy_double.calls) for n in ("matmul", "gemm")))
    cupy_double.calls.clear()
"""
HALVES = """
import cupy, torch, torch_fl
torch_fl.set_fallback("error")
F = torch.nn.functional
nan = float("nan")
for dtype in (torch.float16, torch.bfloat16):
    for m, n, k in ((1, 1, 1), (5, 1, 3), (1, 6, 4), (7, 9, 5)):
        a, x = (torch.randn(s).to(dtype) for s in ((2, m, k), (2, k, n)))
        wide = torch.randn(2, k, 2 * n).to(dtype)[..., ::2]
        for left in (a, a.mT.contiguous().mT, a[:1].expand(2, -1, -1)):
            for right in (x, x.mT.contiguous().mT, wide):
                for f in (lambda a, x: torch.addmm(torch.ones(n).to(a), a[1], x[1], alpha=0.5, beta=2), torch.bmm,
                          lambda a, x: torch.baddbmm(torch.full((2, m, n), nan).to(a), a, x, beta=0),
                          lambda a, x: torch.addmm(a[0, :1, :1].expand(m, n), a[0], x[0], out=a.new_empty(n, m).t())):
                    torch.testing.assert_close(f(left.npu(), right.npu()).cpu(), f(left, right))
        with torch.inference_mode():
            w, bias = torch.randn(n, k).to(dtype), torch.randn(n).to(dtype)
            for b in (None, bias):
                got = F.linear(a.npu(), w.npu(), None if b is None else b.npu())
                torch.testing.assert_close(got.cpu(), F.linear(a, w, b))
print("right")
"""


@pytest.mark.device
def test_products_go_to_the_library() -> None:
    expected = {"float32": "20 0", "float64": "20 0", "float16": "12 8", "bfloat16": "0 20", "int64": "0 0"}
    assert output_of(PRODUCTS, **DOUBLE) == "".join(f"torch.{d} {n}\n" for d, n in expected.items())


@pytest.mark.device
def test_halves_of_any_layout_are_rounded_once() -> None:
    assert output_of(HALVES, **DOUBLE) == "right\n"


NAMES = """
import inspect, re, types, cupy, cupy_double
def missing(double, real, path):
    for name, value in vars(double).items():
        if name.startswith("__"):
            continue
        if name.startswith("the_"):
            continue
        if not hasattr(real, name):
            yield f"{path}.{name}"
        elif isinstance(value, (types.SimpleNamespace, type)):
            yield from missing(value, getattr(real, name), f"{path}.{name}")
found = [*missing(cupy_double.cupy, cupy, "cupy")]
from cupy_backends.cuda.libs import cublas, cusolver
for name, real in (("cublas", cublas), ("cusolver", cusolver)):
    double = getattr(cupy_double.libs, name)
    found += missing(double, real, name)
    for call, function in vars(double).items():
        if inspect.isfunction(function) and "arguments" not in (asked := inspect.signature(function).parameters):
            told = re.findall(r"(\\w+)[,)]", getattr(real, call).__doc__.splitlines()[0])
            if call != "gemmStridedBatchedEx" and list(asked) != told:
                found.append(f"{name}.{call} takes {told}")
import cupy.cuda.cufft
found += missing(cupy_double.cuda.cufft, cupy.cuda.cufft, "cufft")
print(sorted(found))
"""
OWN = ["cupy.ndarray.memory", "cupy.cuda.Stream._current", "cupy.cuda.Stream._ids", "cupy.cuda.Stream._stack",
       "cupy.cuda.Stream.queue"]  # fmt: skip
"""What the stand-in needs for itself."""


@pytest.mark.device
def test_the_stand_in_has_no_call_that_cupy_lacks() -> None:
    if run_python("-c", "import cupy", PYTHONPATH=os.environ.get("PYTHONPATH", "")).returncode:
        pytest.skip("CuPy is not installed")
    path = f"{HERE}:{os.environ.get('PYTHONPATH', '')}"
    assert set(ast.literal_eval(output_of(NAMES, PYTHONPATH=path))) <= set(OWN)


@pytest.mark.device
def test_the_contract_of_adapters_and_streams() -> None:
    files = [str(HERE / name) for name in ("test_bringup.py", "test_streams.py")]
    # Times of events: nothing on the double takes time. The rest of the contract is about other adapters.
    chosen = "(memory1 or cuda1) and not event_times and not host and not toy"
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", chosen, timeout=400, **DOUBLE)
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(done.stdout.splitlines()[-1].split()[0]) > 70


PINNED = """
import cupy, cupy_double, torch, torch_fl, gc
torch_fl.devices()
x = torch.arange(1 << 20, dtype=torch.float32).view(1024, 1024)
pinned = x.t().pin_memory()
assert pinned.is_pinned() and pinned[3:].is_pinned() and not x.is_pinned()
assert pinned.stride() == x.t().stride() and torch.equal(pinned, x.t())
made = torch.ones(300000, pin_memory=True, requires_grad=True)
assert made.is_pinned() and made.is_leaf and made.requires_grad
before = cupy_double.waits[0]
y = pinned.to("npu", non_blocking=True)
z = torch.empty(1024, 1024, device="npu").copy_(pinned.t(), non_blocking=True)
assert cupy_double.waits[0] == before
del pinned
gc.collect()
more, before = y + 1, cupy_double.waits[0]
far = more.to("cpu", non_blocking=True)
into = torch.zeros(1024, 1024, pin_memory=True)
into.copy_(z, non_blocking=True)
assert cupy_double.waits[0] == before
assert far.is_pinned()
torch.npu.synchronize()
assert torch.equal(far, y.cpu() + 1) and torch.equal(into, z.cpu())
gone = torch.full((1 << 19,), 7.0).pin_memory()
there = gone.to("npu", non_blocking=True)
del gone
gc.collect()
assert torch.equal(there.cpu(), torch.full((1 << 19,), 7.0))
side = torch.npu.Stream()
with torch.npu.stream(side):
    w = torch.full((1 << 19,), 5.0).pin_memory().to("npu", non_blocking=True)
    v = w * 2
side.synchronize()
assert torch.equal(v.cpu(), torch.full((1 << 19,), 10.0))
loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=4, pin_memory=True)
print([(b.is_pinned(), b.to("npu", non_blocking=True).tolist()) for b in loader])
"""
PEERS = """
import cupy, cupy_double, torch, torch_fl
torch_fl.set_fallback("error")
for side in (False, True):
    for x in (torch.randn(5, 7), torch.randn(5, 7).t(), torch.randn(6, 8)[::2, 1:], torch.randn(0, 3), torch.ones(())):
        with torch.npu.stream(torch.npu.Stream("npu:0") if side else torch.npu.default_stream("npu:0")):
            a = x.to("npu:0").requires_grad_()
            b = (a * 2).to("npu:1")
        torch.npu.synchronize(0)
        (b * 3).sum().backward()
        torch.testing.assert_close(b.detach().cpu(), x * 2)
        torch.testing.assert_close(a.grad.cpu(), torch.full_like(x, 6))
        c = torch.empty(x.shape, device="npu:1")
        c.copy_(a.detach())
        torch.testing.assert_close(c.cpu(), x)
        assert x.to("npu:0").to("npu:1", torch.float64).dtype == torch.float64
print(sum(c[0] == "memcpyPeerAsync" for c in cupy_double.calls) > 20)
"""


@pytest.mark.device
def test_copies_of_pinned_memory_do_not_wait() -> None:
    assert output_of(PINNED, **DOUBLE) == "[(True, [0.0, 1.0, 2.0, 3.0]), (True, [4.0, 5.0, 6.0, 7.0])]\n"


@pytest.mark.device
def test_two_cards_copy_without_the_host() -> None:
    assert output_of(PEERS, **DOUBLE) == "True\n"
