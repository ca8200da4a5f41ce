"""The vendor's libraries behind the adapters for cards: which calls go there, and that torch's results come out.

The libraries are a stand-in (tests/cupy_double.py). What runs through them is compared with torch's CPU in values,
strides, infos and errors.
"""

from __future__ import annotations

import pytest
from subprocesses import HERE, output_of

pytestmark = pytest.mark.device

DOUBLE = {"PYTHONPATH": f"{HERE / 'double'}:{HERE}", "TORCH_FL_BACKENDS": "cuda"}
START = """
import cupy, cupy_double, torch, torch_fl
from conftest import assert_same
torch_fl.set_fallback("error")
torch.manual_seed(0)
npu, linalg = torch.device("npu"), torch.linalg
def went(*names):
    found = [c[0] for c in cupy_double.calls if c[0] in names]
    cupy_double.calls.clear()
    return len(found)
def same(f, *args, near=None):
    assert_same(f, *args, device=npu, rtol=near, atol=near)
"""
LINALG = """
NAMES = ("potrf", "getrf", "getrs", "geqrf", "ormqr", "trsm", "syevd", "gesvd")
def positive(a):
    return a @ a.mT + a.shape[-1] * torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
OPS = {
    "cholesky": lambda a: [linalg.cholesky_ex(positive(a), upper=u) for u in (False, True)],
    "cholesky solve": lambda a: [torch.cholesky_solve(a[..., :3], a.tril(), False), torch.cholesky_inverse(a.tril())],
    "lu": lambda a: [tuple(linalg.lu_factor_ex(a)), tuple(linalg.lu(a)), linalg.slogdet(a), linalg.inv(a)],
    "solve": lambda a: [linalg.solve(a, a[..., :3] + 1), linalg.solve(a, a[..., :3, :], left=False)],
    "lu_solve": lambda a: [linalg.lu_solve(*linalg.lu_factor(a), a[..., :5], adjoint=t) for t in (True, False)],
    "qr": lambda a: [tuple(linalg.qr(a, mode)) for mode in ("reduced", "complete", "r")],
    "triangle": lambda a: [
        linalg.solve_triangular(m, a[..., :5] if left else a[..., :5, :], upper=u, left=left, unitriangular=unit)
        for m in (a / 9, (a / 9).mT) for u in (True, False) for left in (True, False) for unit in (True, False)],
    "eigh": lambda a: [linalg.eigh(a, UPLO=w)[0] for w in "UL"] + [linalg.eigvalsh(a)],
    "svd": lambda a: [linalg.svd(a)[1], linalg.svdvals(a)],
}
for name, op in OPS.items():
    for dtype in (torch.float64, torch.float32):
        for shape in ((17, 17), (2, 40, 40), (64, 64)):
            a = torch.randn(shape, dtype=dtype) + 9 * torch.eye(shape[-1], dtype=dtype)
            for x in (a, a.mT.contiguous().mT, torch.stack([a, a], -1)[..., 1]):
                same(op, x, near=None if dtype == torch.float64 else 1e-3)
    print(name, went(*NAMES) > 0)
for shape in ((40, 17), (17, 40), (2, 70, 33)):
    a = torch.randn(shape, dtype=torch.float64)
    same(lambda a: [tuple(linalg.lu_factor_ex(a)), tuple(linalg.lu(a))], a)
    for mode in ("reduced", "complete", "r"):
        same(lambda a: tuple(linalg.qr(a, mode)), a)
    for full in (True, False):
        u, s, vh = (t.cpu() for t in linalg.svd(a.npu(), full_matrices=full))
        k = min(a.shape[-2:])
        torch.testing.assert_close(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a)
        torch.testing.assert_close(u.mT @ u, torch.eye(u.shape[-1]).to(u).expand(u.mT.shape[:-1] + u.shape[-1:]))
        assert linalg.svd(a, full_matrices=full)[2].stride() == vh.stride()
a = positive(torch.randn(2, 33, 33))
w, v = (t.cpu() for t in linalg.eigh(a.npu()))
torch.testing.assert_close(v * w[..., None, :] @ v.mT, a, rtol=1e-4, atol=1e-4)
print("batches", went(*NAMES) > 0, end=" ")
same(linalg.inv, torch.randn(9, 40, 40) + 9 * torch.eye(40), near=1e-3)
same(linalg.inv, torch.randn(0, 40, 40))
print(went(*NAMES))
"""
ERRORS = """
bad = torch.eye(40).double()
bad[20, 20] = -1
singular = torch.ones(40, 40).double()
out = torch.empty(1)
for f in (lambda a: linalg.cholesky(a), lambda a: linalg.inv(a * 0), lambda a: linalg.solve(a * 0, a)):
    texts = []
    for a in (bad, bad.npu()):
        try:
            f(a)
        except linalg.LinAlgError as error:
            texts.append(str(error))
    assert texts[0] == texts[1], texts
same(lambda a: linalg.cholesky_ex(a).info, torch.stack([bad, bad.abs()]))
same(lambda a: tuple(linalg.lu_factor_ex(a)), singular)
x = torch.randn(40, 40, dtype=torch.float64) + 9 * torch.eye(40)
into = torch.empty(40, 40, dtype=torch.float64, device=npu)
linalg.inv(x.npu(), out=into)
torch.testing.assert_close(into.cpu(), linalg.inv(x))
y = x.npu().requires_grad_()
linalg.solve(y, y.sum(-1)).sum().backward()
x.requires_grad_()
linalg.solve(x, x.sum(-1)).sum().backward()
torch.testing.assert_close(y.grad.cpu(), x.grad)
print("same")
"""
FFT = """
fft = torch.fft
for norm in ("backward", "ortho", "forward"):
    for shape in ((12,), (5, 7), (3, 4, 6), (2, 3, 4, 5)):
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(shape, dtype=dtype)
            z = torch.complex(x, torch.randn_like(x))
            for t in (x, x.mT.contiguous().mT if x.dim() > 1 else x.repeat_interleave(2)[::2]):
                same(lambda t: [f(t, norm=norm) for f in (fft.fft, fft.rfft, fft.rfftn, fft.ihfft, fft.hfft)], t)
            same(lambda z: [fft.fftn(z, norm=norm), fft.ifftn(z, norm=norm), fft.ifft(z, dim=0, norm=norm)], z)
            for n in (None, 2 * shape[-1] - 1):
                same(lambda z: [fft.irfft(z, n=n, norm=norm), fft.fft(z, n=n)], z)
            same(lambda z: fft.irfftn(z, norm=norm), z)
print(went("fftn", "ifftn", "rfftn", "irfftn") > 0)
print(tuple(fft.fft(torch.randn(0, 5).npu()).shape), went("fftn"))
x = torch.randn(4, 8, requires_grad=True)
y = x.detach().npu().requires_grad_()
for t in (x, y):
    fft.irfft2(fft.rfft2(t) * 2).square().sum().backward()
torch.testing.assert_close(y.grad.cpu(), x.grad)
"""
ORDER = """
n = 2500
plain = torch.randint(-40, 40, (n,))
special = plain.float()
special[::100], special[1::100], special[2::100] = float("nan"), float("inf"), -0.0
for x in (plain, special, special.double(), special.half(), plain.to(torch.uint8), plain > 0, special.bfloat16()):
    for lines in (x, torch.stack([x, x.flip(0)]), torch.stack([x, x.flip(0)], -1)):
        for descending in (False, True):
            dim = lines.shape.index(n)
            same(lambda t: tuple(t.sort(dim=dim, descending=descending, stable=True)), lines)
    print(str(x.dtype), went("argsort"))
values, indices = torch.empty(n, device=npu), torch.empty(n, dtype=torch.int64, device=npu)
torch.sort(special.npu(), out=(values, indices), stable=True)
torch.testing.assert_close([values.cpu(), indices.cpu()], list(torch.sort(special, stable=True)), equal_nan=True)
went("argsort")
for x in (torch.randn(5000), torch.randn(5000).double(), torch.arange(5000), torch.arange(5000, dtype=torch.int16),
          torch.ones(5000).bool(), torch.randn(1, 5000, 1), torch.randn(10000)[::2], torch.randn(5000).half()):
    same(lambda t: t.cumsum(x.shape.index(5000)), x, near=1e-2 if x.dtype == torch.half else None)
    print(str(x.dtype), went("cumsum"), end=" ")
same(lambda t: t.cumprod(0), torch.rand(5000) + 0.5)
same(lambda t: t.cumsum_(0), torch.randn(5000))
print(went("cumprod", "cumsum"))
"""
MISSING = """
cupy_double.fail |= {"cusolver", "cufft", "thrust", "cublasCreate"}
a = torch.randn(40, 40) + 9 * torch.eye(40)
same(linalg.inv, a, near=1e-3)
same(torch.fft.fft, a)
same(lambda t: t.sort(stable=True), torch.arange(3000.0).flip(0))
same(lambda t: t @ t, a)
print(went("getrf", "trsm", "fftn", "argsort", "matmul"))
cupy_double.fail.clear()
same(linalg.inv, a[:39, :39], near=1e-3)
print(went("getrf"))
for note in torch_fl.devices()[0].backend.notes():
    print(note)
"""
MISSED = """0
0
cusolver is not used for linear algebra: libcusolver.so: cannot open shared object file
cublas is not used for products: cudaErrorUnknown: cublasCreate
cufft is not used for Fourier transforms: libcufft.so: cannot open shared object file
thrust is not used for sorting: libthrust.so: cannot open shared object file
cudnn 9.99.0 is used for convolutions and attention
"""
STREAMS = """
side = [torch.npu.Stream() for _ in range(2)]
a = torch.randn(64, 64, dtype=torch.float64) + 9 * torch.eye(64)
x, found = a.npu(), []
torch.npu.synchronize()
first = linalg.inv(x)
for stream in side:
    with torch.npu.stream(stream):
        found += [linalg.inv(x), torch.fft.fft(x)]
waits = []
wait = cupy_double.Stream.wait_event
cupy_double.Stream.wait_event = lambda self, event: (waits.append(self.ptr), wait(self, event))
with torch.npu.stream(side[0]):
    found.append(torch.fft.fft(x))
    again = torch.fft.fft(x)
print(len(waits))
for got, want in zip([first, *found], [linalg.inv(a), *[linalg.inv(a), torch.fft.fft(a)] * 2, torch.fft.fft(a)]):
    torch.testing.assert_close(got.cpu(), want)
"""
HIP = """
import cupy_double, torch, torch_fl
cupy_double.install(hip=True)
torch_fl.set_fallback("error")
a = torch.randn(40, 40) + 9 * torch.eye(40)
torch.testing.assert_close(torch.linalg.inv(a.npu()).cpu(), torch.linalg.inv(a), rtol=1e-3, atol=1e-3)
torch.testing.assert_close(torch.linalg.eigvalsh(a.npu()).cpu(), torch.linalg.eigvalsh(a), rtol=1e-3, atol=1e-3)
torch.testing.assert_close(torch.linalg.svdvals(a.npu()).cpu(), torch.linalg.svdvals(a), rtol=1e-3, atol=1e-3)
print([n for n in ("getrf", "syevd", "gesvd") if any(c[0] == n for c in cupy_double.calls)])
"""


def _same(code: str) -> str:
    return output_of(START + code, timeout=400, **DOUBLE)


def test_linear_algebra_of_large_matrices() -> None:
    lines = _same(LINALG).splitlines()
    assert len(lines) == 10
    assert all(line.endswith("True") for line in lines[:-1])
    assert lines[-1] == "batches True 0"


def test_infos_errors_destinations_and_gradients() -> None:
    assert _same(ERRORS) == "same\n"


def test_transforms() -> None:
    assert _same(FFT) == "True\n(0, 5) 0\n"


def test_sorts_and_scans() -> None:
    sorts, scans = _same(ORDER).rsplit("\n", 2)[:2]
    assert [line.split()[1] for line in sorts.splitlines()] == ["6"] * 6 + ["0"]
    assert scans.split()[1:-1:2] + scans.split()[-1:] == ["1"] * 7 + ["0", "2"]


def test_a_library_that_is_missing_leaves_the_portable_route() -> None:
    assert _same(MISSING) == MISSED


def test_calls_of_a_thread_take_turns_across_streams() -> None:
    assert _same(STREAMS) == "1\n"


def test_rocm_has_the_same_calls_but_for_eigenvalues() -> None:
    assert output_of(HIP, **{**DOUBLE, "TORCH_FL_BACKENDS": "rocm"}) == "['getrf', 'gesvd']\n"
