"""`torch.npu.amp`: autocast and GradScaler with the device filled in, as torch.cuda.amp has them."""

from __future__ import annotations

import functools
from typing import Any

import torch


class autocast(torch.amp.autocast_mode.autocast):
    """torch.autocast for this device type."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype | None = torch.float16, cache_enabled: bool | None = True
    ) -> None:
        super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for this device type."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("npu", *args, **kwargs)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="npu")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="npu")
