"""The names our device type goes by: `npu`, and one more while a compat layer lends it that name (`cuda`).

C++ knows `npu` alone. While another name is lent, both are understood wherever Python names a device, and
`tensor.device` shows the lent one, so that scripts which compare it with what they asked for are right.
"""

from __future__ import annotations

import torch

OWN = "npu"


class _State:
    name = OWN
    names: tuple[str, ...] = (OWN,)
    shown: dict[int, torch.device] = {}
    own: dict[int, torch.device] = {}


def name() -> str:
    """The name that tensors show."""
    return _State.name


def all_names() -> tuple[str, ...]:
    """The names that are understood."""
    return _State.names


def is_ours(device: torch.device) -> bool:
    """Whether a device is one of ours, under either name."""
    return device.type in _State.names


def canonical(device: torch.device) -> torch.device:
    """The device under the name that C++ knows; devices that are not ours pass unchanged."""
    if device.type == OWN or device.type not in _State.names:
        return device
    return torch.device(OWN) if device.index is None else torch.device(OWN, device.index)


def own(index: int) -> torch.device:
    """The chip with this index under the name that C++ knows."""
    found = _State.own.get(index)
    if found is None:
        found = _State.own[index] = torch.device(OWN, index)
    return found


def shown(index: int) -> torch.device:
    """What `tensor.device` says for a tensor on the chip with this index."""
    found = _State.shown.get(index)
    if found is None:
        found = _State.shown[index] = torch.device(_State.name, index)
    return found


def lend(other: str | None) -> None:
    """Go by another device type's name as well, and show it; None ends that."""
    _State.name = other or OWN
    _State.names = (OWN,) if other is None else (OWN, other)
    _State.shown = {}
