"""Pointwise kernels: one C expression per op, rendered for any mix of dtypes, broadcasts and strides.

Operands are walked like torch's TensorIterator does: dimensions sorted by the output's strides and merged where
possible, so dense operands of one layout become a single long run. The inner stride of each operand is compiled
in when it is 0 or 1 (the compiler then vectorizes); everything else is passed in a Layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from .types import ctype, raw_dtype

if TYPE_CHECKING:
    from ..plan import Builder, Ref, Value

Operand = Any  # Ref | Value | number


def merge(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Sizes and strides with dimensions ordered innermost first (by the first operand) and merged where all allow.

    The result has at least one dimension. Source of the method: torch's TensorIterator.
    """
    dims = [d for d in range(len(shape)) if shape[d] != 1]
    dims.sort(key=lambda d: ([abs(s[d]) for s in strides], -d))
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for d in dims:
        if sizes and all(m[-1] * sizes[-1] == s[d] for m, s in zip(merged, strides)):
            sizes[-1] *= shape[d]
            continue
        sizes.append(shape[d])
        for m, s in zip(merged, strides):
            m.append(s[d])
    if not sizes:
        return [1], [[1] for _ in strides]
    return sizes, merged


def _body(names: Sequence[str], n_out: int, steps: Sequence[str]) -> str:
    """The loop over one work-item's elements; `names` are all buffers, outputs first.

    Locals end in an underscore: the names in expressions are the schema's own (`end`, `start` ...).
    """
    walk = "".join(f" at_{n} += q_ * m_.stride[{k}][d_];" for k, n in enumerate(names))
    begin = "".join(f" IDX at_{n} = j0_ * {s};" for n, s in zip(names, steps))
    loads = "".join(
        f"      const ACC {n} = (ACC)T_{n}_load(p_{n}[at_{n} + j_ * {s}]);\n"
        for n, s in zip(names[n_out:], steps[n_out:])
    )
    saves = "".join(
        f"      p_{n}[at_{n} + j_ * {s}] = T_{n}_save(EXPR_{n});\n" for n, s in zip(names[:n_out], steps[:n_out])
    )
    return f"""
  const IDX inner_ = m_.size[0];
  IDX start_ = (IDX)GID0 * chunk_;
  const IDX end_ = start_ + chunk_ < total_ ? start_ + chunk_ : total_;
  while (start_ < end_) {{
    IDX row_ = start_ / inner_;
    const IDX j0_ = start_ - row_ * inner_, left_ = inner_ - j0_, n_ = left_ < end_ - start_ ? left_ : end_ - start_;
   {begin}
    for (IDX d_ = 1; d_ < m_.rank; ++d_) {{
      const IDX q_ = row_ % m_.size[d_];
      row_ /= m_.size[d_];
     {walk}
    }}
    for (IDX j_ = 0; j_ < n_; ++j_) {{
{loads}{saves}    }}
    start_ += n_;
  }}
"""


def _step(k: int, stride: int) -> str:
    return str(stride) if stride in (0, 1) else f"m_.stride[{k}][0]"


def emit(
    builder: Builder,
    outs: Mapping[str, tuple[Ref, str]],
    tensors: Mapping[str, Ref],
    scalars: Mapping[str, Value | float | int | bool],
    compute: torch.dtype,
    helpers: str = "",
) -> None:
    """Launch one pointwise kernel.

    `outs`: name -> (destination, C expression over the names of tensors and scalars). `compute`: the dtype in whose
    compute type (`ACC`) operands arrive and the expression is evaluated. Operands must broadcast to the first
    destination's shape. Raises Unsupported for dtypes without a C type and for over 8 operands.
    """
    from ..plan import Layout

    first = next(iter(outs.values()))[0]
    shape = first.shape
    names = [*outs, *tensors]
    refs = [o[0] for o in outs.values()] + [t.expand(shape) for t in tensors.values()]
    if len(refs) > 8:
        raise Unsupported("more than 8 tensors in one pointwise kernel")
    sizes, strides = merge(shape, [r.strides for r in refs])
    steps = [_step(k, st[0]) for k, st in enumerate(strides)]
    acc = ctype(compute).compute
    params = [f"out T_{n} p_{n}" for n in outs] + [f"in T_{n} p_{n}" for n in tensors]
    params += [f"ACC {n}" for n in scalars] + ["long total_", "long chunk_", f"Layout{len(refs)} m_"]
    text = f"{helpers}\nkernel pointwise({', '.join(params)}) {{{_body(names, len(outs), steps)}}}\n"
    defines: dict[str, object] = builder.types(**{f"T_{n}": r.dtype for n, r in zip(names, refs)})
    builder.types(ACC=compute)
    defines["ACC"] = acc
    defines |= {f"EXPR_{n}": f"({e[1]})" for n, e in outs.items()}
    total = first.numel
    items, chunk = builder.split(total)
    layout = Layout(tuple(sizes), tuple(tuple(s) for s in strides))
    builder.launch(text, "pointwise", items, [*refs, *scalars.values(), total, chunk, layout], defines)


def emit_copy(builder: Builder, target: Ref, source: Ref) -> None:
    """target = source, cast and broadcast; elements of equal dtype move as raw bits, so any dtype can be copied."""
    if target.dtype == source.dtype:
        if target.dtype.itemsize == 16:  # complex128: two 8-byte halves
            target, source = _halves(target), _halves(source.expand(target.shape))
        else:
            raw = raw_dtype(target.dtype.itemsize)
            target, source = _retype(target, raw), _retype(source, raw)
        emit(builder, {"o": (target, "s")}, {"s": source}, {}, target.dtype)
        return
    compute = torch.promote_types(target.dtype, source.dtype)
    if target.dtype == torch.bool:
        compute = source.dtype
    emit(builder, {"o": (target, "s")}, {"s": source}, {}, compute)


def _retype(ref: Ref, dtype: torch.dtype) -> Ref:
    from dataclasses import replace

    return replace(ref, dtype=dtype)


def _halves(ref: Ref) -> Ref:
    from dataclasses import replace

    strides = (*(2 * s for s in ref.strides), 1)
    return replace(ref, shape=(*ref.shape, 2), strides=strides, dtype=torch.int64, offset=2 * ref.offset)


def emit_fill(builder: Builder, target: Ref, value: Any) -> None:
    """target[...] = value, as the target's dtype."""
    emit(builder, {"o": (target, "value")}, {}, {"value": value}, target.dtype)
