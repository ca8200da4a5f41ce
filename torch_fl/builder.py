"""The Builder: what a kernel function allocates and launches through, once per plan.

On a plan-cache miss the op's kernel function runs with a `Builder` and with `Ref`s in place of tensors. What it did is
the plan. Kernel functions are therefore plain Python over shapes and strides, and cost nothing on a hit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .errors import KernelError, Unsupported, message
from .infer import Inferred, Out
from .kernel_args import kernel_argument, needs_wide
from .kernels import source as sources
from .kernels.types import ctype
from .plan import Plan, Step
from .refs import Layout, Ref, Value
from .runtime.devices import Buffer, Device
from .spec import Spec, contiguous_strides, spec_of
from .tensor import Tensor


class Builder:
    """Records one call. `device` is the chip; `out(i)` is where result i goes; see the module docstring."""

    def __init__(self, device: Device, inputs: Sequence[Spec], inferred: Inferred) -> None:
        self.device = device
        self.is_cpu = device.is_cpu
        self.groups = device.groups
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
        self.places: list[tuple[int, int]] = []
        """The same with the offset at which each starts, at the call that makes the plan."""
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
        if self.outs[index].arg is not None:
            raise Unsupported("out= of a result whose shape is not the inferred one")
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

    def constant(self, tensor: Tensor) -> Ref:
        """A tensor of this chip that the plan keeps and kernels only read: a table."""
        spec = tensor._spec
        self.allocs.append(tensor._buffer)
        return Ref(len(self.inputs) + len(self.allocs) - 1, spec.shape, spec.strides, spec.dtype, tensor._offset)

    def contiguous(self, ref: Ref) -> Ref:
        """`ref` itself if it is row-major, else a row-major copy."""
        if ref.is_contiguous:
            return ref
        copy = self.temp(ref.shape, ref.dtype)
        self.copy(copy, ref)
        return copy

    def row_major(self, out: Ref, dtype: torch.dtype | None = None) -> Ref:
        """Where a kernel that writes row-major (and `dtype`) makes `out`: there if it is so, else a temporary."""
        dtype = dtype or out.dtype
        return out if out.is_contiguous and out.dtype == dtype else self.temp(out.shape, dtype)

    def deliver(self, out: Ref, made: Ref) -> None:
        """Bring what was made in place of `out` there."""
        if made is not out:
            self.copy(out, made)

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
        from .kernel_plan import inline

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

        A CPU gets few items of at least `grain` elements, anything else one element each. Few, but not one for each
        of its units: drivers hand them out in unequal shares.
        """
        if total <= 0:
            return 0, 1
        if not self.is_cpu:
            return total, 1
        items = max(1, min(-(-total // grain), 16 * self.device.properties.compute_units))
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
        """Enqueue kernel `name` of a source (a text, or the name of a file in native/) on `grid` work-items or groups.

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
        wide = needs_wide(args, full)
        macros = {"IDX": "long" if wide else "int", **(defines or {})}
        program = self.device.program(text, macros)
        bound = [kernel_argument(p, a, macros, wide) for p, a in zip(kernel.params, args)]
        bind, local = self.device.backend.bind, kernel.local(macros)
        step = bind(program, name, full, bound, local) if local else bind(program, name, full, bound)
        self.steps.append(self._rescaled(step, args))
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

    def mark(self) -> tuple[int, int, int, dict[int, Ref]]:
        """Where recording stands, for `take_back`."""
        return len(self.steps), len(self.allocs), self.n_launches, dict(self.out_refs)

    def take_back(self, mark: tuple[int, int, int, dict[int, Ref]]) -> None:
        """Forget what was recorded since `mark`."""
        del self.steps[mark[0] :], self.allocs[mark[1] :]
        self.n_launches, self.out_refs = mark[2], dict(mark[3])

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
