"""A kernel with its arguments: what is set once, what is set at each launch, and the launch itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch_fl.kernels.source import FIELD
from torch_fl.runtime.adapter import AddressArg, BufferArg, Handle, KernelArg, ValueArg

Submit = Callable[[Any, Sequence[Handle], Sequence[int], Sequence[bytes]], Any]
"""Launches on a queue of the driver with the buffers, their offsets and the values of one call; gives its event."""


Places = list[tuple[int, Any]]
"""Byte in the struct of a kernel's scalars, and what gets what goes there."""


class Arguments:
    """The parameters of a kernel as `render` lays them out: buffers one by one, all else in one struct.

    `slots`: of the buffers; `offsets_at`: where their offsets go (byte, slot, extra); `values_at`, `addresses_at`:
    where launch-time values and addresses of buffers go; `values`: those values; `held`: the slots of those addresses;
    `struct`: with what is fixed.
    """

    def __init__(self, args: Sequence[KernelArg]) -> None:
        self.struct = bytearray()
        self.slots = [a.slot for a in args if isinstance(a, BufferArg)]
        self.held = [slot for a in args if isinstance(a, AddressArg) for slot in a.slots]
        self.offsets_at: list[tuple[int, int, int]] = []
        self.values_at: Places = []
        self.addresses_at: Places = []
        self.values = [a for a in args if isinstance(a, ValueArg)]
        for a in args:
            self._place(a)
        plain = self.slots == list(range(len(self.slots))) and not any(extra for _, _, extra in self.offsets_at)
        self.straight = len(self.slots) if plain else -1
        """Of how many slots in all the buffers are all, in their order and from their beginnings; -1: of none."""

    def _place(self, a: KernelArg) -> None:
        at = len(self.struct)
        if isinstance(a, BufferArg):
            self.offsets_at.append((at, a.slot, a.offset))
        elif isinstance(a, ValueArg):
            self.values_at.append((at, a.get))
        elif isinstance(a, AddressArg):
            self.addresses_at.append((at, a.get))
        self.struct += a if isinstance(a, bytes) else bytes(FIELD if isinstance(a, BufferArg) else a.nbytes)
        self.struct += bytes(-len(self.struct) % FIELD)


def submitter(cl: Any, kernel: Any, args: Arguments, size: tuple[int, ...], local: tuple[int, ...]) -> Submit:
    """The launch of a kernel object, which nobody else sets arguments of."""
    set_arg, set_bytes, enqueue = kernel.set_arg, kernel._set_arg_buf, cl.enqueue_nd_range_kernel
    struct, at, scalars = len(args.slots), args.offsets_at, bytearray(args.struct)
    places = [byte for byte, _ in args.values_at + args.addresses_at]
    set_bytes(struct, scalars)
    last: list[Any] = [[0] * len(at), [b""] * len(places)]

    def submit(queue: Any, found: Sequence[Handle], wanted: Sequence[int], packed: Sequence[bytes]) -> Any:
        for i, handle in enumerate(found):
            set_arg(i, handle)
        if wanted != last[0] or packed != last[1]:
            last[:] = list(wanted), packed
            for (byte, _, _), offset in zip(at, wanted):
                scalars[byte : byte + FIELD] = offset.to_bytes(FIELD, "little")
            for byte, data in zip(places, packed):
                scalars[byte : byte + len(data)] = data
            set_bytes(struct, scalars)
        return enqueue(queue, kernel, size, local)

    return submit
