"""A way tried on tensors of its own: same layouts as the caller's, nothing of the caller's is read or written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..infer import Inferred
from ..refs import Ref, Value
from ..runtime.devices import Buffer, Device
from ..spec import contiguous_spec
from .timing import Run

if TYPE_CHECKING:
    from .ways import Way

_ZEROS = bytes(1 << 20)


@dataclass(frozen=True)
class Scratch:
    """Arguments that stand for the caller's, and the memory of their Refs."""

    device: Device
    args: tuple[Any, ...]
    inputs: tuple[Ref, ...]
    buffers: tuple[Buffer, ...]

    @staticmethod
    def of(device: Device, args: Sequence[Any]) -> Scratch:
        """Zeros of the same layouts; numbers that come at launch are 1. Raises Unsupported where memory is scarce."""
        refs = list(dict.fromkeys(a for a in args if isinstance(a, Ref)))
        sizes = [_reach(r)[1] * r.dtype.itemsize for r in refs]
        if 2 * sum(sizes) > device.memory_info().free:
            raise Unsupported("too little memory to try ways")
        inputs = tuple(Ref(k, r.shape, r.strides, r.dtype, _reach(r)[0]) for k, r in enumerate(refs))
        buffers = tuple(_zeros(device, n) for n in sizes)
        return Scratch(device, tuple(_stand_in(a, dict(zip(refs, inputs))) for a in args), inputs, buffers)

    def run_of(self, way: Way) -> Run:
        """The way's work, recorded once. Raises what recording raises."""
        from ..builder import Builder

        specs = [contiguous_spec((_reach(r)[1],), r.dtype, self.device) for r in self.inputs]
        b = Builder(self.device, specs, Inferred((), lambda flat: None))
        way.emit(b, *self.args)
        return _replay(self.device, b.steps, [*self.buffers, *b.allocs])


def _reach(ref: Ref) -> tuple[int, int]:
    """Elements before the first one, which only flipped dimensions have, and elements in all."""
    steps = [(n - 1) * s for n, s in zip(ref.shape, ref.strides) if n > 0]
    return -sum(s for s in steps if s < 0), 1 + sum(map(abs, steps))


def _replay(device: Device, steps: Sequence[Callable[..., None]], memory: Sequence[Buffer | int]) -> Run:
    buffers = [device.allocate(m) if isinstance(m, int) else m for m in memory]
    handles, offsets = [x.handle for x in buffers], [0] * len(buffers)

    def run(calls: int, keep: Any = buffers) -> None:
        for _ in range(calls):
            for step in steps:
                step(handles, offsets, ())
        device.backend.synchronize()

    return run


def _zeros(device: Device, nbytes: int) -> Buffer:
    buffer = device.allocate(nbytes)
    for start in range(0, nbytes, len(_ZEROS)):
        part = memoryview(_ZEROS)[: nbytes - start]
        device.backend.copy_h2d(buffer.handle, start, part)
    return buffer


def _stand_in(arg: Any, refs: dict[Ref, Ref]) -> Any:
    if isinstance(arg, Ref):
        return refs[arg]
    return Value(arg.kind, lambda values: arg.kind(1), steady=True) if isinstance(arg, Value) else arg
