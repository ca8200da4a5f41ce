"""The memory functions of `torch.npu`, under torch.cuda.memory's names."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .which import DeviceLike, device_of, opened


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of a device's memory."""
    found = device_of(device).memory_info()
    return found.free, found.total


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes in live tensors on a device."""
    return int(device_of(device).allocated_bytes())


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes that were in live tensors since the start or reset_peak_memory_stats."""
    return int(device_of(device).peak_bytes)


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes taken from the driver, cached ones included."""
    return int(device_of(device).reserved_bytes())


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes that were taken from the driver since the start or reset_peak_memory_stats."""
    return int(device_of(device).memory.peak_reserved())


memory_cached = memory_reserved
max_memory_cached = max_memory_reserved


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """The statistics that are kept here, as torch.cuda nests them: of all pools together.

    Bytes and counts of requests ("allocation") and of driver allocations ("segment"); "requested" equals "allocated".
    """
    from ..memory import stats_of

    found = stats_of(device_of(device).memory)
    memory = device_of(device).memory
    made = {"allocated": memory.made_bytes, "freed": memory.made_bytes - found.allocated}
    allocated = {"current": found.allocated, "peak": found.peak_allocated, **made}
    count = {"current": found.live, "allocated": found.allocations, "freed": found.frees}
    blocks = {"allocated": found.driver_allocations, "freed": found.driver_frees}
    kinds: dict[str, dict[str, int]] = {
        "active": count,
        "active_bytes": allocated,
        "allocated_bytes": allocated,
        "allocation": count,
        "inactive_split_bytes": {"current": found.active - found.allocated},
        "requested_bytes": allocated,
        "reserved_bytes": {"current": found.reserved, "peak": found.peak_reserved},
        "segment": {"current": blocks["allocated"] - blocks["freed"], **blocks},
    }
    return {
        **{kind: {"all": values} for kind, values in kinds.items()},
        "num_alloc_retries": found.retries,
        "num_device_alloc": found.driver_allocations,
        "num_device_free": found.driver_frees,
        "num_ooms": found.refused,
    }


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """The same in one dict, with names such as "allocated_bytes.all.peak"."""
    flat: list[tuple[str, int]] = []

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                add(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat.append((prefix, value))

    add("", memory_stats_as_nested_dict(device))
    return OrderedDict(sorted(flat))


_ROWS = (
    ("allocated_bytes", "Allocated memory", True),
    ("inactive_split_bytes", "Rounding of blocks", True),
    ("reserved_bytes", "Reserved memory", True),
    ("allocation", "Allocations", False),
    ("segment", "Driver allocations", False),
)
_COLUMNS = (("current", "Cur Usage"), ("peak", "Peak Usage"), ("allocated", "Tot Alloc"), ("freed", "Tot Freed"))


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The statistics as a table; "-" for what is not counted. Unless `abbreviated`, with the biggest holders."""
    from ..memory import BIGGEST, holders
    from ..telemetry.report import format_bytes

    where = device_of(device)
    stats = memory_stats_as_nested_dict(where.index)

    def cell(value: int | None, is_bytes: bool) -> str:
        text = "-" if value is None else format_bytes(value) if is_bytes else str(value)
        return f"{text:>11}"

    lines = [f"memory of {where!r}", f"out of memory: {stats['num_ooms']}, retries: {stats['num_alloc_retries']}"]
    lines.append(" | ".join([f"{'':18}", *(f"{title:>11}" for _, title in _COLUMNS)]))
    for kind, title, is_bytes in _ROWS:
        values = stats[kind]["all"]
        lines.append(" | ".join([f"{title:18}", *(cell(values.get(name), is_bytes) for name, _ in _COLUMNS)]))
    if not abbreviated:
        lines += [str(h) for h in holders(where)[:BIGGEST]]
    return "\n".join(lines) + "\n"


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Who holds memory of all devices: a dict per buffer (`torch_fl.memory.snapshot` as plain data), biggest first.

    `mempool_id` changes nothing, there is one pool; without `include_traces` no line is told.
    """
    from dataclasses import asdict

    from ..memory import holders

    found = [asdict(h) for where in opened().devices() for h in holders(where)]
    return found if include_traces else [{**h, "line": ""} for h in found]


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Start max_memory_allocated and max_memory_reserved anew."""
    device_of(device).reset_peak()


reset_max_memory_allocated = reset_peak_memory_stats
reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Start the counts of allocations, frees, retries and out-of-memory errors anew."""
    device_of(device).memory.reset_counts()


def empty_cache() -> None:
    """Give cached memory of all devices back to their drivers; opens none."""
    for where in opened().opened():
        where.empty_cache()


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Allow at most this part (0 to 1) of a device's memory. Raises TypeError or ValueError as torch.cuda does."""
    from ..runtime.pool_options import check_fraction

    check_fraction(fraction)
    where = device_of(device)
    where.memory_limit = int(where.properties.total_memory * fraction)


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The part of a device's memory that may be used."""
    where = device_of(device)
    total = where.properties.total_memory
    return 1.0 if where.memory_limit is None or not total else where.memory_limit / total


def get_allocator_backend() -> str:
    """ "native": the pool of torch_fl."""
    return "native"
