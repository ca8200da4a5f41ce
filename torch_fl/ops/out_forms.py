"""out= forms of composites that ask C++ about storages or subclasses, which it cannot answer for these tensors.

They run as the functional form and a copy into `out`, by an op that makes torch's checks of out= itself.
"""

from __future__ import annotations

from typing import Any

import torch

from ..registry import handler

_ATEN = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_NO_DERIVATIVE = (
    "matmul(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
    "requires grad."
)
_library: Any = torch.library.Library("aten", "IMPL")


@handler("aten::matmul.out")
def matmul_out(self: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """matmul; where torch folds batches it asks whether a view of `out` shares its storage."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in (self, other, out)):
        raise RuntimeError(_NO_DERIVATIVE)
    if max(self.dim(), other.dim()) > 2:
        return _ATEN.clone.out(torch.matmul(self, other), out=out)  # type: ignore[no-any-return]
    return _ATEN.matmul.out._op_dk(_COMPOSITE, self, other, out=out)  # type: ignore[no-any-return]


def _matrix_rank_out(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """linalg.matrix_rank, which leaves `out` as it is where a tensor is a subclass."""
    return torch.add(torch.linalg.matrix_rank(*args, **kwargs), 0, out=out)


_library.impl("matmul.out", matmul_out, "AutogradPrivateUse1")
for _name in ("out", "out_tol_tensor", "atol_rtol_tensor_out", "atol_rtol_float_out"):
    handler(f"aten::linalg_matrix_rank.{_name}")(_matrix_rank_out)
    _library.impl(f"linalg_matrix_rank.{_name}", _matrix_rank_out, "AutogradPrivateUse1")
