"""The accelerator that Lightning's Trainer uses for `accelerator="npu"`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch


def accelerator_class(accelerators: ModuleType, exceptions: ModuleType) -> type[Any]:
    """A subclass of Lightning's Accelerator for the virtual device, for either of its two package names."""
    about = {"refusal": exceptions.MisconfigurationException}
    return type("NPUAccelerator", (_Virtual, accelerators.Accelerator), about)


class _Virtual:
    """Virtual devices, one per Trainer: everything that Lightning's class leaves to a subclass."""

    refusal: type[Exception]
    """What Lightning raises for devices that are not there."""

    def setup(self, trainer: Any) -> None:
        """Put the strategy on the device: for accelerators it does not know, Lightning leaves it on the CPU."""
        strategy = trainer.strategy
        wanted = trainer._accelerator_connector._parallel_devices
        if strategy.root_device.type == "cpu" and len(wanted) == 1:
            strategy._root_device = wanted[0]
        torch.npu.set_device(strategy.root_device)  # type: ignore[attr-defined]

    def setup_device(self, device: torch.device) -> None:
        """Nothing: `setup` follows."""

    def teardown(self) -> None:
        """Give cached memory back."""
        torch.npu.empty_cache()  # type: ignore[attr-defined]

    def get_device_stats(self, device: torch.device) -> dict[str, Any]:
        """Memory statistics, by torch's names."""
        return dict(torch.npu.memory_stats(device))  # type: ignore[attr-defined]

    @classmethod
    def parse_devices(cls, devices: Any) -> list[int]:
        """Indices from what `Trainer(devices=...)` was given."""
        return _indices(devices, cls.refusal)

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """Devices of the indices."""
        return [torch.device("npu", i) for i in devices]

    @staticmethod
    def auto_device_count() -> int:
        """How many `devices="auto"` means: the first."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """Whether a device can be opened."""
        return bool(torch.npu.is_available())  # type: ignore[attr-defined]

    @staticmethod
    def name() -> str:
        """The flag."""
        return "npu"


def _indices(devices: Any, error: type[Exception]) -> list[int]:
    count, asked = int(torch.npu.device_count()), devices  # type: ignore[attr-defined]
    if isinstance(devices, str):
        devices = [int(d) for d in devices.split(",") if d.strip()] if "," in devices else int(devices)
    if isinstance(devices, int):
        devices = range(count if devices == -1 else devices)
    found = list(devices)
    if not found or max(found) >= count:
        raise error(f"devices={asked!r} was asked for, but there are {count} npu device(s)")
    return found
