"""What `torch_fl.init(memory_pool=...)` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..errors import did_you_mean

if TYPE_CHECKING:
    from .device import Device


@dataclass(frozen=True)
class PoolOptions:
    """Options of the memory pool of each device; None leaves the default."""

    limit: int | None = None
    """Most bytes that may be in use at once."""
    fraction: float | None = None
    """The same as a part of the chip's memory, from 0 to 1; the smaller of the two counts."""
    cache_limit: int | None = None
    """Most bytes that are kept in free blocks; by default a quarter of the chip's memory."""
    record_lines: bool = False
    """Note the user's line that makes each buffer, for `torch_fl.memory.snapshot` and out-of-memory errors."""

    @staticmethod
    def of(given: Mapping[str, Any]) -> PoolOptions:
        """From a dict. Raises TypeError for a name or a type, ValueError for a number that makes no sense."""
        known = [f.name for f in fields(PoolOptions)]
        for name in given:
            if name not in known:
                raise TypeError(f"memory_pool has no option {name!r}; {did_you_mean(name, known)}")
        options = PoolOptions(**given)
        for name, value in (("limit", options.limit), ("cache_limit", options.cache_limit)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(f"memory_pool: {name} is a number of bytes, got {value!r}")
            if value is not None and value < 0:
                raise ValueError(f"memory_pool: {name} must not be negative, got {value}")
        if options.fraction is not None:
            check_fraction(options.fraction)
        return options

    def apply(self, device: Device) -> None:
        """Put the options in force on a device."""
        memory = device.memory
        total = device.properties.total_memory
        part = None if self.fraction is None else int(total * self.fraction)
        given = [n for n in (self.limit, part) if n is not None]
        memory.limit = min(given) if given else None
        memory.cache_limit = self.cache_limit
        memory.watch(lines=self.record_lines)


def check_fraction(fraction: Any) -> None:
    """Raise what torch.cuda raises for a memory fraction that is none."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if fraction < 0 or fraction > 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
