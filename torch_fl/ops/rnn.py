"""LSTM and GRU cells: the pointwise part after the two matrix products, forward and backward.

torch's recurrent layers run step by step through these ops on this device type. Gates are [batch, K * hidden] in
torch's order; workspaces are those of torch's CUDA kernels: activated gates for LSTM [batch, 4 * hidden]; reset,
update, new, hx and the hidden part of the new gate for GRU [batch, 5 * hidden].
"""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..errors import unsupported_dtype
from ..refs import Ref
from ..registry import handler, kernel


def _launch(b: Builder, name: str, tensors: list[Ref], rows: int, n: int, has_bias: bool = False) -> None:
    if not rows * n:
        return
    dtype = tensors[0].dtype
    if not dtype.is_floating_point:
        raise unsupported_dtype(dtype)
    pieces = 1 if b.is_cpu else n
    macros = {**b.types(T=dtype), "HAS_BIAS": int(has_bias)}
    b.launch("rnn_cells.c", name, (pieces, rows), [*tensors, n, n if b.is_cpu else 1], macros)


def _inputs(b: Builder, *tensors: Ref | None) -> list[Ref]:
    """Row-major operands; a missing one is replaced by the first, which the kernel then does not read."""
    first = tensors[0]
    assert first is not None
    return [b.contiguous(first if t is None else t) for t in tensors]


def _sum_rows(b: Builder, index: int, gates: Ref) -> None:
    out = b.new_out(index, gates.shape[1:], gates.dtype)
    b.call("aten::sum.dim_IntList", gates, [0], False, out=out)


def _return(b: Builder, n: int) -> None:
    """Results that were not made are undefined tensors."""
    made = len(b.outs)
    b.pack = lambda flat: tuple(flat[:made]) + (None,) * (n - made)


@kernel("aten::_thnn_fused_lstm_cell", infer=False)
def lstm_cell(
    b: Builder, input_gates: Ref, hidden_gates: Ref, cx: Ref, input_bias: Ref | None, hidden_bias: Ref | None
) -> None:
    """(hy, cy, workspace) of one LSTM step."""
    rows, n = cx.shape
    operands = _inputs(b, input_gates, hidden_gates, cx, input_bias, hidden_bias)
    outs = [b.new_out(i, (rows, size), cx.dtype) for i, size in enumerate((n, n, 4 * n))]
    _launch(b, "lstm", [*operands, *outs], rows, n, input_bias is not None)


@kernel("aten::_thnn_fused_lstm_cell_backward_impl", infer=False)
def lstm_cell_backward(
    b: Builder, grad_hy: Ref | None, grad_cy: Ref | None, cx: Ref, cy: Ref, workspace: Ref, has_bias: bool
) -> None:
    """(grad_gates, grad_cx, grad_bias); a missing incoming gradient counts as zero."""
    rows, n = cx.shape
    grads = []
    for grad in (grad_hy, grad_cy):
        if grad is None:
            grad = b.temp((rows, n), cx.dtype)
            b.fill(grad, 0)
        grads.append(grad)
    operands = _inputs(b, *grads, cx, cy, workspace)
    gates, grad_cx = b.new_out(0, (rows, 4 * n), cx.dtype), b.new_out(1, (rows, n), cx.dtype)
    _launch(b, "lstm_backward", [*operands, gates, grad_cx], rows, n)
    if has_bias:
        _sum_rows(b, 2, gates)
    _return(b, 3)


@kernel("aten::_thnn_fused_gru_cell", infer=False)
def gru_cell(
    b: Builder, input_gates: Ref, hidden_gates: Ref, hx: Ref, input_bias: Ref | None, hidden_bias: Ref | None
) -> None:
    """(hy, workspace) of one GRU step."""
    rows, n = hx.shape
    operands = _inputs(b, input_gates, hidden_gates, hx, input_bias, hidden_bias)
    outs = [b.new_out(i, (rows, size), hx.dtype) for i, size in enumerate((n, 5 * n))]
    _launch(b, "gru", [*operands, *outs], rows, n, input_bias is not None)


@kernel("aten::_thnn_fused_gru_cell_backward", infer=False)
def gru_cell_backward(b: Builder, grad_hy: Ref, workspace: Ref, has_bias: bool) -> None:
    """(grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias)."""
    rows, n = grad_hy.shape
    operands = _inputs(b, grad_hy, workspace)
    outs = [b.new_out(i, (rows, size), grad_hy.dtype) for i, size in enumerate((3 * n, 3 * n, n))]
    _launch(b, "gru_backward", [*operands, *outs], rows, n)
    if has_bias:
        _sum_rows(b, 3, outs[0])
        _sum_rows(b, 4, outs[1])
    _return(b, 5)


# -- packed sequences: lengths and batch sizes stay on the host ----------------------------------------------------
def _composed(op: str, key: torch._C.DispatchKey) -> None:
    """Serve an op by torch's own composition; as a plan it would refuse the CPU tensor among its arguments."""
    func: Any = getattr(torch.ops.aten, op).default
    handler(f"aten::{op}")(lambda *args, **kwargs: func._op_dk(key, *args, **kwargs))


_composed("_pack_padded_sequence", torch._C.DispatchKey.CompositeExplicitAutograd)
_composed("_pack_padded_sequence_backward", torch._C.DispatchKey.CompositeImplicitAutograd)
_composed("_pad_packed_sequence", torch._C.DispatchKey.CompositeImplicitAutograd)
