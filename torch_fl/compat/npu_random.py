"""The random-number functions of `torch.npu`; the state is in runtime/random.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..runtime import random as _random
from .which import DeviceLike, index_of

if TYPE_CHECKING:
    from collections.abc import Iterable

default_generators = _random.DefaultGenerators()
"""One generator per device: the ones ops use when none is given."""


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; called by torch.manual_seed."""
    _random.manual_seed_all(seed)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    _random.default_generator(index_of(None)).manual_seed(seed)


def seed() -> None:
    """Seed the current device's generator with an unpredictable number."""
    _random.default_generator(index_of(None)).seed()


def seed_all() -> None:
    """Seed the generators of all devices with one unpredictable number."""
    _random.manual_seed_all(torch.Generator("cpu").seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _random.default_generator(index_of(None)).initial_seed()


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    """Random state of a device (default: the current one) as a CPU ByteTensor."""
    return _random.default_generator(index_of(device)).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = None) -> None:
    """Restore what get_rng_state returned."""
    _random.default_generator(index_of(device)).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Random states of all devices."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restore what get_rng_state_all returned."""
    for generator, state in zip(default_generators, new_states):
        generator.set_state(state)
