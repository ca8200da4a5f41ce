"""Optimizers choose their foreach and fused forms only for tensor classes on two lists of torch's; ours joins them."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import _foreach_supported_types as _of_optimizers
from torch.utils._foreach_utils import _foreach_supported_types as _of_utilities


def allow_foreach(kind: Any) -> None:
    """Let optimizers and clip_grad_norm_ take lists of tensors of class `kind`."""
    for supported in (_of_optimizers, _of_utilities):
        if kind not in supported:
            supported.append(kind)
