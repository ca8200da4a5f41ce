"""cuDNN behind the adapter for CUDA: which problems go there, that torch's results come out, and what it depends on.

The library is a stand-in (tests/cudnn_double.py); that the real one takes these graphs is tests/test_cudnn_graphs.py.
"""

from __future__ import annotations

import pytest
from subprocesses import HERE, output_of

pytestmark = pytest.mark.device

DOUBLE = {"PYTHONPATH": f"{HERE / 'double'}:{HERE}", "TORCH_FL_BACKENDS": "cuda"}
START = """
import sys, torch, torch_fl
import torch.nn.functional as F
import cupy, cupy_double, cudnn_double
from conftest import assert_same
from torch_fl import dispatch
from torch_fl.backends import _cudnn
torch_fl.set_fallback("error")
torch.manual_seed(0)
npu, cudnn = torch.device("npu"), torch.backends.cudnn
cudnn.allow_tf32 = True  # tests are exact else
least = dict(_cudnn.LEAST)
_cudnn.LEAST.update(dict.fromkeys(least, 0))
def went():
    found = [c[0] for c in cupy_double.calls if hasattr(cudnn_double.pygraph, c[0])]
    cupy_double.calls.clear()
    return " ".join(found) or "-"
NEAR = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
def same(f, *args):
    near = NEAR[next(a for a in args if a is not None).dtype]
    assert_same(f, *args, device=npu, rtol=near, atol=near)
def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype).requires_grad_()
"""
CONVOLUTIONS = """
torch.backends.cudnn.allow_tf32 = False
every = "conv_fprop conv_dgrad conv_wgrad"
PROBLEMS = (
    (F.conv1d, (2, 4, 12), (6, 4, 3), dict(padding=1, stride=2)),
    (F.conv2d, (2, 4, 9, 8), (6, 4, 3, 3), dict(padding=(1, 2), stride=(2, 1))),
    (F.conv2d, (3, 6, 7, 9), (4, 3, 3, 2), dict(groups=2, dilation=(2, 3))),
    (F.conv2d, (2, 4, 6, 6), (8, 1, 3, 3), dict(groups=4, padding=1)),
    (F.conv2d, (1, 5, 4, 4), (3, 5, 1, 1), {}),
    (F.conv3d, (2, 3, 4, 5, 6), (4, 3, 2, 3, 3), dict(padding=1)),
    (F.conv3d, (1, 2, 3, 5, 6), (2, 2, 1, 3, 3), {}),
    (F.conv_transpose2d, (2, 6, 5, 4), (6, 2, 3, 3), dict(stride=2, padding=1, output_padding=1, groups=2)),
)
for f, x, w, more in PROBLEMS:
    for dtype in NEAR:
        channels = w[1] * more.get("groups", 1) if f is F.conv_transpose2d else w[0]
        operands = [leaf(*s, dtype=dtype) for s in (x, w, (channels,))]
        same(lambda x, w, b: f(x, w, b, **more), *operands)
        count = len(went().split())
        assert count == 3, (f, x, dtype, count)
for form in (torch.channels_last, torch.contiguous_format):
    x, w = leaf(2, 4, 6, 5), leaf(3, 4, 3, 3)
    x, w = (t.detach().to(memory_format=form).requires_grad_() for t in (x, w))
    same(lambda x, w: F.conv2d(x, w, padding=1), x, w)
    strides = {tuple(t.known["stride"]) for t in cudnn_double.built[-3].writes}
    print(form, went(), strides)
wide = torch.randn(2, 4, 6, 10)
same(lambda x, w: F.conv2d(x[..., ::2], w), wide, torch.randn(3, 4, 3, 3))
same(lambda x, w: F.conv2d(x.expand(2, 4, 6, 6), w.mT), torch.randn(1, 4, 6, 1), torch.randn(3, 4, 3, 2))
print(went())
same(lambda x, w: F.conv2d(x[1:].view(1, 4, 5, 5), w), torch.randn(101), torch.randn(3, 4, 3, 3))
print("unaligned", went())
more = dict(dilation=3, output_padding=2, stride=2)
same(lambda x, w: F.conv_transpose2d(x, w, **more), leaf(1, 4, 5, 5), leaf(4, 3, 2, 2))
print("padded further", went())
for dtype in (torch.float64, torch.int64):
    x, w = torch.ones(1, 1, 4, 4, dtype=dtype), torch.ones(1, 1, 2, 2, dtype=dtype)
    torch.testing.assert_close(F.conv2d(x.npu(), w.npu()).cpu(), F.conv2d(x, w))
same(lambda x, w: F.conv2d(x, w), torch.randn(0, 4, 6, 6), torch.randn(3, 4, 3, 3))
print("left", went())
"""
CONVOLVED = """torch.channels_last conv_fprop conv_dgrad conv_wgrad {(90, 1, 15, 3)}
torch.contiguous_format conv_fprop conv_dgrad conv_wgrad {(90, 30, 5, 1)}
conv_fprop conv_fprop
unaligned -
padded further -
left -
"""
ATTENTION = """
attend = F.scaled_dot_product_attention
def inputs(b, h, hk, lq, lk, e, ev, dtype):
    return [leaf(*s, dtype=dtype) for s in ((b, h, lq, e), (b, hk, lk, e), (b, hk, lk, ev))]
SIZES = ((2, 4, 4, 9, 9, 16, 16), (1, 4, 2, 5, 13, 8, 24), (2, 3, 1, 17, 6, 32, 8))
for dtype in (torch.float16, torch.bfloat16):
    for sizes in SIZES:
        for causal in (False, True):
            same(lambda q, k, v: attend(q, k, v, is_causal=causal, enable_gqa=True), *inputs(*sizes, dtype))
            same(lambda q, k, v: attend(q, k, v, is_causal=causal, enable_gqa=True, scale=0.3), *inputs(*sizes, dtype))
            print(went())
(b, h, _, lq, lk, *_), dtype = SIZES[1], torch.float16
for mask in (torch.rand(lq, lk) > 0.4, torch.randn(b, 1, lq, lk).half(), torch.randn(b, h, 1, lk).half(),
             torch.rand(1, h, lq, 1) > 0.4, torch.randn(b, h, lq, 16).half()[..., :lk], torch.zeros(lq, lk).bool()):
    if mask.shape[-2] > 1:
        mask[..., 2, :] = False if mask.dtype == torch.bool else -torch.inf
    where = {"cpu": mask, "npu": mask.npu()}
    same(lambda q, k, v: attend(q, k, v, where[q.device.type], enable_gqa=True), *inputs(*SIZES[1], dtype))
    print(went())
def heads(q, k, v):
    q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in (q, k, v))
    return attend(q, k, v).transpose(1, 2).flatten(2)
same(heads, *[leaf(2, 6, 32, dtype=torch.half) for _ in range(3)])
print(went())
q, k, v = inputs(2, 4, 4, 6, 6, 8, 8, torch.half)
same(lambda q, k, v: attend(q, k[:1, :, ::2].expand(2, 4, 3, 8), v.mT.contiguous().mT[:, :, :3]), q, k, v)
print(went())
same(lambda q, k, v: attend(q, k, v), *inputs(1, 2, 2, 5, 5, 12, 12, torch.half))
same(lambda q, k, v: attend(q, k, v), *inputs(1, 2, 2, 5, 5, 8, 8, torch.float32))
print("left", went())
"""
ATTENDED = ["sdpa sdpa_backward sdpa sdpa_backward"] * 12 + ["sdpa sdpa_backward"] * 8 + ["left -"]
SWITCHES = """
x, w = leaf(2, 4, 6, 6), leaf(3, 4, 3, 3)
x.requires_grad_(False)
conv = lambda: same(lambda x, w: F.conv2d(x, w), x, w)
def told():
    return [sorted(n.name for n in g.avoided) + [m.name for m in g.modes] for g in cudnn_double.built]
conv()
print("usual", went(), told())
cudnn_double.built.clear()
conv()
dispatch.forget_plans()
conv()
print("again", went(), told())
with cudnn.flags(enabled=False):
    conv()
    dispatch.forget_plans()
    conv()
print("off", went(), told())
conv()
print("on", went(), told())
with cudnn.flags(enabled=True, allow_tf32=False, deterministic=True):
    conv()
    print("exact, the same", went(), told())
cudnn_double.built.clear()
cudnn.conv.fp32_precision = "ieee"
conv()
print("exact", went(), told())
cudnn.conv.fp32_precision = "tf32"
torch.use_deterministic_algorithms(True)
q = leaf(1, 2, 6, 8, dtype=torch.half)
same(lambda q: F.scaled_dot_product_attention(q, q, q), q)
print(went(), cudnn_double.built[-1].numbers["same"], told()[-1])
torch.use_deterministic_algorithms(False)
torch_fl.devices()[0].backend.libraries.used = False
dispatch.forget_plans()
conv()
print("none", went())
"""
SWITCHED = """usual conv_fprop conv_wgrad [['A', 'FALLBACK'], ['A', 'FALLBACK']]
again conv_fprop conv_wgrad conv_fprop conv_wgrad []
off - []
on conv_fprop conv_wgrad []
exact, the same conv_fprop conv_wgrad [['DOWN_CONVERT_INPUTS', 'NONDETERMINISTIC', 'TENSOR_CORE', 'A'], \
['DOWN_CONVERT_INPUTS', 'NONDETERMINISTIC', 'TENSOR_CORE', 'A']]
exact conv_fprop conv_wgrad [['DOWN_CONVERT_INPUTS', 'TENSOR_CORE', 'A'], ['DOWN_CONVERT_INPUTS', 'TENSOR_CORE', 'A']]
sdpa sdpa_backward True ['A']
none -
"""
REFUSED = """
notes = lambda: [n for n in torch_fl.devices()[0].backend.notes() if "cudnn" in n]
print(*notes())
x, w = leaf(2, 4, 6, 6), leaf(3, 4, 3, 3)
cudnn_double.refuse.add("conv_dgrad")
for _ in range(3):
    same(lambda x, w: F.conv2d(x, w), x, w)
    dispatch.forget_plans()
print(went(), len([g for g in cudnn_double.asked if g.method == "conv_dgrad"]))
print(*notes())
cudnn_double.break_on_run.add("conv_fprop")
for _ in range(3):
    same(lambda x, w: F.conv2d(x, w), torch.randn(2, 4, 6, 6), torch.randn(5, 4, 3, 3))
print(went(), cudnn_double.broken)
print(*notes())
"""
REFUSALS = """cudnn 9.99.0 is used for convolutions and attention
conv_fprop conv_wgrad conv_fprop conv_wgrad conv_fprop conv_wgrad 1
cudnn 9.99.0 is used for convolutions and attention; it refused 1, at last conv_dgrad: No valid engine configs
- ['conv_fprop']
cudnn 9.99.0 is used for convolutions and attention; it refused 2, at last running: CUDNN_STATUS_EXECUTION_FAILED
"""
MISSING = """
cupy_double.fail.add("cudnnCreate")
same(lambda x, w: F.conv2d(x, w), torch.randn(2, 4, 6, 6), torch.randn(3, 4, 3, 3))
print(went(), *[n for n in torch_fl.devices()[0].backend.notes() if "cudnn" in n])
"""
MISSED = """- cudnn is not used for convolutions and attention: cudaErrorUnknown: cudnnCreate; \
pip install nvidia-cudnn-frontend nvidia-cudnn-cu12 (or -cu13)
"""
STREAMS = """
import threading
x, w = torch.randn(2, 4, 6, 6), torch.randn(3, 4, 3, 3)
want, here, found = F.conv2d(x, w), (x.npu(), w.npu()), []
def work():
    for stream in (torch.npu.Stream(), torch.npu.default_stream(), torch.npu.Stream()):
        with torch.npu.stream(stream):
            found.append(F.conv2d(*here))
torch.npu.synchronize()
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
for got in found:
    torch.testing.assert_close(got.cpu(), want)
print(went().count("conv_fprop"), len(cudnn_double.built), len(cudnn_double._handles))
x, w = x.to("npu:1"), w.to("npu:1")
torch.testing.assert_close(F.conv2d(x, w).cpu(), want)
print(went(), len(cudnn_double.built))
"""
SMALL = """
_cudnn.LEAST.update(least)
for shape in ((1, 8, 8, 8), (4, 64, 32, 32)):
    x = torch.randn(shape)
    same(lambda x: F.conv2d(x, torch.ones(64, shape[1], 3, 3, device=x.device, dtype=x.dtype) / 9), x)
    print("float32", went(), end=" ")
    same(lambda x: F.conv2d(x, torch.ones(64, shape[1], 3, 3, device=x.device, dtype=x.dtype) / 99), x.half())
    print("half", went())
for lengths in ((1, 256), (64, 64)):
    q, k = (torch.randn(1, 2, n, 16).half() for n in lengths)
    same(lambda q, k: F.scaled_dot_product_attention(q, k, k), q, k)
    print(went())
"""
SENT = """float32 - half -
float32 conv_fprop half conv_fprop
-
sdpa
"""
ELSEWHERE = """
import sys, torch, torch_fl
torch.nn.functional.conv2d(torch.ones(1, 1, 9, 9, device="npu"), torch.ones(1, 1, 3, 3, device="npu")).cpu()
print("cudnn" in sys.modules, [n for n in torch_fl.devices()[0].backend.notes() if "cudnn" in n])
"""


def _told(code: str) -> str:
    return output_of(START + code, timeout=400, **DOUBLE)


def test_convolutions_and_their_gradients() -> None:
    assert _told(CONVOLUTIONS) == CONVOLVED


def test_attention_and_its_gradients() -> None:
    assert _told(ATTENTION).splitlines() == ATTENDED


def test_switches_of_torch_are_read_at_each_call_and_plans_are_kept() -> None:
    assert _told(SWITCHES) == SWITCHED


def test_what_it_refuses_is_done_by_our_kernels_and_asked_once() -> None:
    assert _told(REFUSED) == REFUSALS


def test_without_the_library_the_list_of_devices_says_why() -> None:
    assert _told(MISSING) == MISSED


def test_streams_threads_and_cards() -> None:
    assert _told(STREAMS) == "6 1 2\nconv_fprop 2\n"


def test_small_problems_are_left_to_our_kernels() -> None:
    assert _told(SMALL) == SENT


@pytest.mark.parametrize("backend", ["host", "rocm"])
def test_no_other_adapter_imports_it(backend: str) -> None:
    start = "import cupy_double; cupy_double.install(hip=True)\n" if backend == "rocm" else ""
    assert output_of(start + ELSEWHERE, **{**DOUBLE, "TORCH_FL_BACKENDS": backend}) == "False []\n"
