"""Scripts that say `cuda`: every way to say it lands on the device, errors are those of CUDA, and it can be undone."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from subprocesses import HERE, output_of, run_python
from torch import nn

import torch_fl
from torch_fl.compat import cuda as compat
from torch_fl.compat import cuda_module, cuda_refused, cuda_types
from torch_fl.tensor import Tensor

DEVICES = torch_fl.device_count()


@pytest.fixture
def cuda(device: torch.device) -> Iterator[torch.device]:
    """`cuda` means the device, which is the current one."""
    assert compat.enable()
    torch.cuda.set_device(device.index)
    yield torch.device("cuda", device.index)
    compat.disable()
    torch.npu.set_device(0)


# -- every way to make a tensor there -------------------------------------------------------------------------------
class _Shaped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("step", torch.zeros(2))


def _with_default(make: Callable[[], Any]) -> Any:
    torch.set_default_device("cuda")
    try:
        return make()
    finally:
        torch.set_default_device(None)


def _in_context(make: Callable[[], Any]) -> Any:
    with torch.device("cuda"):
        return make()


def _default_type() -> Any:
    torch.set_default_tensor_type("torch.cuda.DoubleTensor")
    try:
        return torch.zeros(2) + torch.tensor([1.0, 2.0])
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")


WAYS: dict[str, Callable[[], Any]] = {
    "zeros": lambda: torch.zeros(3, device="cuda"),
    "empty": lambda: torch.empty(3, device=torch.device("cuda")),
    "full": lambda: torch.full((2,), 7, device="cuda"),
    "randn": lambda: torch.randn(3, device="cuda"),
    "randint": lambda: torch.randint(5, (3,), device="cuda"),
    "randperm": lambda: torch.randperm(5, device="cuda"),
    "arange": lambda: torch.arange(3, device="cuda"),
    "linspace": lambda: torch.linspace(0, 1, 5, device="cuda"),
    "eye": lambda: torch.eye(3, device="cuda"),
    "hann_window": lambda: torch.hann_window(4, device="cuda"),
    "tril_indices": lambda: torch.tril_indices(3, 3, device="cuda"),
    "empty_strided": lambda: torch.empty_strided((2, 3), (1, 2), device="cuda"),
    "tensor": lambda: torch.tensor([1.0, 2.0], device="cuda"),
    "as_tensor": lambda: torch.as_tensor([1, 2], device="cuda"),
    "asarray": lambda: torch.asarray([1, 2], device="cuda"),
    "scalar_tensor": lambda: torch.scalar_tensor(3, device="cuda"),
    "zeros_like": lambda: torch.zeros_like(torch.ones(2), device="cuda"),
    "new_zeros": lambda: torch.ones(2).new_zeros(3, device="cuda"),
    "new_tensor": lambda: torch.ones(2).new_tensor([1, 2], device="cuda"),
    "to": lambda: torch.ones(2).to("cuda"),
    "to device": lambda: torch.ones(2).to(torch.device("cuda"), non_blocking=True),
    "to device, dtype": lambda: torch.ones(2).to("cuda", torch.float16),
    "to keyword": lambda: torch.ones(2).to(device="cuda", dtype=torch.float64),
    "to of ours": lambda: torch.ones(2, device="cuda").to("cuda"),
    "cuda": lambda: torch.ones(2).cuda(),
    "cuda of ours": lambda: torch.ones(2, device="cuda").cuda(),
    "cuda index": lambda: torch.ones(2).cuda(torch.cuda.current_device()),
    "cuda non_blocking": lambda: torch.ones(2).cuda(non_blocking=True),
    "type name": lambda: torch.ones(2).type("torch.cuda.HalfTensor"),
    "type": lambda: torch.ones(2).type(torch.cuda.LongTensor),
    "FloatTensor": lambda: torch.cuda.FloatTensor([1, 2]),
    "FloatTensor size": lambda: torch.cuda.FloatTensor(2, 3),
    "numpy": lambda: torch.from_numpy(torch.ones(2).numpy()).cuda(),
    "parameter": lambda: nn.Parameter(torch.ones(2).cuda()),
    "linear": lambda: nn.Linear(2, 2, device="cuda").weight,
    "module.cuda": lambda: _Shaped().cuda().step,
    "module.to": lambda: _Shaped().to("cuda").layer.weight,
    "module.to device": lambda: _Shaped().to(torch.device("cuda"), torch.float64).layer.weight,
    "default device": lambda: _with_default(lambda: torch.ones(2) + torch.tensor([1.0, 2.0])),
    "default of modules": lambda: _with_default(lambda: nn.Linear(2, 2).weight),
    "default type": _default_type,
    "context": lambda: _in_context(lambda: torch.ones(2) * torch.tensor(2.0)),
    "generator": lambda: torch.rand(2, generator=torch.Generator("cuda").manual_seed(3), device="cuda"),
    "device of another": lambda: torch.ones(2, device=torch.ones(1).cuda().device),
    "to another": lambda: torch.ones(2).to(torch.ones(1).cuda()),
    "untyped op": lambda: torch.ops.aten.empty.memory_format([2], device="cuda"),
    "storage": lambda: torch.empty(0, dtype=torch.uint8, device="cuda").set_(torch.ones(2).cuda().untyped_storage()),
    "inference": lambda: torch.inference_mode()(lambda: torch.ones(2).to("cuda") + torch.zeros(2, device="cuda"))(),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type:UserWarning")
@pytest.mark.parametrize("way", WAYS)
def test_lands_on_the_device(way: str, cuda: torch.device, allow_fallback: None) -> None:
    x = WAYS[way]()
    assert isinstance(x, Tensor)
    assert x.is_cuda
    assert x.device == cuda
    assert x._spec.device.index == cuda.index
    assert not torch.ones(2).is_cuda, "the default device is the CPU again"


@pytest.mark.parametrize("index", range(DEVICES))
def test_an_index_is_that_chip(index: int, cuda: torch.device) -> None:
    name = f"cuda:{index}"
    made = [torch.zeros(2, device=name), torch.ones(2).cuda(index), torch.ones(2).to(name)]
    made += [torch.tensor([1], device=name), torch.eye(2, device=name)]
    with torch.cuda.device(index):
        made += [torch.zeros(2, device="cuda"), torch.ones(2).cuda(), torch.eye(2, device="cuda")]
    assert [x.device for x in made] == [torch.device("cuda", index)] * len(made)
    with torch.cuda.device_of(made[0]):
        assert torch.cuda.current_device() == index
    assert torch.cuda.current_device() == cuda.index


def test_what_is_there_is_not_copied(cuda: torch.device) -> None:
    x = torch.ones(2).cuda()
    same = [x.cuda(), x.to("cuda"), x.to(x.device), x.type(torch.cuda.FloatTensor), torch.as_tensor(x, device="cuda")]
    assert all(y is x for y in same[:4])
    assert same[4]._buffer is x._buffer  # type: ignore[attr-defined]


def test_a_tensor_says_cuda(cuda: torch.device) -> None:
    x = torch.ones(2, device="cuda")
    assert (x.device.type, x.type(), x.get_device()) == ("cuda", "torch.cuda.FloatTensor", cuda.index)
    assert f"device='{cuda}'" in repr(x)
    assert isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(x, torch.cuda.HalfTensor)
    assert not isinstance(x, torch.FloatTensor)
    assert not isinstance(torch.ones(2), torch.cuda.FloatTensor)
    assert torch.device("npu", cuda.index) == torch.device("npu", torch.ones(2, device="npu").get_device())
    assert torch.ones(2, device="npu").is_cuda


def test_gradients_go_where_they_came_from(cuda: torch.device) -> None:
    host, ours = torch.ones(3, requires_grad=True), torch.ones(3, device="cuda", requires_grad=True)
    (host.cuda() * ours).sum().backward()
    assert host.grad is not None
    assert ours.grad is not None
    assert not host.grad.is_cuda
    assert ours.grad.device == cuda


# -- torch.cuda -----------------------------------------------------------------------------------------------------
def test_the_module_answers(cuda: torch.device) -> None:
    c = torch.cuda
    assert c.is_available()
    assert c.is_initialized()
    assert c.device_count() == DEVICES
    properties = c.get_device_properties(cuda)
    assert properties.name == c.get_device_name() == torch_fl.devices()[cuda.index].properties.name
    assert properties.total_memory > 0
    assert (properties.major, properties.minor) == c.get_device_capability("cuda")
    before = c.memory_allocated()
    x = torch.ones(1000, device="cuda")
    assert c.memory_allocated(cuda) >= before + 4000
    assert c.max_memory_allocated("cuda") >= c.memory_allocated()
    assert str(cuda.index) in c.memory_summary()
    del x
    c.empty_cache()
    c.synchronize(cuda)
    assert c.current_stream().device == cuda
    c.init()


def test_seeds_and_random_states(cuda: torch.device) -> None:
    torch.cuda.manual_seed_all(5)
    first, state = torch.rand(3, device="cuda"), torch.cuda.get_rng_state()
    second = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    torch.testing.assert_close(torch.rand(3, device="cuda"), second)
    torch.manual_seed(5)
    torch.testing.assert_close(torch.rand(3, device="cuda"), first)
    with torch.random.fork_rng(devices=[cuda.index], device_type="cuda"):
        torch.rand(3, device="cuda")
    torch.testing.assert_close(torch.rand(3, device="cuda"), second)


def test_streams_and_events(cuda: torch.device) -> None:
    stream, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.ones(64, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        start.record()
        y = x * 2
        end.record()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0
    assert y.sum().item() == 128
    assert isinstance(torch.Stream("cuda"), torch.cuda.Stream)


# -- mixed precision ------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:.*torch.cuda.amp.*deprecated:FutureWarning")
def test_autocast_by_every_name(cuda: torch.device) -> None:
    a = torch.ones(2, 2, device="cuda")
    for context in (torch.autocast("cuda"), torch.amp.autocast("cuda"), torch.cuda.amp.autocast()):
        with context:
            assert torch.is_autocast_enabled()
            assert torch.is_autocast_enabled("cuda")
            assert (a @ a).dtype == torch.float16 == torch.get_autocast_gpu_dtype()
            with torch.autocast(a.device.type, enabled=False):
                assert (a @ a).dtype == torch.float32
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32
    assert not torch.is_autocast_enabled()
    assert torch.amp.GradScaler("cuda").is_enabled()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


# -- errors ---------------------------------------------------------------------------------------------------------
ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "factory": (lambda: torch.zeros(3, device="cuda:77"), RuntimeError, "cuda:77 does not exist"),
    "cuda": (lambda: torch.zeros(3).cuda(77), RuntimeError, "cuda:77 does not exist"),
    "to": (lambda: torch.zeros(3).to("cuda:77"), RuntimeError, "cuda:77 does not exist"),
    "module": (lambda: nn.Linear(2, 2).cuda(77), RuntimeError, "cuda:77 does not exist"),
    "set_device": (lambda: torch.cuda.set_device(77), RuntimeError, "cuda:77 does not exist"),
    "properties": (lambda: torch.cuda.get_device_properties(77), AssertionError, "Invalid device id"),
    "not cuda": (lambda: torch.cuda.synchronize("cpu"), ValueError, "Expected a cuda device, but got: cpu"),
    "cuda of cpu": (lambda: torch.ones(2).cuda("cpu"), RuntimeError, "Invalid device, must be cuda device"),
    "no device": (lambda: torch.ones(2).to("cuda:x"), RuntimeError, "Invalid device string: 'cuda:x'"),
    "no type": (lambda: torch.ones(2).type("torch.cuda.NixTensor"), ValueError, "invalid type: 'torch.cuda.NixTensor'"),
    "bad values": (lambda: torch.cuda.FloatTensor("x"), TypeError, "invalid data type 'str'"),
    "default type": (lambda: torch.set_default_tensor_type("torch.cuda.IntTensor"), TypeError, "only floating-point"),
    "numpy": (lambda: torch.ones(2, device="cuda").numpy(), TypeError, "can't convert cuda:"),
    "pinned": (lambda: torch.ones(2, device="cuda").pin_memory(), RuntimeError, "only dense CPU tensors can be pinned"),
    "two devices": (lambda: torch.ones(2, device="cuda") + torch.ones(2), RuntimeError, "two devices, cuda:"),
    "too big": (lambda: torch.zeros(2**50, device="cuda"), torch.cuda.OutOfMemoryError, "out of memory"),
    "graph": (lambda: torch.cuda.CUDAGraph(), RuntimeError, "torch.cuda.CUDAGraph exists on real CUDA only"),
    "graph_pool": (lambda: torch.cuda.graph_pool_handle(), RuntimeError, "try: run the code without a graph"),
    "jiterator": (lambda: torch.cuda.jiterator._create_jit_fn("x"), RuntimeError, "torch_fl.pointwise"),
    "nccl": (lambda: torch.cuda.nccl.version(), RuntimeError, "gloo"),
    "history": (lambda: torch.cuda.memory._record_memory_history(), RuntimeError, "torch.cuda.memory_summary()"),
    "runtime": (lambda: torch.cuda.cudart().cudaMalloc, AttributeError, "torch.cuda.mem_get_info"),
    "interface": (lambda: torch.ones(2, device="cuda").__cuda_array_interface__, AttributeError, "Tensor.cpu()"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_those_of_cuda(case: str, cuda: torch.device) -> None:
    call, kind, text = ERRORS[case]
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)
    x = torch.ones(2, device="cuda") * 3
    assert x.tolist() == [3, 3], "the next op is right"


def test_every_name_of_torch_cuda_is_answered_or_refused() -> None:
    passive = {"check_error", "cudart", "cudaStatus", "CudaError", "DeferredCudaCallError", "has_half", "has_magma"}
    names = {n for n in torch.cuda.__all__ if not n.endswith("Storage")}
    names -= {n for n in names if isinstance(getattr(torch.cuda, n), types.ModuleType)}
    answered = cuda_module.served().keys() | cuda_refused.REFUSED.keys() | cuda_types.TYPES.keys()
    assert names - answered - passive == set()


# -- what does nothing, harmlessly ----------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:.*sdp_kernel.*:FutureWarning")
def test_switches_and_marks_do_no_harm(cuda: torch.device) -> None:
    backends, cudnn = torch.backends.cuda, torch.backends.cudnn
    with cudnn.flags(enabled=True, benchmark=True), torch.cuda.profiler.profile(), torch.autograd.profiler.emit_nvtx():
        assert nn.Conv2d(1, 1, 3).cuda()(torch.ones(1, 1, 4, 4, device="cuda")).is_cuda
    before = backends.matmul.allow_tf32
    backends.matmul.allow_tf32 = True
    backends.matmul.allow_tf32 = before
    assert torch.cuda.nvtx.range_push("outer") == 0
    assert torch.cuda.nvtx.range_push("inner") == 1
    torch.cuda.nvtx.mark("here")
    assert [torch.cuda.nvtx.range_pop(), torch.cuda.nvtx.range_pop()] == [1, 0]
    assert torch.cuda.cudart().cudaProfilerStart() == 0
    assert not torch.cuda.is_current_stream_capturing()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        nn.functional.scaled_dot_product_attention(*[torch.ones(1, 1, 2, 8, device="cuda")] * 3)
    nn.LSTM(2, 2).cuda().flatten_parameters()


def test_optimizers_with_cuda_options(cuda: torch.device) -> None:
    for options in ({"fused": True}, {"foreach": True}, {"capturable": True}):
        model = nn.Linear(2, 2).cuda()
        before = model.weight.detach().clone()
        optimizer = torch.optim.Adam(model.parameters(), **options)
        model(torch.ones(1, 2, device="cuda")).sum().backward()
        optimizer.step()
        assert not torch.equal(model.weight, before)


def test_pinned_memory_says_so(cuda: torch.device) -> None:
    x = torch.arange(3.0).pin_memory()
    assert x.is_pinned()
    assert x.pin_memory() is x
    assert not torch.ones(3).is_pinned()
    assert not torch.ones(3, device="cuda").is_pinned()
    torch.testing.assert_close(x.cuda(non_blocking=True).cpu(), x)
    assert torch.empty(3, pin_memory=True).shape == (3,)


@pytest.mark.parametrize("where", [None, "cuda", torch.device("cuda"), {"cuda:0": "cuda"}, lambda s, loc: s.cuda()])
def test_files_say_cuda(where: Any, cuda: torch.device) -> None:
    x = torch.arange(6.0, device="cuda").view(2, 3)
    file = io.BytesIO()
    torch.save({"x": x, "row": x[1], "host": torch.ones(2)}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=where)
    assert loaded["x"].device == cuda
    assert loaded["host"].is_cuda == (where is not None and not isinstance(where, dict))
    loaded["x"][1] = 9
    assert loaded["row"].tolist() == [9, 9, 9], "views share memory"


def test_files_without_the_name_hold_no_device(cuda: torch.device) -> None:
    x = torch.ones(2, device="cuda")
    compat.disable()
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert torch.load(file).device.type == "cpu"


@pytest.mark.filterwarnings("ignore:[^a-z]*There is an imbalance between your GPUs:UserWarning")
def test_data_parallel(cuda: torch.device, allow_fallback: None) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).cuda(0)
    x = torch.randn(6, 4)
    want = model(x.cuda(0))
    for ids in ([0], list(range(DEVICES))):
        model.zero_grad()
        got = nn.DataParallel(model, device_ids=ids)(x)
        torch.testing.assert_close(got, want)
        got.sum().backward()
        assert model[0].weight.grad.device == torch.device("cuda:0")


def scripted(a: torch.Tensor) -> torch.Tensor:
    return a + torch.tensor([1.0]).to(a.device) + torch.zeros(1, device=a.device)


def test_torchscript_knows_the_functions(cuda: torch.device) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        function = torch.jit.script(scripted)
    assert function(torch.ones(2, device="cuda")).tolist() == [2, 2]


def test_fake_tensors_are_of_our_device(cuda: torch.device) -> None:
    """A fake tensor of cuda ends the process where torch has no CUDA, as soon as autograd sees it."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    for where in ("cuda:0", torch.device("cuda", 0)):
        x: Any = FakeTensor(FakeTensorMode(), torch.empty(2, 3, device="meta"), where)
        assert (x.shape, x.device) == ((2, 3), torch.device("npu:0"))


def test_extensions_say_what_to_do(cuda: torch.device) -> None:
    from torch.utils import cpp_extension

    with pytest.raises(OSError, match=r"(?s)CUDA sources cannot be built.*try: "):
        cpp_extension.CUDAExtension("nix", ["nix.cu"])


def test_a_thread_sees_it(cuda: torch.device) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(2).cuda(cuda.index) + 1))
    thread.start()
    thread.join()
    assert found[0].device == cuda


# -- on and off -----------------------------------------------------------------------------------------------------
def _snapshot() -> dict[Any, int]:
    """Everything in torch's modules and in the classes that are changed."""
    profiler = torch.autograd.profiler
    classes = (torch.Tensor, Tensor, torch.UntypedStorage, torch.utils._device.DeviceContext, torch.autocast,
               torch._subclasses.FakeTensor, profiler.profile, profiler.emit_nvtx)  # fmt: skip
    owners = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "torch"} | {c: c for c in classes}
    found = {(o, k): id(v) for o, owner in owners.items() for k, v in vars(owner).items()}
    lists = {"pickle": torch.serialization._package_registry, "path": sys.meta_path}
    return found | {(n, i): id(v) for n, values in lists.items() for i, v in enumerate(values)}


def test_switching_off_leaves_torch_as_it_was() -> None:
    import torch.utils.cpp_extension

    compat.enable()  # the first time imports modules
    compat.disable()
    before = _snapshot()
    compat.enable()
    changed = {k for k, v in _snapshot().items() if before.get(k) != v}
    assert (torch.cuda.__name__, "is_available") in changed
    compat.disable()
    after = _snapshot()
    assert {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)} == set()


@pytest.mark.parametrize("call", [lambda: torch.ones(2, device="cuda"), lambda: torch.ones(2).to("cuda:0")])
def test_off_again_torch_says_what_it_said(call: Callable[[], Any]) -> None:
    compat.enable()
    torch.set_default_device("cuda")
    assert torch.ones(2).is_cuda
    x = torch.ones(2)
    compat.disable()
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        call()
    assert not torch.cuda.is_available()
    assert torch.ones(2).device.type == "cpu"
    assert x.device.type == "npu"
    assert not x.is_cuda
    assert (x + 1).tolist() == [2, 2]


def test_an_error_on_the_way_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _snapshot()

    def fail() -> Any:
        raise KeyError("part")

    monkeypatch.setattr(cuda_refused, "patches", fail)
    with pytest.raises(KeyError, match="part"):
        compat.enable()
    monkeypatch.undo()
    assert not compat.is_enabled()
    after = _snapshot()
    assert {k for k in before.keys() & after.keys() if before[k] != after[k]} == set()


def test_real_cuda_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = _snapshot()
    with pytest.warns(UserWarning, match="keeps meaning CUDA"):
        torch_fl.init(cuda_compat=True)
    assert not compat.is_enabled()
    assert _snapshot() == before
    torch_fl.init(cuda_compat="force")
    assert torch.ones(2, device="cuda").is_cuda
    torch_fl.init(cuda_compat=False)
    assert _snapshot() == before


def test_init_switches() -> None:
    torch_fl.init(cuda_compat=True)
    torch_fl.init()  # no opinion
    assert torch.cuda.is_available()
    torch_fl.init(cuda_compat=True)
    torch_fl.init(cuda_compat=False)
    torch_fl.init(cuda_compat=False)
    assert not torch.cuda.is_available()


def test_ops_are_the_same_with_it() -> None:
    """Nothing stands on the way of an op: only functions that name a device, or state, are replaced."""
    ops = [*vars(torch._C.TensorBase), "__torch_dispatch__", "__torch_function__", "device", "data", "grad"]
    naming = {"to", "cuda", "type", "new_tensor", "is_pinned", "pin_memory", "is_cuda", "type_as"}
    names = [n for n in ops if n not in naming]
    before = [getattr(c, n, None) for c in (torch.Tensor, Tensor) for n in names]
    functions = {n: getattr(torch, n) for n in ("add", "mm", "relu", "matmul", "sum", "cat", "where", "conv2d")}
    compat.enable()
    after = [getattr(c, n, None) for c in (torch.Tensor, Tensor) for n in names]
    same = all(getattr(torch, n) is f for n, f in functions.items())
    compat.disable()
    assert [n for n, x, y in zip(names * 2, before, after) if x is not y and x != y] == []
    assert same


# -- the environment and the command --------------------------------------------------------------------------------
@pytest.mark.device
def test_the_environment_switches_it_on() -> None:
    code = "import torch; print(torch.cuda.is_available(), torch.ones(2).cuda().device)"
    assert output_of(code, TORCH_FL_CUDA="1", TORCH_FL_BACKENDS="host") == "True cuda:0\n"


@pytest.mark.device
def test_without_a_chip_cuda_is_not_available() -> None:
    code = """
import torch
print(torch.cuda.is_available(), torch.cuda.device_count())
try:
    torch.ones(2).cuda()
except RuntimeError as error:
    print("no device was found" in str(error))
print((torch.ones(2) + 1).tolist())
"""
    text = output_of(code, TORCH_FL_CUDA="1", TORCH_FL_BACKENDS="host", TORCH_FL_CC="/nonexistent")
    assert text == "False 0\nTrue\n[2.0, 2.0]\n"


SCRIPTS = {"mnist": [], "amp": [], "resume": [], "gan": [], "language_model": ["--cuda"]}


def _script(name: str) -> str:
    return str(HERE / "cuda_scripts" / f"{name}.py")


def _passed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.device
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_by_environment(name: str) -> None:
    strict = ["-W", "error::UserWarning"]
    _passed(run_python(*strict, _script(name), *SCRIPTS[name], TORCH_FL_CUDA="1", TORCH_FL_BACKENDS="opencl,host"))


@pytest.mark.device
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_by_command(name: str) -> None:
    command = ["-m", "torch_fl.cli", "run", "--cuda", "--no-console", "--fallback", "allow", _script(name)]
    _passed(run_python(*command, *SCRIPTS[name], TORCH_FL_BACKENDS="host"))


@pytest.mark.device
def test_no_cuda_stays_on_the_cpu() -> None:
    done = run_python(_script("mnist"), "--no-cuda", "--epochs", "3", TORCH_FL_CUDA="1", TORCH_FL_BACKENDS="host")
    _passed(done)
    assert done.stdout.endswith("device cpu cuda False\n")


@pytest.mark.device
def test_children_of_the_command_have_it(tmp_path: Path) -> None:
    script = tmp_path / "spawning.py"
    script.write_text(
        "import torch, torch.multiprocessing as mp\n"
        "def work(rank): print(rank, torch.ones(2, device='cuda').sum().item(), flush=True)\n"
        "if __name__ == '__main__': mp.spawn(work, nprocs=1)\n"
    )
    done = run_python("-m", "torch_fl.cli", "run", "--cuda", "--no-console", str(script), TORCH_FL_BACKENDS="host")
    assert done.stdout == "0 2.0\n", done.stderr
    assert os.environ.get("TORCH_FL_CUDA") is None
