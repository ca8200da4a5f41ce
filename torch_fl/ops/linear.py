"""linear and matmul as they are called, with their gradients: one op forward and one backward, for any ranks.

torch would take both apart into views and 2-dimensional products. It does not where the device has a kernel of its own
(`register.WHOLE`): then its derivative formulas for them apply, which call linear_backward and matmul_backward.
Numbers for which there is no kernel (complex ones, float64 on some chips) are taken apart all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import whole
from ..builder import Builder
from ..errors import Unsupported, dtype_name
from ..kernels.gemm import need_numbers
from ..kernels.matmul import as_matrices, emit_gradient, emit_matmul, new_gradients
from ..refs import Ref
from ..registry import kernel


def check_dtypes(*operands: Ref) -> None:
    """One dtype for all, which torch's meta kernels do not ask for."""
    for other in operands[1:]:
        if other.dtype != operands[0].dtype:
            names = [dtype_name(r.dtype) for r in (operands[0], other)]
            raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {names[0]} != {names[1]}")


@kernel("aten::linear")
def linear(b: Builder, input: Ref, weight: Ref, bias: Ref | None) -> None:
    """[..., k] @ [n, k].T + [n]. A bias of another shape, which torch lets broadcast, is taken apart."""
    need_numbers(input)
    check_dtypes(input, weight, *([] if bias is None else [bias]))
    if bias is not None and bias.shape != weight.shape[: weight.ndim - 1]:
        whole.odd_bias()
        raise Unsupported("a bias that is not one number for each column")
    out, a, x = as_matrices(b.out(), input, weight if weight.ndim == 1 else weight.transpose(0, 1))
    emit_matmul(b, out, a, x, bias)


@kernel("aten::linear_backward", infer=False)
def linear_backward(b: Builder, self: Ref, grad_output: Ref, weight: Ref, output_mask: Sequence[bool]) -> None:
    """Gradients of input, weight and bias."""
    need_numbers(self)
    bias = weight.as_strided(weight.shape[:1] if weight.ndim == 2 else (), (1,) if weight.ndim == 2 else ())
    grads = new_gradients(b, (self, weight, bias), output_mask)
    turned = weight if weight.ndim == 1 else weight.transpose(0, 1)
    _product_gradients(b, grad_output, self, turned, (grads[0], _turned(grads[1])))
    if grads[2] is not None:
        dims = list(range(grad_output.ndim - grads[2].ndim))
        if dims:  # none would mean all
            b.call("aten::sum.dim_IntList", grad_output, dims, False, out=grads[2])
        else:
            b.copy(grads[2], grad_output)


def _turned(ref: Ref | None) -> Ref | None:
    return ref if ref is None or ref.ndim < 2 else ref.transpose(0, 1)


@kernel("aten::matmul")
def matmul(b: Builder, self: Ref, other: Ref) -> None:
    """The product of vectors, matrices, or batches of them that broadcast."""
    need_numbers(self)
    check_dtypes(self, other)
    emit_matmul(b, *as_matrices(b.out(), self, other))


@kernel("aten::matmul_backward", infer=False)
def matmul_backward(b: Builder, grad: Ref, self: Ref, other: Ref, mask: Sequence[bool]) -> None:
    """Gradients of both operands."""
    need_numbers(self)
    _product_gradients(b, grad, self, other, new_gradients(b, (self, other), mask))


def _product_gradients(b: Builder, grad: Ref, a: Ref, x: Ref, into: Sequence[Ref | None]) -> None:
    """The gradients of a and x in `a @ x`: grad @ x.T and a.T @ grad, each summed to its operand's batch."""
    into_a, into_x = into
    g, left, right = as_matrices(grad, a, x)
    if into_a is not None:
        emit_gradient(b, into_a.unsqueeze(0) if a.ndim == 1 else into_a, g, right.transpose(-1, -2))
    if into_x is not None:
        emit_gradient(b, into_x.unsqueeze(1) if x.ndim == 1 else into_x, left.transpose(-1, -2), g)


# -- the same of other ops, for derivatives of gradients and for what has no kernel ------------------------------------
@whole.gradient("linear_backward")
def linear_gradients(
    self: torch.Tensor, grad_output: torch.Tensor, weight: torch.Tensor, output_mask: Sequence[bool]
) -> Any:
    """linear_backward of ops that have derivatives."""
    turned = weight if weight.dim() == 1 else weight.mT
    grad_input, grad_weight = matmul_gradients(grad_output, self, turned, output_mask[:2])
    if grad_weight is not None and weight.dim() == 2:
        grad_weight = grad_weight.mT
    return grad_input, grad_weight, whole.bias_gradient(grad_output, weight.dim() - 1) if output_mask[2] else None


@whole.gradient("matmul_backward")
def matmul_gradients(grad: torch.Tensor, self: torch.Tensor, other: torch.Tensor, mask: Sequence[bool]) -> Any:
    """matmul_backward of ops that have derivatives."""
    left, right = self if self.dim() > 1 else self[None], other if other.dim() > 1 else other[:, None]
    g = grad if other.dim() > 1 else grad[..., None]
    g = g if self.dim() > 1 else g[..., None, :]
    of_self = (g @ right.mH).sum_to_size(left.shape).reshape(self.shape) if mask[0] else None
    of_other = (left.mH @ g).sum_to_size(right.shape).reshape(other.shape) if mask[1] else None
    return of_self, of_other


whole.install()
