"""How fast a card's own kernels are, in numbers of the card: `python tests/gpu/shapes.py [--json FILE] [--small]`.

Each work is run a few times with one wait at the end. TFLOP/s where arithmetic is the limit, GB/s where memory is. The
works that the vendor's library does are timed through it and, as `portable`, through our kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from command import arguments, write

from torch_fl import dispatch
from torch_fl.runtime.devices import devices

Work = tuple[str, Callable[[], Any], float, str]
"""Name, what to run, and how much it is: floating-point operations ("T") or bytes ("G")."""


def _backward(f: Callable[..., torch.Tensor], *leaves: torch.Tensor) -> Callable[[], Any]:
    leaves = tuple(t.requires_grad_() for t in leaves)
    grad = torch.ones_like(f(*leaves).detach())
    return lambda: torch.autograd.grad(f(*leaves), leaves, grad)


def works(d: str, n: int) -> Iterator[Work]:
    """Works around n rows and columns."""

    def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape).to(d, dtype)

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        a, x = rand(n, n, dtype=dtype), rand(n, n, dtype=dtype)
        yield f"mm {n} {dtype}", lambda a=a, x=x: a @ x, 2 * n**3, "T"
    a, x = rand(n, n), rand(n, n)
    yield "mm transposed", lambda: a.t() @ x.t(), 2 * n**3, "T"
    yield "mm of one row", lambda: a[:1] @ x.t(), 4 * n * n, "G"
    yield "softmax", lambda: x.softmax(1), 8 * n * n, "G"
    yield "log_softmax forward + backward", _backward(lambda t: t.log_softmax(1), rand(n, n)), 28 * n * n, "G"
    yield "layer norm", lambda: F.layer_norm(x, (n,)), 8 * n * n, "G"
    norm = _backward(lambda t, w: F.rms_norm(t, (n,), w), rand(n, n), rand(n))
    yield "rms norm forward + backward", norm, 28 * n * n, "G"
    for name in ("sum", "mean", "amax", "argmax", "var"):
        yield f"{name} of rows", lambda name=name: getattr(x, name)(1), 4 * n * n, "G"
    yield "sum of columns", lambda: x.sum(0), 4 * n * n, "G"
    yield "sum of all", lambda: x.sum(), 4 * n * n, "G"
    yield "add", lambda: a + x, 12 * n * n, "G"
    yield "gelu", lambda: F.gelu(x), 8 * n * n, "G"
    yield "add a row", lambda: x + a[0], 8 * n * n, "G"
    yield "transpose copy", lambda: x.t().contiguous(), 8 * n * n, "G"
    yield "cast to bfloat16", lambda: x.bfloat16(), 6 * n * n, "G"
    s = max(8, n // 64)
    image, weight = rand(16, 64, s, s), rand(64, 64, 3, 3)
    flops = 2 * 16 * 64 * 64 * 9 * s * s
    yield "conv 3x3", lambda: F.conv2d(image, weight, padding=1), flops, "T"
    both = _backward(lambda i, w: F.conv2d(i, w, padding=1), image.clone(), weight.clone())
    yield "conv 3x3 forward + backward", both, 3 * flops, "T"
    half = [t.half() for t in (image, weight)]
    yield "conv 3x3 torch.float16", lambda: F.conv2d(*half, padding=1), flops, "T"
    both = _backward(lambda i, w: F.conv2d(i, w, padding=1), *(t.clone() for t in half))
    yield "conv 3x3 torch.float16 forward + backward", both, 3 * flops, "T"
    depthwise = rand(64, 1, 3, 3)
    yield "conv 3x3 depthwise", lambda: F.conv2d(image, depthwise, padding=1, groups=64), 8 * image.numel(), "G"
    q, k, v = (rand(4, 8, n // 4, 64) for _ in range(3))
    flops = 4 * 4 * 8 * (n // 4) ** 2 * 64
    attend = F.scaled_dot_product_attention
    yield "attention", lambda: attend(q, k, v), flops, "T"
    yield "attention, causal", lambda: attend(q, k, v, is_causal=True), flops / 2, "T"
    yield "attention forward + backward", _backward(attend, q.clone(), k.clone(), v.clone()), 3.5 * flops, "T"
    short = [t.half() for t in (q, k, v)]
    yield "attention torch.float16", lambda: attend(*short), flops, "T"
    both = _backward(attend, *(t.clone() for t in short))
    yield "attention torch.float16 forward + backward", both, 3.5 * flops, "T"
    yield from library_works(d, n)


def library_works(d: str, n: int) -> Iterator[Work]:
    """Linear algebra on matrices of n / 4 rows, transforms, sorts and scans of n * n / 4 elements."""
    m = n // 4
    a = torch.randn(m, m).to(d)
    positive = a @ a.t() + m * torch.eye(m).to(d)
    lower, linalg = positive.tril(), torch.linalg
    yield "cholesky", lambda: linalg.cholesky_ex(positive), m**3 / 3, "T"
    yield "LU", lambda: linalg.lu_factor_ex(a), 2 * m**3 / 3, "T"
    yield "QR", lambda: linalg.qr(a), 8 * m**3 / 3, "T"
    yield "solve", lambda: linalg.solve_ex(positive, a), 8 * m**3 / 3, "T"
    yield "solve a triangle", lambda: linalg.solve_triangular(lower, a, upper=False), m**3, "T"
    small = positive[: m // 4, : m // 4]
    yield "eigenvalues", lambda: linalg.eigh(small), 9 * (m // 4) ** 3, "T"
    yield "singular values", lambda: linalg.svdvals(small), 8 * (m // 4) ** 3 / 3, "T"
    flat = torch.randn(m * n).to(d)
    yield "FFT of rows", lambda: torch.fft.rfft(flat.view(m, n)), 6 * m * n, "G"
    yield "FFT of planes", lambda: torch.fft.rfft2(flat.view(-1, 64, 64)), 6 * m * n, "G"
    yield "sort", lambda: flat.sort(), 16 * m * n, "G"
    yield "cumsum", lambda: flat.cumsum(0), 8 * m * n, "G"


def seconds(run: Callable[[], Any], times: int) -> float:
    """Seconds of one run, the best of three rounds."""
    run()
    best = float("inf")
    for _ in range(3):
        torch.npu.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            run()
        torch.npu.synchronize()
        best = min(best, (time.perf_counter() - start) / times)
    return best


LIBRARY = (
    "mm",
    "conv",
    "attention",
    "cholesky",
    "LU",
    "QR",
    "eigenvalues",
    "singular",
    "solve",
    "FFT",
    "sort",
    "cumsum",
)
"""Works that the vendor's library does where there is one; they are measured without it as well."""


def measure(n: int, times: int, names: tuple[str, ...] = ("",)) -> dict[str, dict[str, float | str]]:
    """Every work whose name starts with `names`."""
    found: dict[str, dict[str, float | str]] = {}
    for name, run, amount, unit in works("npu", n):
        if name.startswith(names):
            took = seconds(run, times)
            rate = amount / took / (1e12 if unit == "T" else 1e9)
            found[name] = {"ms": took * 1e3, "rate": rate, "unit": "TFLOP/s" if unit == "T" else "GB/s"}
    return found


def main() -> None:
    """Measure, print, and write."""
    args = arguments(__doc__)
    n, times = (256, 1) if args.small else (4096, 10)
    found = measure(n, times)
    chip: Any = devices()[0]
    if chip.backend.family == "cupy":
        chip.backend.libraries.used = False
        dispatch.forget_plans()
        found |= {f"portable: {k}": v for k, v in measure(n, times, LIBRARY).items()}
        chip.backend.libraries.used = True
    for name, line in found.items():
        print(f"{name:52} {line['ms']:10.3f} ms {line['rate']:10.2f} {line['unit']}")
    write(found, args.json)


if __name__ == "__main__":
    main()
