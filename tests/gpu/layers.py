"""Convolutions and attention by the vendor's library against our kernels: `python tests/gpu/layers.py [--json FILE]`.

Each layer runs forward and backward both ways: how far off the CPU's float32 each is, milliseconds, and how many calls
the library did (0: it is not there, or refuses). Fails where one is wrong. What is worth it is a table of the adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from command import arguments, write
from shapes import seconds

from torch_fl import dispatch
from torch_fl.runtime.devices import devices

Layer = tuple[Callable[..., torch.Tensor], list[tuple[int, ...]]]

TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}
"""Of the largest number of each result; TF32 has as many digits as float16."""


def layers(n: int) -> dict[str, Layer]:
    """Layers around n channels or positions."""
    image, heads = (8, n, 56, 56), (4, 8, 8 * n, 64)

    def mask(q: torch.Tensor) -> torch.Tensor:
        return torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril(8)

    attend = F.scaled_dot_product_attention
    return {
        "conv 3x3": (lambda x, w: F.conv2d(x, w, padding=1), [image, (n, n, 3, 3)]),
        "conv 3x3, channels last": (
            lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w, padding=1), [image, (n, n, 3, 3)],
        ),
        "conv 3x3 stride 2, 4 groups": (
            lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=4), [image, (n, n // 4, 3, 3)],
        ),
        "conv 3x3 depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=n), [image, (n, 1, 3, 3)]),
        "conv 1x1": (lambda x, w: F.conv2d(x, w), [image, (4 * n, n, 1, 1)]),
        "conv 3x3x3": (lambda x, w: F.conv3d(x, w, padding=1), [(2, n, 8, 28, 28), (n, n, 3, 3, 3)]),
        "attention": (lambda q, k, v: attend(q, k, v), [heads] * 3),
        "attention, causal": (lambda q, k, v: attend(q, k, v, is_causal=True), [heads] * 3),
        "attention, masked": (lambda q, k, v: attend(q, k, v, mask(q)), [heads] * 3),
        "attention, 2 key heads": (
            lambda q, k, v: attend(q, k, v, enable_gqa=True), [heads, *[(4, 2, 8 * n, 64)] * 2],
        ),
    }  # fmt: skip


def both(f: Callable[..., torch.Tensor], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """The result and the gradients of all leaves."""
    out = f(*leaves)
    return [out, *torch.autograd.grad(out, leaves, torch.ones_like(out))]


@contextmanager
def library(used: bool) -> Iterator[None]:
    """The vendor's libraries on or off, for plans made inside."""
    backend: Any = devices()[0].backend
    if backend.family == "cupy":
        backend.libraries.used = used
    dispatch.forget_plans()
    yield
    if backend.family == "cupy":
        backend.libraries.used = True


def calls() -> int:
    """Of cuDNN, so far."""
    backend: Any = devices()[0].backend
    found = backend.libraries.get("cudnn") if backend.name == "cuda" else None
    return 0 if found is None else int(found.calls)


def measure(f: Callable[..., torch.Tensor], shapes: list[tuple[int, ...]], dtype: torch.dtype, times: int) -> Any:
    """One line: errors and milliseconds both ways, and the library's calls."""
    plain = [(torch.randn(s) / s[1] ** 0.5).to(dtype) for s in shapes]
    want = both(f, [t.float().requires_grad_() for t in plain])
    leaves = [t.npu().requires_grad_() for t in plain]
    line: dict[str, Any] = {}
    for side in ("library", "ours"):
        with library(side == "library"):
            before = calls()
            got = [t.float().cpu() for t in both(f, leaves)]
            line["calls"] = line.get("calls", 0) + calls() - before
            line[f"{side} error"] = max(((g - w).abs().max() / w.abs().max()).item() for g, w in zip(got, want))
            line[f"{side} ms"] = 1e3 * seconds(lambda: both(f, leaves), times)
    line["ok"] = all(line[f"{side} error"] <= TOLERANCE[dtype] for side in ("library", "ours"))
    return line


def main() -> None:
    """Measure, print, and write."""
    args = arguments(__doc__)
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False
    backend: Any = devices()[0].backend
    if args.small and backend.name == "cuda":
        from torch_fl.backends import _cudnn

        _cudnn.LEAST.update(dict.fromkeys(_cudnn.LEAST, 0))
    found = {}
    for dtype in (torch.float16,) if args.small else (torch.float16, torch.bfloat16, torch.float32):
        for name, (f, shapes) in layers(8 if args.small else 64).items():
            line = found[f"{name} {dtype}"] = measure(f, shapes, dtype, 1 if args.small else 10)
            print(f"{name:28} {dtype!s:15}", *(f"{k} {v:.3g}" for k, v in line.items()))
    for note in devices()[0].backend.notes():
        print(note)
    write(found, args.json)
    raise SystemExit(not all(line["ok"] for line in found.values()))


if __name__ == "__main__":
    main()
