"""Plans: everything about a call that does not depend on buffer contents, ready to be replayed.

A `Plan` is recorded by a `Builder` on a plan-cache miss. A hit replays: allocate, set arguments, enqueue, wrap. A
`ViewPlan` makes new metadata, a `CallPlan` is any other way to run a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .errors import Unsupported
from .hot import compiled
from .infer import Inferred
from .runtime.devices import Device
from .spec import Spec
from .tensor import WRAPPER, Tensor, inference_on, layout_of, wrap, wrap_view

if TYPE_CHECKING:
    from .builder import Builder

Step = Callable[[list[Any], list[int], Sequence[Any]], None]
"""One launch: called with the handles and offsets of all slots, and with the launch-time values."""

Runner = Callable[[Sequence[Tensor], Sequence[Any], Any, Any], Any]


class Plan:
    """A recorded call: `run(tensors, values, args, kwargs)` does the work and returns the result."""

    def __init__(self, builder: Builder, results: Sequence[tuple[int, Spec | None, int]]) -> None:
        self.device = builder.device
        self.allocs = tuple(builder.allocs)
        self.steps = tuple(builder.steps)
        self.n_launches = builder.n_launches
        self.results = tuple(results)
        self.n_inputs = len(builder.inputs)
        self.pack = builder.pack
        self.route = "kernel"
        self.reason = ""
        self.run: Runner = self._choose()

    def _choose(self) -> Runner:
        """The shortest way to replay: most calls are one launch into one new tensor, or into their argument."""
        fresh = all(spec is None or slot >= self.n_inputs for slot, spec, _ in self.results)
        if compiled is not None and fresh and self.n_inputs + len(self.allocs) <= compiled.MAX_SLOTS:
            return self._compiled()
        if len(self.results) != 1 or self.pack([1]) != 1 or len(self.steps) != 1:
            return self._general
        slot, spec, _ = self.results[0]
        if spec is None and not self.allocs:
            return _into_argument(self.steps[0], slot)
        if spec is not None and len(self.allocs) == 1 and type(self.allocs[0]) is int and slot == self.n_inputs:
            make = _two_into_new if self.n_inputs == 2 else _into_new
            return make(self.device, self.steps[0], self.allocs[0], spec)
        return self._general

    def _compiled(self) -> Runner:
        results = tuple((slot, () if spec is None else layout_of(spec), spec) for slot, spec, _ in self.results)
        pack = None if len(results) == 1 and self.pack([1]) == 1 else self.pack
        allocate = self.device.allocate
        return compiled.Replay(WRAPPER, allocate, self.n_inputs, self.allocs, self.steps, results, pack)  # type: ignore[union-attr, no-any-return]

    def _general(self, tensors: Sequence[Tensor], values: Sequence[Any], args: Any, kwargs: Any) -> Any:
        handles = [t._buffer.handle for t in tensors]
        offsets = [t._offset for t in tensors]
        buffers: list[Any] = [self.device.allocate(n) if type(n) is int else n for n in self.allocs]
        handles += [b.handle for b in buffers]
        offsets += [0] * len(buffers)
        for step in self.steps:
            step(handles, offsets, values)
        flat: list[Any] = []
        n = self.n_inputs
        for slot, spec, offset in self.results:
            if spec is None:
                flat.append(tensors[slot])
            elif slot >= n:
                flat.append(wrap(buffers[slot - n], spec))
            else:
                base = tensors[slot]
                flat.append(wrap_view(base, spec, base._offset + offset))
        return self.pack(flat)


def _into_new(device: Device, step: Step, nbytes: int, spec: Spec) -> Runner:
    """Replay of one launch whose result is one new tensor."""
    allocate = device.allocate

    def run(tensors: Sequence[Tensor], values: Sequence[Any], args: Any, kwargs: Any) -> Tensor:
        handles = [t._buffer.handle for t in tensors]
        offsets = [t._offset for t in tensors]
        buffer = allocate(nbytes)
        handles.append(buffer.handle)
        offsets.append(0)
        step(handles, offsets, values)
        return wrap(buffer, spec)

    return run


def _two_into_new(device: Device, step: Step, nbytes: int, spec: Spec) -> Runner:
    """The same for two tensors, the most frequent call: spelled out, it saves two comprehensions."""
    allocate = device.allocate

    def run(tensors: Sequence[Tensor], values: Sequence[Any], args: Any, kwargs: Any) -> Tensor:
        a, b = tensors
        buffer = allocate(nbytes)
        step([a._buffer.handle, b._buffer.handle, buffer.handle], [a._offset, b._offset, 0], values)
        return wrap(buffer, spec)

    return run


def _into_argument(step: Step, slot: int) -> Runner:
    """Replay of one launch that writes into an argument and returns it."""

    def run(tensors: Sequence[Tensor], values: Sequence[Any], args: Any, kwargs: Any) -> Tensor:
        step([t._buffer.handle for t in tensors], [t._offset for t in tensors], values)
        return tensors[slot]

    return run


class ViewPlan:
    """New metadata over the same buffer."""

    route, reason, n_launches = "view", "", 0

    def __init__(self, inferred: Inferred, tensors: Sequence[Tensor]) -> None:
        if any(o.arg is None for o in inferred.outs):
            raise Unsupported("not always a view")
        self.outs = [(o.arg or 0, o.is_arg, o.spec, o.offset) for o in inferred.outs]
        self.pack = inferred.pack
        self.one = self.outs[0] if len(self.outs) == 1 and self.pack([1]) == 1 else None
        sizes = {(tensors[i]._spec.itemsize, s.itemsize) for i, _, s, _ in self.outs}
        self.scale = next((s for s in sizes if s[0] != s[1]), None)
        self.run: Runner = self._compiled() if compiled is not None else self._general

    def _compiled(self) -> Runner:
        if self.one is None or self.one[1] or self.scale is not None:
            return self._general
        index, _, spec, offset = self.one
        return compiled.View(WRAPPER, index, layout_of(spec), spec, offset, inference_on, self._general)  # type: ignore[union-attr, no-any-return]

    def _general(self, tensors: Sequence[Tensor], values: Sequence[Any], args: Any, kwargs: Any) -> Any:
        if self.one is not None:
            return self._view(tensors, *self.one)
        return self.pack([self._view(tensors, *out) for out in self.outs])

    def _view(self, tensors: Sequence[Tensor], index: int, is_arg: bool, spec: Spec, offset: int) -> Tensor:
        base = tensors[index]
        if is_arg:
            return base
        start = base._offset
        if self.scale is not None:  # another itemsize: offsets count in elements of the view
            start = _rescaled(start, base._spec, spec)
        return wrap_view(base, spec, start + offset)


def _rescaled(offset: int, old: Spec, new: Spec) -> int:
    """An offset in elements of another dtype. Raises torch's error where it lies inside an element."""
    ratio = max(1, new.itemsize // old.itemsize)
    if offset % ratio:
        raise RuntimeError(
            f"self.storage_offset() must be divisible by {ratio} to view {old.dtype} as {new.dtype} (different element "
            f"sizes), but got {offset}"
        )
    return offset * old.itemsize // new.itemsize


class CallPlan:
    """A route that is a plain function of the call's own arguments: decomposition, fallback."""

    n_launches = 0

    def __init__(self, route: str, reason: str, run: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self.route = route
        self.reason = reason
        self.call = run

    def run(self, tensors: Any, values: Any, args: Any, kwargs: Any) -> Any:
        return self.call(args, kwargs)
