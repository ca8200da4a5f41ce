"""What each chip does with each floating dtype: where and in what type arithmetic happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..api import devices
from ..errors import dtype_name
from .devices import Device

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Support:
    """One dtype on one chip.

    `arithmetic`: the dtype of intermediate results and sums. `units`: the chip has arithmetic of the dtype itself;
    where it has not, halves are stored in 16 bits and computed in float32, and float64 runs on the CPU.
    `autocast`: torch.autocast takes the dtype.
    """

    arithmetic: torch.dtype
    place: str
    units: bool
    autocast: bool

    def __str__(self) -> str:
        return f"{dtype_name(self.arithmetic)} on {self.place}"


class Precision(Mapping[tuple[str, torch.dtype], Support]):
    """(device name, dtype) -> Support, of all devices: `precision()["npu:0", torch.bfloat16].arithmetic`."""

    def __init__(self, rows: Mapping[tuple[str, torch.dtype], Support]) -> None:
        self._rows = dict(rows)

    def __getitem__(self, key: tuple[Any, torch.dtype]) -> Support:
        return self._rows[str(key[0]), key[1]]

    def __iter__(self) -> Iterator[tuple[str, torch.dtype]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        lines = [f"{'device':8}{'dtype':10}{'arithmetic':21}{'own units':11}autocast"]
        for (device, dtype), s in self._rows.items():
            name = dtype_name(dtype)
            lines.append(f"{device:8}{name:10}{s!s:21}{_yes(s.units):11}{_yes(s.autocast)}")
        return "\n".join(lines)


def precision() -> Precision:
    """The support matrix of all devices. Raises DeviceError where there is none."""
    return Precision({(f"npu:{d.index}", dtype): _support(d, dtype) for d in devices() for dtype in DTYPES})


def _support(device: Device, dtype: torch.dtype) -> Support:
    from ..compat.npu import get_amp_supported_dtype

    p = device.properties
    units = {torch.float64: p.fp64, torch.float32: True, torch.float16: p.fp16, torch.bfloat16: p.bf16}[dtype]
    wide = dtype in (torch.float64, torch.float32)
    place = "the chip" if wide <= units else "the CPU"
    return Support(dtype if wide else torch.float32, place, units, dtype in get_amp_supported_dtype())


def _yes(value: bool) -> str:
    return "yes" if value else "no"
