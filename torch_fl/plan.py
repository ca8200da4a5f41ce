"""A plan: everything about a call that does not depend on buffer contents, as a small program that is replayed.

On a plan-cache miss the op's kernel function runs once with a `Builder` and with `Ref`s in place of tensors. It
allocates and launches through the builder; what it did is the plan. A hit replays: allocate, set arguments,
enqueue, wrap. Kernel functions are therefore plain Python over shapes and strides, and cost nothing on a hit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from .errors import KernelError, Unsupported, message
from .infer import Inferred, Out
from .kernels import source as sources
from .kernels.types import ctype, pack
from .runtime.adapter import BufferArg, KernelArg, ValueArg
from .runtime.devices import Buffer, Device
from .spec import Ints, Spec, contiguous_strides, spec_of
from .tensor import Tensor, wrap, wrap_view

MAX_RANK = 8
Step = Callable[[list[Any], list[int], Sequence[Any]], None]
Runner = Callable[[Sequence[Tensor], Sequence[Any], Any, Any], Any]
INT_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Ref:
    """A tensor inside a plan: a slot (argument or allocation) with shape, strides, dtype and a fixed extra offset.

    Strides and offset are in elements of `dtype`. The methods are views: pure metadata, as on torch tensors.
    """

    slot: int
    shape: Ints
    strides: Ints
    dtype: torch.dtype
    offset: int = 0

    @property
    def numel(self) -> int:
        """Number of elements."""
        n = 1
        for s in self.shape:
            n *= s
        return n

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Row-major, ignoring strides of dimensions of size 1."""
        step = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides)):
            if n != 1 and s != step:
                return self.numel == 0
            step *= n
        return True

    def as_strided(self, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Ref:
        """Any layout over the same buffer; `offset` is relative to this Ref's."""
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=self.offset + offset)

    def permute(self, *dims: int) -> Ref:
        """Dimensions reordered."""
        return self.as_strided([self.shape[d] for d in dims], [self.strides[d] for d in dims])

    def transpose(self, a: int, b: int) -> Ref:
        """Two dimensions exchanged (negative ones count from the end)."""
        dims = list(range(self.ndim))
        dims[a], dims[b] = dims[b], dims[a]
        return self.permute(*dims)

    def expand(self, shape: Sequence[int]) -> Ref:
        """Broadcast to `shape`: new and size-1 dimensions get stride 0."""
        lead = len(shape) - self.ndim
        strides = [0] * lead
        for n, s, want in zip(self.shape, self.strides, shape[lead:]):
            strides.append(0 if n == 1 and want != 1 else s)
        return self.as_strided(shape, strides)

    def unsqueeze(self, dim: int) -> Ref:
        """A dimension of size 1 inserted before `dim` (negative: counted in the result)."""
        dim = dim + self.ndim + 1 if dim < 0 else dim
        return self.as_strided((*self.shape[:dim], 1, *self.shape[dim:]), (*self.strides[:dim], 1, *self.strides[dim:]))

    def select(self, dim: int, index: int) -> Ref:
        """One index of a dimension, which disappears."""
        dim = dim % self.ndim
        return self.as_strided(
            (*self.shape[:dim], *self.shape[dim + 1 :]),
            (*self.strides[:dim], *self.strides[dim + 1 :]),
            index * self.strides[dim],
        )

    def narrow(self, dim: int, start: int, length: int) -> Ref:
        """`length` indices of a dimension from `start`."""
        dim = dim % self.ndim
        shape = (*self.shape[:dim], length, *self.shape[dim + 1 :])
        return self.as_strided(shape, self.strides, start * self.strides[dim])

    def view(self, *shape: int) -> Ref:
        """A new shape without a copy. Raises Unsupported where the strides do not allow it."""
        numel, known = self.numel, 1
        for n in shape:
            known *= n if n != -1 else 1
        wanted = tuple(n if n != -1 else numel // max(known, 1) for n in shape)
        strides = _view_strides(self.shape, self.strides, wanted)
        if strides is None:
            raise Unsupported(f"no view of {list(self.shape)} as {list(wanted)}")
        return self.as_strided(wanted, strides)


def _view_strides(shape: Ints, strides: Ints, wanted: Ints) -> Ints | None:
    """Strides of a view as `wanted`, or None (torch's computeStride: merge runs of dimensions, then split)."""
    if 0 in shape:
        return contiguous_strides(wanted)
    merged: list[tuple[int, int]] = []
    for n, s in zip(shape, strides):
        if n == 1:
            continue
        if merged and merged[-1][1] == n * s:
            merged[-1] = (merged[-1][0] * n, s)
        else:
            merged.append((n, s))
    out: list[int] = []
    left, step = merged.pop() if merged else (1, 1)
    for n in reversed(wanted):
        if left == 1 and n != 1 and merged:
            left, step = merged.pop()
        if left % n:
            return None
        out.append(step)
        left, step = left // n, step * n
    return tuple(reversed(out)) if left == 1 and not merged else None


@dataclass(frozen=True)
class Value:
    """A number that changes without a new plan (alpha, lr, eps): its kind is fixed, its value comes at launch."""

    kind: type
    get: Callable[[Sequence[Any]], Any]

    def map(self, fn: Callable[[Any], Any], kind: type | None = None) -> Value:
        """A number computed from this one at each launch."""
        get = self.get
        return Value(kind or self.kind, lambda values: fn(get(values)))


@dataclass(frozen=True)
class Layout:
    """The argument of a `LayoutK` parameter: sizes, and strides of K tensors, innermost dimension first."""

    sizes: Ints
    strides: tuple[Ints, ...]

    def pack(self, wide: bool) -> bytes:
        """The bytes of the C struct."""
        if len(self.sizes) > MAX_RANK:
            raise Unsupported(f"more than {MAX_RANK} dimensions that cannot be merged")
        form = "q" if wide else "i"
        pad = [0] * (MAX_RANK - len(self.sizes))
        numbers = [len(self.sizes), *self.sizes, *pad]
        for strides in self.strides:
            numbers += [*strides, *pad]
        return struct.pack(f"<{len(numbers)}{form}", *numbers)

    @property
    def largest(self) -> int:
        """The largest number an index computation over this layout can reach."""
        reach = [sum((n - 1) * abs(s) for n, s in zip(self.sizes, st)) for st in self.strides]
        total = 1
        for n in self.sizes:
            total *= n
        return max([total, *reach])


class Builder:
    """Records one call. `device` is the chip; `out(i)` is where result i goes; see the module docstring."""

    def __init__(self, device: Device, inputs: Sequence[Spec], inferred: Inferred) -> None:
        self.device = device
        self.is_cpu = device.is_cpu
        self.fp64 = device.properties.fp64
        self.inputs = list(inputs)
        self.outs = list(inferred.outs)
        self.pack = inferred.pack
        self.allocs: list[int | Buffer] = []
        self.steps: list[Step] = []
        self.n_launches = 0
        self.out_refs: dict[int, Ref] = {}
        self.copy_back: list[tuple[Ref, Ref]] = []
        self.buffers: list[int] = []
        """Identity of the buffer of each input, where the caller knows it."""
        self.natural: tuple[Out, ...] | None = None
        """For in-place and out= calls: what the functional form returns, if the kernel must not write in place."""

    # -- tensors -----------------------------------------------------------------------------------------------
    def ref(self, index: int) -> Ref:
        """The Ref of input tensor `index`."""
        spec = self.inputs[index]
        return Ref(index, spec.shape, spec.strides, spec.dtype)

    def out(self, index: int = 0) -> Ref:
        """Where result `index` is to be written: a new buffer, or the caller's destination where that is safe."""
        found = self.out_refs.get(index)
        if found is None:
            found = self.out_refs[index] = self._make_out(index)
        return found

    def _make_out(self, index: int) -> Ref:
        out = self.outs[index]
        if out.arg is None:
            return self._alloc(out.spec)
        dest = self.ref(out.arg)
        if self.natural is None:
            return dest
        spec = self.natural[index].spec
        temp = self.temp(spec.shape, spec.dtype)
        self.copy_back.append((dest, temp))
        return temp

    def new_out(
        self, index: int, shape: Sequence[int], dtype: torch.dtype, strides: Sequence[int] | None = None
    ) -> Ref:
        """Declare result `index` as a new tensor (row-major without `strides`), where torch infers none or another."""
        shape = tuple(shape)
        spec = spec_of(shape, contiguous_strides(shape) if strides is None else tuple(strides), dtype, self.device)
        while len(self.outs) <= index:
            self.outs.append(Out(spec))
        self.outs[index] = Out(spec)
        self.out_refs[index] = self._alloc(spec)
        return self.out_refs[index]

    def temp(self, shape: Sequence[int], dtype: torch.dtype) -> Ref:
        """A row-major temporary, freed after the call."""
        shape = tuple(shape)
        return self._alloc(spec_of(shape, contiguous_strides(shape), dtype, self.device))

    def _alloc(self, spec: Spec) -> Ref:
        self.allocs.append(spec.extent * spec.itemsize)
        return Ref(len(self.inputs) + len(self.allocs) - 1, spec.shape, spec.strides, spec.dtype)

    def shares_buffer(self, a: Ref, b: Ref) -> bool:
        """Whether writing one of two Refs may change the other."""
        if a.slot == b.slot:
            return True
        n = len(self.buffers)
        return a.slot < n and b.slot < n and self.buffers[a.slot] == self.buffers[b.slot]

    def guard(self) -> Ref:
        """Where kernels note indices out of bounds (`checked` in the prelude); arms the check at the next read."""
        guard = self.device.guard

        def arm(handles: list[Any], offsets: list[int], values: Sequence[Any]) -> None:
            guard.armed = True

        self.steps.append(arm)
        self.allocs.append(guard.buffer)
        return Ref(len(self.inputs) + len(self.allocs) - 1, (4,), (1,), torch.int64)

    def contiguous(self, ref: Ref) -> Ref:
        """`ref` itself if it is row-major, else a row-major copy."""
        if ref.is_contiguous:
            return ref
        copy = self.temp(ref.shape, ref.dtype)
        self.copy(copy, ref)
        return copy

    def reshape(self, ref: Ref, *shape: int) -> Ref:
        """A view as `shape` where possible, else of a row-major copy."""
        try:
            return ref.view(*shape)
        except Unsupported:
            return self.contiguous(ref).view(*shape)

    def cast(self, ref: Ref, dtype: torch.dtype) -> Ref:
        """`ref` in another dtype: itself where it has it, else a row-major copy."""
        if ref.dtype == dtype:
            return ref
        copy = self.temp(ref.shape, dtype)
        self.copy(copy, ref)
        return copy

    def copy(self, target: Ref, source: Ref) -> None:
        """target[...] = source, broadcast and cast."""
        from .kernels.pointwise import emit_copy

        emit_copy(self, target, source)

    def fill(self, target: Ref, value: float | int | bool | Value) -> None:
        """target[...] = value."""
        from .kernels.pointwise import emit_fill

        emit_fill(self, target, value)

    def call(self, op: str, *args: Any, out: Ref | None = None, **kwargs: Any) -> Any:
        """Run another op's kernel inside this plan: Refs in, Refs out. `op` as in the registry ("aten::mm").

        `out`: the result is written there. Raises Unsupported where that op has no kernel for these arguments.
        """
        from .routes import inline

        return inline(self, op, args, kwargs, out)

    # -- launches ----------------------------------------------------------------------------------------------
    def types(self, /, **dtypes: torch.dtype) -> dict[str, object]:
        """Defines for dtype macros: T=dtype gives `T` (storage), `T_acc` (compute), `T_load(v)` and `T_save(v)`."""
        defines: dict[str, object] = {}
        for name, dtype in dtypes.items():
            c = ctype(dtype)
            if dtype == torch.float64 and not self.fp64:
                raise Unsupported("float64: this chip has none")
            defines |= {name: c.store, f"{name}_acc": c.compute, f"{name}_load(v)": c.load, f"{name}_save(v)": c.save}
        return defines

    def split(self, total: int, grain: int = 4096) -> tuple[int, int]:
        """Work-items for `total` independent elements and the elements of each: (items, chunk).

        A CPU gets few items of at least `grain` elements, anything else one element each.
        """
        if total <= 0:
            return 0, 1
        if not self.is_cpu:
            return total, 1
        items = max(1, min(-(-total // grain), 4 * self.device.properties.compute_units))
        chunk = -(-total // items)
        return -(-total // chunk), chunk

    def launch(
        self,
        text: str,
        name: str,
        grid: int | tuple[int, ...],
        args: Sequence[Ref | Value | Layout | int | float | bool],
        defines: Mapping[str, object] | None = None,
    ) -> None:
        """Enqueue kernel `name` of a source (a text, or the name of a file in native/) on `grid` work-items.

        `args` in the kernel's order: Refs for buffers, Values and numbers for scalars, Layouts. Defines must hold
        every macro the text needs; IDX is added. A grid with a 0 launches nothing.
        """
        if self.device.backend.dialect is None:
            raise Unsupported(f"{self.device.backend.name} compiles no kernels")
        if text.endswith(".c") and "\n" not in text:
            text = sources.read_native(text)
        sizes = (grid,) if isinstance(grid, int) else grid
        if 0 in sizes:
            return
        n0, n1, n2 = (*sizes, 1, 1)[:3]
        full = (n0, n1, n2)
        kernel = sources.parse(text).get(name)
        if kernel is None:
            raise KernelError(message(f"there is no kernel {name!r} in this source", because=f"{sources.parse(text)}"))
        if len(kernel.params) != len(args):
            raise KernelError(f"kernel {name} takes {len(kernel.params)} arguments, got {len(args)}")
        wide = self._needs_wide(args, full)
        macros = {"IDX": "long" if wide else "int", **(defines or {})}
        program = self.device.program(text, macros)
        bound = [self._argument(p, a, macros, wide) for p, a in zip(kernel.params, args)]
        self.steps.append(self._rescaled(self.device.backend.bind(program, name, full, bound), args))
        self.n_launches += 1

    def _rescaled(self, step: Step, args: Sequence[Any]) -> Step:
        """`step` with the offsets of inputs counted in the size of the elements as which it sees them."""
        n = len(self.inputs)
        sizes = {a.slot: a.dtype.itemsize for a in args if isinstance(a, Ref) and a.slot < n}
        factors = {k: self.inputs[k].itemsize // s for k, s in sizes.items() if s != self.inputs[k].itemsize}
        if not factors:
            return step

        def run(handles: list[Any], offsets: list[int], values: Sequence[Any]) -> None:
            step(handles, [o * factors.get(k, 1) for k, o in enumerate(offsets)], values)

        return run

    def function(self, fn: Callable[..., None], *args: Ref | Value | Any) -> None:
        """Call `fn` at each replay: a vendor library, or a chip without a compiler.

        Refs arrive as `(handle, offset, Ref)`, Values as numbers, everything else as it is.
        """

        def step(handles: list[Any], offsets: list[int], values: Sequence[Any]) -> None:
            full = [
                (handles[a.slot], offsets[a.slot] + a.offset, a)
                if isinstance(a, Ref)
                else a.get(values)
                if isinstance(a, Value)
                else a
                for a in args
            ]
            fn(*full)

        self.steps.append(step)
        self.n_launches += 1

    def _needs_wide(self, args: Sequence[Any], grid: tuple[int, ...]) -> bool:
        reach = list(grid)
        for a in args:
            if isinstance(a, Ref):
                reach.append(1 + sum((n - 1) * abs(s) for n, s in zip(a.shape, a.strides)))
            elif isinstance(a, Layout):
                reach.append(a.largest)
        return max(reach) > INT_LIMIT

    def _argument(self, param: sources.Param, arg: Any, macros: Mapping[str, object], wide: bool) -> KernelArg:
        if isinstance(arg, Ref):
            if not param.access:
                raise KernelError(f"parameter {param.name} is a scalar, got a tensor")
            return BufferArg(arg.slot, arg.offset, arg.dtype.itemsize)
        if param.access:
            raise KernelError(f"parameter {param.name} is a buffer, got {arg!r}")
        if isinstance(arg, Layout):
            return arg.pack(wide)
        kind = str(macros.get(param.ctype, param.ctype))
        if getattr(arg, "kind", type(arg)) is complex:
            raise Unsupported("a complex number")
        if isinstance(arg, Value):
            return ValueArg(_packer(kind, arg.get))
        return pack(kind, arg)

    # -- the end -----------------------------------------------------------------------------------------------
    def finish(self) -> Plan:
        """The plan of what was recorded."""
        for target, source in self.copy_back:
            self.copy(target, source)
        results: list[tuple[int, Spec | None, int]] = []
        for i, out in enumerate(self.outs):
            if out.is_arg and out.arg is not None:
                results.append((out.arg, None, 0))
            elif out.arg is not None:
                results.append((out.arg, out.spec, out.offset))
            else:
                results.append((self.out(i).slot, out.spec, 0))
        return Plan(self, results)


def _packer(kind: str, get: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], bytes]:
    seen: list[Any] = [None, b""]

    def packed(values: Sequence[Any]) -> bytes:
        value = get(values)
        last, data = seen
        # -0.0 == 0.0 and NaN != NaN: only integers and nonzero equal floats may reuse the bytes.
        if value == last and value and type(value) is type(last):
            return data  # type: ignore[no-any-return]
        data = pack(kind, value)
        seen[:] = [value, data]
        return data

    return packed


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
        if len(self.results) != 1 or self.pack([1]) != 1 or len(self.steps) != 1:
            return self._general
        slot, spec, _ = self.results[0]
        if spec is None and not self.allocs:
            return _into_argument(self.steps[0], slot)
        if spec is not None and len(self.allocs) == 1 and type(self.allocs[0]) is int and slot == self.n_inputs:
            return _into_new(self.device, self.steps[0], self.allocs[0], spec)
        return self._general

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


def _into_argument(step: Step, slot: int) -> Runner:
    """Replay of one launch that writes into an argument and returns it."""

    def run(tensors: Sequence[Tensor], values: Sequence[Any], args: Any, kwargs: Any) -> Tensor:
        step([t._buffer.handle for t in tensors], [t._offset for t in tensors], values)
        return tensors[slot]

    return run


def numpy_view(array: np.ndarray[Any, Any], ref: Ref, offset: int) -> np.ndarray[Any, Any]:
    """A NumPy view of raw bytes as `ref` describes them; for chips whose library is NumPy-like."""
    kind = np.dtype(str(ref.dtype).removeprefix("torch.").replace("bool", "bool_"))
    strides = [s * kind.itemsize for s in ref.strides]
    return np.ndarray(ref.shape, kind, array.data, offset * kind.itemsize, strides)
