"""Random state: one Philox (seed, offset) per generator, and `torch.Generator` for this device type.

torch 2.13 cannot make a C++ generator for a Python backend, but its Python class can be subclassed. So a generator of
ours is to C++ a CPU generator (seeded alike; ops that fall back to the CPU draw from it), and carries the state our
kernels use. C++ hands ops a new Python object over the same C++ one: its address finds ours again. `torch.Generator`
becomes a class that makes the right one; isinstance and all other devices are unchanged. Nothing here opens a device.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch

from .. import names

_Base: Any = torch._C.Generator
DEFAULT_SEED = 67280421310721
"""torch's own seed of a generator that nobody seeded."""
STATE_BYTES = 16
_MASK = 2**64 - 1


class Philox:
    """A position in the Philox4x32-10 sequence of `seed`; `offset` counts blocks of four 32-bit numbers."""

    __slots__ = ("lock", "offset", "seed")

    def __init__(self, seed: int, offset: int = 0) -> None:
        self.seed = seed
        self.offset = offset
        self.lock = threading.Lock()

    def take(self, blocks: int) -> tuple[int, int]:
        """Reserve `blocks` blocks: (seed, offset of the first)."""
        with self.lock:
            start = self.offset
            self.offset = (start + blocks) & _MASK
            return self.seed, start


class NpuGenerator(_Base):  # type: ignore[misc]
    """What `torch.Generator("npu")` returns. The methods are torch.Generator's."""

    _philox: Philox
    _index: int

    def __new__(cls, index: int) -> NpuGenerator:
        self = super().__new__(cls, device="cpu")
        self._index = index
        self._philox = Philox(DEFAULT_SEED)
        _living[self._cdata] = self
        return self  # type: ignore[no-any-return]

    @property
    def device(self) -> torch.device:
        """The device this generator serves."""
        return names.shown(self._index)

    def manual_seed(self, seed: int) -> NpuGenerator:
        """Start the sequence of `seed` (64 bits; negative ones wrap); returns self."""
        super().manual_seed(seed)
        self._philox.seed, self._philox.offset = super().initial_seed(), 0
        return self

    def seed(self) -> int:
        """Start an unpredictable sequence and return its seed."""
        seed: int = super().seed()
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed of the current sequence."""
        return self._philox.seed

    def get_offset(self) -> int:
        """How many blocks of the sequence have been used."""
        return self._philox.offset

    def set_offset(self, offset: int) -> NpuGenerator:
        """Go to a position in the sequence."""
        self._philox.offset = int(offset) & _MASK
        return self

    def get_state(self) -> torch.Tensor:
        """Seed and offset as 16 bytes (a CPU ByteTensor)."""
        numbers = b"".join(v.to_bytes(8, "little") for v in (self._philox.seed, self._philox.offset))
        return torch.frombuffer(bytearray(numbers), dtype=torch.uint8)

    def set_state(self, new_state: torch.Tensor) -> NpuGenerator:
        """Restore what get_state returned. Raises TypeError or RuntimeError for anything else."""
        if not isinstance(new_state, torch.Tensor) or new_state.dtype != torch.uint8 or new_state.device.type != "cpu":
            raise TypeError("RNG state must be a torch.ByteTensor")
        if new_state.numel() != STATE_BYTES:
            raise RuntimeError(f"RNG state is wrong size: {new_state.numel()} bytes, expected {STATE_BYTES}")
        data = bytes(new_state.contiguous().view(-1).numpy())
        self.manual_seed(int.from_bytes(data[:8], "little"))
        self._philox.offset = int.from_bytes(data[8:], "little")
        return self

    def clone_state(self) -> NpuGenerator:
        """A generator at the same position that moves on its own."""
        return NpuGenerator(self._index).set_state(self.get_state())

    def graphsafe_get_state(self) -> NpuGenerator:
        """A generator that shares this one's position."""
        twin = NpuGenerator(self._index)
        twin._philox = self._philox
        return twin

    def graphsafe_set_state(self, state: NpuGenerator) -> NpuGenerator:
        """Share the position of `state` from now on."""
        self._philox = state._philox
        return self

    def __reduce__(self) -> Any:
        return _restore, (self._index, self.get_state())

    def __repr__(self) -> str:
        return f"<torch.Generator device={self.device} seed={self._philox.seed} offset={self._philox.offset}>"


_living: WeakValueDictionary[int, NpuGenerator] = WeakValueDictionary()
"""Generators of ours by the address of their C++ object."""


def _restore(index: int, state: torch.Tensor) -> NpuGenerator:
    return NpuGenerator(index).set_state(state)


class _GeneratorType(type(_Base)):  # type: ignore[misc]
    """Makes `torch.Generator(device)` choose the class, and keeps isinstance and issubclass as they were."""

    def __call__(cls, device: Any = None) -> Any:
        where = torch.device("cpu" if device is None else device)
        if not names.is_ours(where):
            return _Base(device=where)
        from . import devices

        return NpuGenerator(devices.current_index() if where.index is None else devices.device_at(where.index).index)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Base)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Base)


def install() -> None:
    """Put our class in the place of `torch.Generator`; once."""
    if torch.Generator is not _Base:
        return
    names = {"__doc__": _Base.__doc__, "__module__": "torch", "__qualname__": "Generator"}
    torch.Generator = _GeneratorType("Generator", (_Base,), names)  # type: ignore[misc]


class _Defaults:
    """The generators that ops use when none is given, one per device, made at first use."""

    def __init__(self) -> None:
        self.seed = DEFAULT_SEED
        self.generators: dict[int, NpuGenerator] = {}
        self.lock = threading.RLock()


_defaults = _Defaults()


def default_generator(index: int) -> NpuGenerator:
    """The generator of npu:index."""
    found = _defaults.generators.get(index)
    if found is None:
        with _defaults.lock:
            found = _defaults.generators.get(index)
            if found is None:
                found = _defaults.generators[index] = NpuGenerator(index).manual_seed(_defaults.seed)
    return found


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices, those included that are opened later."""
    with _defaults.lock:
        _defaults.seed = NpuGenerator(0).manual_seed(seed).initial_seed()
        for generator in _defaults.generators.values():
            generator.manual_seed(seed)


class DefaultGenerators(Sequence[NpuGenerator]):
    """`torch.npu.default_generators`: one per device; asking for its length opens the devices."""

    def __len__(self) -> int:
        from . import devices

        return len(devices.devices())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(default_generator(i) for i in range(*index.indices(len(self))))
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"npu:{index} does not exist: this machine has {len(self)} device(s)")
        return default_generator(at)

    def __iter__(self) -> Iterator[NpuGenerator]:
        return (default_generator(i) for i in range(len(self)))


def philox_of(generator: Any, index: int) -> Philox:
    """The state an op on npu:index draws from. Raises RuntimeError for a generator of another device."""
    if generator is None:
        return default_generator(index)._philox
    ours = _living.get(generator._cdata)
    if ours is None:
        raise RuntimeError(f"Expected a 'npu' device type for generator but found '{generator.device.type}'")
    if ours._index != index:
        raise RuntimeError(f"Expected a generator of npu:{index} but found one of npu:{ours._index}")
    return ours._philox
