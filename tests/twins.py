"""Tensors in twins, one on the CPU and one on the device, for the property tests.

A `World` holds every storage and every tensor of one example. Between two steps the twins hold the same bits; a step
runs one call on both sides, and then everything is compared: what the call returned, what it wrote, which storages its
results share, and that no other element of any storage has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

Draw = Callable[[Any], Any]
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
MOST = 200
"""Elements of a drawn tensor at most, but for those of one long dimension."""
LONG = (17, 33, 70, 300)
SPECIAL = (float("nan"), float("inf"), -float("inf"), -0.0)


@dataclass
class Twin:
    """One tensor on both sides."""

    cpu: torch.Tensor
    dev: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.cpu.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.cpu.dtype


@dataclass
class Step:
    """One call: `fn(*args)` with a Twin in place of each tensor. `writes`: the twins it may change."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    writes: tuple[Twin, ...] = ()
    exact: bool = False
    """The results have the CPU's very bits (NaN aside): nothing is rounded."""


def on(side: str, value: Any) -> Any:
    """`value` with each Twin replaced by its tensor on one side."""
    if isinstance(value, Twin):
        return getattr(value, side)
    if isinstance(value, (list, tuple)):
        return type(value)(on(side, v) for v in value)
    return value


def shapes(draw: Draw) -> tuple[int, ...]:
    """Up to 8 dimensions, now and then an empty or a long one."""
    rank = draw(st.integers(0, 8))
    sizes: list[int] = []
    for _ in range(rank):
        room = max(1, MOST // max(1, int(np.prod(sizes))))
        sizes.append(draw(st.integers(1, min(4, room))))
    if sizes and draw(st.integers(0, 9)) == 0:
        sizes[draw(st.integers(0, rank - 1))] = 0
    if 0 < rank <= 2 and draw(st.integers(0, 3)) == 0:
        sizes[-1] = draw(st.sampled_from(LONG))
    return tuple(sizes)


def strides_for(draw: Draw, shape: Sequence[int], repeats: bool) -> list[int]:
    """Strides of any layout: dimensions in any order, gaps between elements, and with `repeats` some strides of 0."""
    order = draw(st.permutations(range(len(shape)))) if draw(st.booleans()) else list(range(len(shape)))[::-1]
    strides, step = [0] * len(shape), 1
    gaps = draw(st.booleans())
    for d in order:
        if repeats and draw(st.integers(0, 3)) == 0:
            continue
        strides[d] = step * (draw(st.integers(1, 3)) if gaps else 1)
        step = strides[d] * max(1, shape[d])
    return strides


def values(draw: Draw, n: int, dtype: torch.dtype, special: bool = False) -> torch.Tensor:
    """Small numbers on which float arithmetic is exact; with `special` also NaN, infinities and -0."""
    numbers = np.random.default_rng(draw(st.integers(0, 2**16)))
    if dtype == torch.bool:
        return torch.from_numpy(numbers.integers(0, 2, n).astype(bool))
    if not dtype.is_floating_point:
        return torch.from_numpy(numbers.integers(0 if dtype == torch.uint8 else -9, 10, n)).to(dtype)
    found = numbers.integers(-16, 17, n) / 4
    if special:
        found = np.where(numbers.random(n) < 0.15, numbers.choice(SPECIAL, n), found)
    return torch.from_numpy(found).to(dtype)


@dataclass
class World:
    """The storages (`roots`, each a flat Twin) and tensors (`pool`) of one example on one device."""

    draw: Draw
    device: torch.device
    dtypes: tuple[torch.dtype, ...]
    special: bool = False
    roots: list[Twin] = field(default_factory=list)
    pool: list[Twin] = field(default_factory=list)

    def new(self, shape: Sequence[int], dtype: torch.dtype | None = None, data: torch.Tensor | None = None) -> Twin:
        """A tensor of a drawn layout in a storage of its own; `data`: its values, else drawn ones."""
        draw = self.draw
        dtype = dtype or draw(st.sampled_from(self.dtypes))
        strides = strides_for(draw, shape, repeats=data is None and draw(st.integers(0, 2)) == 0)
        offset = draw(st.integers(0, 3))
        size = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides) if n) if 0 not in shape else offset
        flat = values(draw, size, dtype, self.special)
        root = Twin(flat, flat.to(self.device))
        self.roots.append(root)
        twin = Twin(*(t.as_strided(tuple(shape), strides, offset) for t in (root.cpu, root.dev)))
        if data is not None:
            twin.cpu.copy_(data.view(tuple(shape)))
            root.dev.copy_(root.cpu)
        return twin

    def pick(self, fits: Callable[[Twin], bool] = lambda t: True) -> Twin:
        """A tensor of the pool that fits; `Impossible` where there is none."""
        found = [t for t in self.pool if fits(t)]
        if not found:
            raise Impossible
        return self.draw(st.sampled_from(found))  # type: ignore[no-any-return]

    def partner(self, shape: Sequence[int], dtypes: Sequence[torch.dtype] | None = None) -> Twin:
        """A tensor that broadcasts to `shape`: one of the pool (which may share its storage) or a new one."""
        allowed = tuple(dtypes or self.dtypes)

        def fits(t: Twin) -> bool:
            lead = len(shape) - len(t.shape)
            return t.dtype in allowed and lead >= 0 and all(a in (1, b) for a, b in zip(t.shape, shape[lead:]))

        if self.draw(st.booleans()) and any(fits(t) for t in self.pool):
            return self.pick(fits)
        kept = list(shape[self.draw(st.integers(0, len(shape))) :])
        return self.new(
            [1 if self.draw(st.integers(0, 4)) == 0 else n for n in kept], self.draw(st.sampled_from(allowed))
        )

    # -- one step --------------------------------------------------------------------------------------------------
    def run(self, step: Step) -> None:
        """Run a step on both sides and compare everything (see the module docstring)."""
        before = [t.cpu.clone() for t in self.roots]
        want, failed = _try(step.fn, on("cpu", step.args))
        got, refused = _try(step.fn, on("dev", step.args))
        if failed or refused:
            unsupported = "not implemented for" in str(failed) or "not supported" in str(failed)
            assert unsupported or (failed and refused), f"{step.name}: CPU {failed!r}, device {refused!r}"
            self._unchanged(before, step.writes if unsupported else ())
            self._make_equal()
            return
        self._unchanged(before, step.writes)
        for t in step.writes:
            _equal(step, t.dev, t.cpu)
        known = {id(t.cpu): t for t in self.pool}
        for c, d in zip(_tensors(want), _tensors(got), strict=True):
            _equal(step, d, c)
            if not _promotes(step, c):
                _same_layout(step, d, c)
            assert (id(c) in known) == any(d is t.dev for t in self.pool), f"{step.name}: returns its argument"
            self._adopt(step, c, d)
        self._make_equal()

    def _adopt(self, step: Step, cpu: torch.Tensor, dev: torch.Tensor) -> None:
        """Put a result into the pool; it must share the storage that the CPU's result shares, or none."""
        owner = next((i for i, r in enumerate(self.roots) if _storage(r.cpu) == _storage(cpu)), None)
        buffers = [i for i, r in enumerate(self.roots) if r.dev._buffer is dev._buffer]  # type: ignore[attr-defined]
        wanted = [] if owner is None else [owner]
        assert buffers == wanted or not cpu.numel(), f"{step.name}: shares storage {buffers}, not {wanted}"
        if owner is None:
            extent = 1 + sum((n - 1) * s for n, s in zip(cpu.shape, cpu.stride())) if cpu.numel() else 0
            self.roots.append(Twin(*(t.as_strided((extent,), (1,), t.storage_offset()) for t in (cpu, dev))))
        self.pool.append(Twin(cpu, dev))

    def _unchanged(self, before: Sequence[torch.Tensor], writes: Sequence[Twin]) -> None:
        """No element of any storage has changed but those of `writes`."""
        for i, (root, old) in enumerate(zip(self.roots, before)):
            keep = torch.ones(len(old) * old.dtype.itemsize, dtype=torch.bool)
            for t in writes:
                if _storage(t.cpu) == _storage(root.cpu) and t.cpu.numel():
                    _bytes_of(keep, t.cpu, root.cpu).fill_(False)
            was, now = _as_bytes(old), _as_bytes(root.dev.cpu())
            assert torch.equal(now[keep], was[keep]), f"storage {i} was written outside"

    def _make_equal(self) -> None:
        """The device's bits on both sides, so that rounding does not add up."""
        for root in self.roots:
            root.cpu.copy_(root.dev.cpu())


class Impossible(Exception):
    """No tensor of the pool fits an op."""


def _try(fn: Callable[..., Any], args: Any) -> tuple[Any, Exception | None]:
    try:
        return fn(*args), None
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        return None, error


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in _tensors(v)] if isinstance(value, (list, tuple)) else []


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _as_bytes(flat: torch.Tensor) -> torch.Tensor:
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8)  # the stride of one element may be anything


def _bytes_of(flat: torch.Tensor, tensor: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
    """The part of `flat`, one element per byte of a storage, that belongs to a tensor over it (of any dtype)."""
    size = tensor.dtype.itemsize
    start = tensor.storage_offset() * size - root.storage_offset() * root.dtype.itemsize
    return flat.as_strided((*tensor.shape, size), (*(s * size for s in tensor.stride()), 1), start)


def _equal(step: Step, dev: torch.Tensor, cpu: torch.Tensor) -> None:
    exact = {"rtol": 0, "atol": 0} if step.exact else {}
    assert_close(dev.cpu(), cpu, equal_nan=True, msg=lambda m: f"{step.name}: {m}", **exact)
    if step.exact and cpu.dtype.is_floating_point:
        sign = torch.signbit(cpu) & ~cpu.isnan()
        assert torch.equal(torch.signbit(dev.cpu()) & ~cpu.isnan(), sign), f"{step.name}: sign of zero"


def _promotes(step: Step, result: torch.Tensor) -> bool:
    """Whether operands are cast to a common dtype: the CPU alone lays out the result like the copies that takes."""
    kinds = {t.dtype for t in step.args if isinstance(t, Twin)}
    return len(kinds) > 1 or (result.dtype != torch.bool and kinds != {result.dtype})


def _same_layout(step: Step, dev: torch.Tensor, cpu: torch.Tensor) -> None:
    """Strides and offset, where they say something: not those of dimensions of size 1, nor of empty tensors."""
    want, got = (
        ([s for s, n in zip(t.stride(), t.shape) if n > 1], t.storage_offset()) if t.numel() else () for t in (cpu, dev)
    )
    assert want == got, f"{step.name}: strides and offset {got}, not {want}"
