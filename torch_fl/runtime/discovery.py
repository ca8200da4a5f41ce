"""Which adapters and chips there are: nothing is opened but by `open_all`.

In-tree adapters are found by scanning `torch_fl.backends`, others by the entry-point group `torch_fl.backends`.
The core never names a chip: cards come before the CPU, then order comes from `Backend.preference`, then from the
adapter's own order.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from ..errors import DeviceError, did_you_mean, message
from .adapter import Backend, Discovery, Properties
from .device import Device


@dataclass(frozen=True)
class Found:
    """One line of `torch-fl devices`: an adapter's chip with its index, or why it has none."""

    backend: str
    properties: Properties | None
    index: int | None
    note: str


def backend_classes() -> dict[str, type[Backend]]:
    """All adapters that are installed, by name."""
    return {c.name: c for c in _in_tree() | _installed()}


def _classes_of(module: Any) -> Iterator[type[Backend]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Backend) and value.__module__ == module.__name__:
            yield value


def _in_tree() -> set[type[Backend]]:
    package = importlib.import_module("torch_fl.backends")
    names = [m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")]
    return {c for n in names for c in _classes_of(importlib.import_module(f"torch_fl.backends.{n}"))}


_REGISTERED: dict[str, type[Backend]] = {}
_BROKEN: dict[str, str] = {}


def register_backend(backend: type[Backend]) -> type[Backend]:
    """Make an adapter known in this process (usable as a class decorator); before the first device is opened."""
    _REGISTERED[backend.name] = backend
    return backend


def _installed() -> set[type[Backend]]:
    found = set(_REGISTERED.values())
    for point in entry_points(group="torch_fl.backends"):
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001 - somebody else's package must not take ours down
            _BROKEN[point.name] = f"entry point {point.value} failed to load: {error!r}"
            continue
        found.update([loaded] if isinstance(loaded, type) else _classes_of(loaded))
    return found


def _discover(backend: type[Backend]) -> Discovery:
    try:
        return backend.discover()
    except Exception as error:  # noqa: BLE001 - discover() must not raise; if it does, that is the reason
        return Discovery(absent=f"discover() failed: {error!r}")


def _choose(names: list[str] | None) -> list[type[Backend]]:
    known = backend_classes()
    if names is None:
        return sorted(known.values(), key=lambda b: (-b.preference, b.name))
    for name in names:
        if name not in known:
            raise DeviceError(message(f"there is no backend {name!r}", hint=did_you_mean(name, known)))
    return [known[n] for n in names]


class _Seen:
    """The chips that were opened, to know them again when another adapter lists them."""

    def __init__(self) -> None:
        self.opened: list[Device] = []
        self._named: set[tuple[int, str]] = set()

    def twin(self, backend: type[Backend], p: Properties) -> int | None:
        """Index of the opened chip that this is: by its fingerprint, or by name where a driver tells no PCI address."""
        for device in self.opened:
            if p.fingerprint and device.properties.fingerprint == p.fingerprint:
                return device.index
        for device in self.opened:
            q, key = device.properties, (device.index, backend.name)
            unknown = -1 in (p.pci_bus_id, q.pci_bus_id) and p.pci_bus_id != q.pci_bus_id
            if unknown and device.backend.name != backend.name and key not in self._named and _same_name(p, q):
                self._named.add(key)  # a machine may have two cards of one name
                return device.index
        return None


def _same_name(p: Properties, q: Properties) -> bool:
    return p.kind == q.kind != "cpu" and p.name.casefold() == q.name.casefold()


def open_all(wanted: list[str] | None) -> tuple[list[Device], list[Found]]:
    """Open the chips of the backends in `wanted` (None: all, best first): the devices, and what was found of each."""
    discovered = [(backend, _discover(backend)) for backend in _choose(wanted)]
    found = [Found(backend.name, None, None, d.absent) for backend, d in discovered if d.absent or not d.found]
    chips = [(backend, properties) for backend, d in discovered for properties in d.found]
    if wanted is None:
        chips.sort(key=lambda chip: chip[1].kind == "cpu")
    opened: list[Device] = []
    seen = _Seen()
    for backend, properties in chips:
        # A chip that two adapters see is opened once, unless the user asked for both by name.
        twin = seen.twin(backend, properties) if wanted is None else None
        if twin is not None:
            found.append(Found(backend.name, properties, None, f"same chip as npu:{twin}"))
            continue
        try:
            device = Device(len(opened), backend(properties))
        except Exception as error:  # noqa: BLE001 - a chip that does not open is reported, not fatal
            found.append(Found(backend.name, properties, None, f"could not be opened: {error}"))
            continue
        seen.opened.append(device)
        opened.append(device)
        found.append(Found(backend.name, properties, device.index, ""))
    found += [Found(name, None, None, reason) for name, reason in _BROKEN.items()]
    return opened, found
