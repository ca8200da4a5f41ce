"""Convolutions and attention by cuDNN: `Backend.layer` of the CUDA adapter, and when it is worth it.

What is recorded chooses at each replay: torch's switches are read then, and addresses are known then. Where the library
may not be used or refuses, our kernels run; they are recorded when that first happens. A call that fails on the way is
done by ours, and such calls are not tried again, unless it was for memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_fl.aside import Aside
from torch_fl.builder import Builder
from torch_fl.errors import Unsupported
from torch_fl.plan import Step
from torch_fl.refs import Ref, Value

from . import _cudnn_attention, _cudnn_convolution
from ._cudnn_plans import ALIGNED, CuDNN, Switches, switches

Portable = Callable[..., None]

_HALF, _FLOAT = (torch.float16, torch.bfloat16), torch.float32
LEAST: dict[tuple[str, torch.dtype], int] = {
    **{("convolution", t): 1 << 20 for t in _HALF},
    ("convolution", _FLOAT): 1 << 24,
    **{("attention", t): 64 for t in _HALF},
}
"""What is worth it: multiplications of a convolution, and queries of an attention (a plan takes tenths of a second to
compile, and there is one for every length: not for decoding). What is not here is left to our kernels. Guesses: no card
has been at hand."""

_LAYERS: dict[str, tuple[str, Portable]] = {
    "convolution": ("convolution", _cudnn_convolution.emit_forward),
    "convolution input gradient": ("convolution", _cudnn_convolution.emit_input_grad),
    "convolution weight gradient": ("convolution", _cudnn_convolution.emit_weight_grad),
    "attention": ("attention", _cudnn_attention.emit_forward),
    "attention gradients": ("attention", _cudnn_attention.emit_backward),
}
_SIZES: dict[str, Callable[..., int]] = {
    "convolution": _cudnn_convolution.multiplications,
    "attention": _cudnn_attention.queries,
}


def layer(b: Builder, name: str, args: tuple[Any, ...], portable: Portable) -> bool:
    """`Backend.layer`: False for small problems, other dtypes, without the library, and where it refuses."""
    backend: Any = b.device.backend
    kind, emit = _LAYERS[name]
    if backend.name != "cuda" or not _worth_it(kind, name, args):
        return False
    library = backend.libraries.get("cudnn")
    choice = None if library is None else _Choice(b, library, args, emit, portable)
    if choice is None or not choice.can():
        return False
    b.steps.append(choice)
    b.n_launches += 1
    return True


def _worth_it(kind: str, name: str, args: tuple[Any, ...]) -> bool:
    least = LEAST.get((kind, args[0].dtype))
    return least is not None and all(r.numel for r in _refs(args)) and _SIZES[kind](name, *args) >= least


def _refs(args: Sequence[Any]) -> tuple[Ref, ...]:
    flat = [x for a in args for x in (a if isinstance(a, tuple) else (a,))]
    return tuple(x for x in flat if isinstance(x, Ref))


class _Choice:
    """A step: the library's way or ours, by switches, the score's factor and addresses."""

    def __init__(self, b: Builder, library: CuDNN, args: tuple[Any, ...], emit: Portable, portable: Portable) -> None:
        self._aside, self._library, self._args = Aside(b), library, args
        self._emit, self._portable = emit, portable
        self._refs = _refs(args)
        self._scale = next((a for a in args if isinstance(a, Value)), None)
        self._ours: Step | None = None
        self._steps: dict[tuple[Switches, Any], Step] = {}

    def can(self) -> bool:
        """Whether the library takes it as torch's switches are; while it is switched off: whether it may later."""
        now = switches()
        likely = None if self._scale is None else _cudnn_attention.usual_scale(self._args[0])
        return not now.enabled or self._step(now, likely) is not self._ours

    def __call__(self, handles: list[Any], offsets: list[int], values: Sequence[Any]) -> None:
        now = switches()
        scale = None if self._scale is None else self._scale.get(values)
        step = self._steps.get((now, scale)) or self._step(now, scale)
        if not self._aligned(offsets):
            step = self._own()
        try:
            step(handles, offsets, values)
        except Exception as error:
            if step is self._ours:
                raise
            if not isinstance(error, (MemoryError, *self._library.backend.memory_errors)):
                self._library.refused("running", error)
                self._steps[now, scale] = self._own()
            self._own()(handles, offsets, values)

    def _aligned(self, offsets: list[int]) -> bool:
        return not any((offsets[r.slot] + r.offset) * r.dtype.itemsize % ALIGNED for r in self._refs)

    def _own(self) -> Step:
        if self._ours is None:
            self._ours = self._aside.step(lambda b: self._portable(b, *self._args))
        return self._ours

    def _step(self, now: Switches, scale: Any) -> Step:
        """The way for some switches and a factor of the score; kept."""
        args = tuple(scale if isinstance(a, Value) else a for a in self._args)
        try:
            if not now.enabled:
                raise Unsupported("torch.backends.cudnn.enabled is False")
            step = self._aside.step(lambda b: self._emit(b, self._library, now, *args))
        except Unsupported:
            step = self._own()
        if len(self._steps) >= 16:
            self._steps.clear()
        self._steps[now, scale] = step
        return step
