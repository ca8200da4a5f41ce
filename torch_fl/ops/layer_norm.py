"""layer_norm in one op with one result where nothing is differentiated.

torch takes it apart into native_layer_norm, whose mean and rstd only a gradient reads: two tensors made for nothing,
and a dispatch more. In training it still does.
"""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..compat.untraced import untraced
from ..dispatch import boxed
from ..kernels.norm import compute_dtype
from ..refs import Ref, Value
from ..registry import kernel
from ..tensor import Tensor
from ..whole import differentiable, looked_at
from .norm import normalize_rows

_FUNC = torch.ops.aten.layer_norm.default
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@kernel("aten::layer_norm")
def layer_norm(
    b: Builder,
    input: Ref,
    normalized_shape: list[int],
    weight: Ref | None,
    bias: Ref | None,
    eps: Value,
    cudnn_enable: bool,
) -> None:
    """(x - mean) * rstd * weight + bias over the trailing `normalized_shape`."""
    rows = input.shape[: input.ndim - len(normalized_shape)]
    mean, rstd = (b.temp(rows, compute_dtype(input.dtype)) for _ in range(2))
    normalize_rows(b, input, normalized_shape, weight, bias, eps, mean, rstd)


def _kept_whole(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> torch.Tensor:
    ours = all(t is None or type(t) is Tensor for t in (input, weight, bias))
    if not ours or looked_at() or differentiable(input, weight, bias):
        return _FUNC._op_dk(_COMPOSITE, input, normalized_shape, weight, bias, eps, cudnn_enable)  # type: ignore[no-any-return]
    return boxed(_FUNC, input, normalized_shape, weight, bias, eps, cudnn_enable)  # type: ignore[no-any-return]


_library: Any = torch.library.Library("aten", "IMPL")
_library.impl("layer_norm", untraced(_kept_whole), "AutogradPrivateUse1")
