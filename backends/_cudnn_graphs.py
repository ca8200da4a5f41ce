"""What a convolution or an attention looks like in cuDNN's graph API (PyPI's nvidia-cudnn-frontend, module `cudnn`).

A `Node` says everything about a problem, so that it is also the key under which its plan is kept. Nothing here needs a
card: what these functions draw can be checked by the real package's `validate()` anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from torch_fl.kernels.window import Window
from torch_fl.refs import Ref
from torch_fl.spec import Ints, contiguous_strides

TYPES = {torch.float16: "HALF", torch.bfloat16: "BFLOAT16", torch.float32: "FLOAT"}
"""Members of cudnn.data_type. Everything is computed in FLOAT."""


@dataclass(frozen=True)
class Operand:
    """A tensor of a graph, by the name of the parameter that takes it, or of what it is."""

    name: str
    shape: Ints
    strides: Ints
    dtype: torch.dtype


@dataclass(frozen=True)
class Node:
    """A graph of one operation: a method of cudnn.pygraph, what it reads, what it writes, and its other arguments.

    Operands are numbered from 1 in this order; a call gives the address of each number.
    """

    method: str
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    numbers: tuple[tuple[str, Any], ...]

    @property
    def dtype(self) -> torch.dtype:
        """Of the layer; only log-sum-exps have another."""
        return self.reads[0].dtype


def draw(cudnn: Any, graph: Any, node: Node) -> None:
    """Put the node into an empty graph."""
    inputs = {
        t.name: graph.tensor(
            name=t.name, dim=list(t.shape), stride=list(t.strides), data_type=_type(cudnn, t.dtype), uid=uid
        )
        for uid, t in enumerate(node.reads, 1)
    }
    made = getattr(graph, node.method)(**inputs, **{k: _plain(v) for k, v in node.numbers})
    results = made if isinstance(made, (list, tuple)) else [made]
    for uid, (t, result) in enumerate(zip(node.writes, results), 1 + len(node.reads)):
        result.set_output(True).set_data_type(_type(cudnn, t.dtype)).set_uid(uid)
        result.set_dim(list(t.shape)).set_stride(list(t.strides))


def new_graph(cudnn: Any, dtype: torch.dtype, **more: Any) -> Any:
    """An empty graph whose sums are made in float32."""
    wide = cudnn.data_type.FLOAT
    return cudnn.pygraph(
        io_data_type=_type(cudnn, dtype), intermediate_data_type=wide, compute_data_type=wide, **more
    )  # fmt: skip


def _type(cudnn: Any, dtype: torch.dtype) -> Any:
    return getattr(cudnn.data_type, TYPES[dtype])


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# -- convolutions ----------------------------------------------------------------------------------------------------
_CONVOLUTIONS = {
    "convolution": ("conv_fprop", "image", "weight"),
    "convolution input gradient": ("conv_dgrad", "loss", "filter"),
    "convolution weight gradient": ("conv_wgrad", "image", "loss"),
}
"""The method, and what its two operands are called."""


def convolution(name: str, made: Ref, first: Ref, second: Ref, window: Window, last: bool) -> Node:
    """[N, C, H, W] or [N, C, D, H, W] and [O, I, ...], row-major or (`last`) with channels last in memory.

    Groups are what the channels of the input are more than those of the weight.
    """
    method, *names = _CONVOLUTIONS[name]
    rank = made.ndim - 2
    numbers = tuple((k, getattr(window, k)[-rank:]) for k in ("padding", "stride", "dilation"))
    reads = tuple(_packed(n, r, last) for n, r in zip(names, (first, second)))
    return Node(method, reads, (_packed("result", made, last),), numbers)


def _packed(name: str, ref: Ref, last: bool) -> Operand:
    return Operand(name, ref.shape, packed_strides(ref.shape, last), ref.dtype)


def packed_strides(shape: Ints, last: bool) -> Ints:
    """Strides of [N, C, ...] in one piece, row-major or with channels last."""
    if not last:
        return contiguous_strides(shape)
    n, *rest, c = contiguous_strides((shape[0], *shape[2:], shape[1]))
    return (n, c, *rest)


# -- attention -------------------------------------------------------------------------------------------------------
LOG_SUM = "stats"
"""What backward calls the log-sum-exps: natural logarithms, as ours."""


def attention(q: Ref, k: Ref, v: Ref, bias: Ref | None, scale: float, causal: bool, out: Ref, lse: Ref) -> Node:
    """[b, h, l, e] with heads in one piece; lse [b, h, lq]. A causal query sees keys up to its own number."""
    reads = _named(q=q, k=k, v=v, bias=bias)
    return Node(
        "sdpa", reads, _named(out=out, stats=lse.unsqueeze(-1)), (("is_inference", False), *_score(scale, causal))
    )


def attention_gradients(
    q: Ref, k: Ref, v: Ref, bias: Ref | None, scale: float, causal: bool, grad: Ref, out: Ref, lse: Ref,
    grads: tuple[Ref, Ref, Ref], deterministic: bool,
) -> Node:  # fmt: skip
    """Gradients of q, k and v."""
    reads = _named(q=q, k=k, v=v, o=out, dO=grad, stats=lse.unsqueeze(-1), bias=bias)
    once = (("use_deterministic_algorithm", True),) if deterministic else ()
    return Node("sdpa_backward", reads, _named(dq=grads[0], dk=grads[1], dv=grads[2]), (*_score(scale, causal), *once))


def _score(scale: float, causal: bool) -> tuple[tuple[str, Any], ...]:
    return (("attn_scale", scale), *((("use_causal_mask", True),) if causal else ()))


def _named(**refs: Ref | None) -> tuple[Operand, ...]:
    return tuple(Operand(n, r.shape, told_strides(r), r.dtype) for n, r in refs.items() if r is not None)


def told_strides(ref: Ref) -> Ints:
    """Strides as cuDNN is told them: torch's of a dimension of one element may be anything."""
    if ref.is_contiguous:
        return contiguous_strides(ref.shape)
    whole = prod(ref.shape)
    return (*(s if n > 1 else whole for n, s in zip(ref.shape[:-1], ref.strides)), 1)
