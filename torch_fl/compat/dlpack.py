"""The legacy `torch.to_dlpack` is C++ and would export the null pointer of our tensors: it asks the tensor instead."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.utils.dlpack

from .. import names


def install() -> None:
    """Wrap to_dlpack; done at registration, before anybody imports it by name."""
    everywhere: tuple[Any, ...] = (torch, torch.utils.dlpack)
    original = everywhere[0].to_dlpack

    @functools.wraps(original)
    def to_dlpack(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        refuses = isinstance(tensor, torch.Tensor) and names.is_ours(tensor.device)
        return tensor.__dlpack__() if refuses else original(tensor, *args, **kwargs)

    for module in everywhere:
        module.to_dlpack = to_dlpack
