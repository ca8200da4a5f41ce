"""Pointwise kernels: one C expression per op, rendered for any mix of dtypes, broadcasts and strides.

Operands are walked like torch's TensorIterator does: dimensions sorted by the output's strides and merged where
possible, so dense operands of one layout become a single long run. The inner stride of each operand is compiled
in when it is 0 or 1 (the compiler then vectorizes); everything else is passed in a Layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported, unsupported_dtype
from ..refs import MAX_RANK, Layout, Ref, Value
from .fours import four_body, four_types, takes_fours
from .plain_copy import emit_plain_copy
from .runs import emit_halves, emit_runs
from .source import read_native
from .transpose import emit_transpose
from .types import complex_ctype, ctype, raw_dtype

if TYPE_CHECKING:
    from ..builder import Builder

MAX_SLICES = 64
"""Launches at most for one op on tensors of more than MAX_RANK dimensions."""


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


def _body(
    steps: Mapping[str, str], single: Sequence[str], reads: Sequence[str], writes: Sequence[str], code: str, setup: str
) -> str:
    """The loop over one work-item's elements; `steps` are the buffers that are walked and their inner strides.

    Locals end in an underscore: the names in expressions are the schema's own (`end`, `start` ...).
    """
    walk = "".join(f" at_{n} += q_ * m_.stride[{k}][d_];" for k, n in enumerate(steps))
    begin = "".join(f" IDX at_{n} = j0_ * {s};" for n, s in steps.items())
    hoisted = "".join(f"  const ACC {n} = GET_{n}(p_{n}[0]);\n" for n in single)
    loads = "".join(f"      ACC {n} = GET_{n}(p_{n}[at_{n} + j_ * {steps[n]}]);\n" for n in reads)
    results = "".join(f"      const T_{n} r_{n} = T_{n}_save(EXPR_{n});\n" for n in writes)
    saves = "".join(f"      p_{n}[at_{n} + j_ * {steps[n]}] = r_{n};\n" for n in writes)
    return f"""
{hoisted}  {setup}
  const IDX inner_ = m_.size[0];
  IDX start_ = (IDX)(GID0 * chunk_);
  const IDX end_ = total_ - start_ < chunk_ ? total_ : start_ + chunk_;
  while (start_ < end_) {{
    IDX row_ = start_ / inner_;
    const IDX j0_ = start_ - row_ * inner_, left_ = inner_ - j0_, n_ = left_ < end_ - start_ ? left_ : end_ - start_;
   {begin}
    for (IDX d_ = 1; d_ < m_.rank; ++d_) {{
      const IDX q_ = row_ % m_.size[d_];
      row_ /= m_.size[d_];
     {walk}
    }}
    WHOLE_REGISTERS for (IDX j_ = 0; j_ < n_; ++j_) {{
{loads}      {code}
{results}{saves}    }}
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
    code: str = "",
    setup: str = "",
) -> None:
    """Launch one pointwise kernel.

    `outs`: name -> (destination, C expression over the names of tensors and scalars). `compute`: the dtype in whose
    compute type (`ACC`) operands arrive and the expression is evaluated. Operands must broadcast to the first
    destination's shape. `code`: C statements that run before the expressions; they may change the operands. `setup`:
    statements that run once per work-item, on scalars and on tensors of one element that are only read. Where `compute`
    is complex, all operands arrive as structs of native/complex.h, whose functions stand for operators. A name in both
    `outs` and `tensors` is one buffer that is read and written. Functions named `m_...` come from native/math.h.
    Raises Unsupported for dtypes without a C type and for over 8 operands of more than one element.
    """
    shape = next(iter(outs.values()))[0].shape
    if 0 in shape:
        return
    for name, operand in [*tensors.items(), *((n, o[0]) for n, o in outs.items())]:
        _check_broadcast(name, operand.shape, shape)
    walked = {n: o[0] for n, o in outs.items()} | {n: t.expand(shape) for n, t in tensors.items() if n not in outs}
    changed = changed_names(code, outs)
    single = [n for n in tensors if n not in changed and tensors[n].numel == 1 and len(walked) > 1]
    merged = merge(shape, [r.strides for n, r in walked.items() if n not in single])
    if len(merged[0]) > MAX_RANK:
        _emit_slices(builder, outs, tensors, scalars, compute, (helpers, code, setup))
        return
    _emit_walk(builder, outs, tensors, scalars, compute, (helpers, code, setup), (walked, single, merged))


def changed_names(code: str, outs: Iterable[str]) -> set[str]:
    """The names of results, and those that C statements assign to."""
    return set(re.findall(r"(\w+)\s*[-+*/]?=[^=]", code)) | set(outs)


def _check_broadcast(name: str, shape: Sequence[int], target: Sequence[int]) -> None:
    """A kernel that walks an operand past its end would corrupt memory: shapes must broadcast."""
    lead = len(target) - len(shape)
    if lead < 0 or any(n not in (1, want) for n, want in zip(shape, target[lead:])):
        raise Unsupported(f"{name} of shape {list(shape)} does not broadcast to {list(target)}")


def _emit_slices(
    builder: Builder, outs: Any, tensors: Any, scalars: Any, compute: torch.dtype, texts: tuple[str, str, str]
) -> None:
    """The same for operands of too many dimensions: one launch for each index of the smallest dimension."""
    shape = next(iter(outs.values()))[0].shape
    dim = min((d for d in range(len(shape)) if shape[d] > 1), key=lambda d: shape[d])
    if builder.n_launches > MAX_SLICES:
        raise Unsupported(f"more than {MAX_RANK} dimensions that cannot be merged")
    for i in range(shape[dim]):
        emit(
            builder,
            {n: (o[0].select(dim, i), o[1]) for n, o in outs.items()},
            {n: t.expand(shape).select(dim, i) for n, t in tensors.items()},
            scalars, compute, *texts,
        )  # fmt: skip


def _emit_walk(
    builder: Builder, outs: Any, tensors: Any, scalars: Any, compute: torch.dtype, texts: Any, layout: Any
) -> None:
    helpers, code, setup = texts
    walked, single, (sizes, strides) = layout
    names = [n for n in walked if n not in single]
    if len(names) > 8:
        raise Unsupported("more than 8 tensors in one pointwise kernel")
    steps = {n: _step(k, st[0]) for k, (n, st) in enumerate(zip(names, strides))}
    access = {n: "in" if n not in outs else "inout" if n in tensors else "out" for n in walked}
    numbers, setup = _numbers(scalars, compute, setup)
    params = [f"{access[n]} T_{n} p_{n}" for n in walked] + [f"REAL {n}" for n in numbers]
    params += ["long total_", "long chunk_", f"Layout{len(names)} m_"]
    reads = [n for n in tensors if n not in single]
    used = _helpers(helpers, code, setup, *(o[1] for o in outs.values()))
    used = read_native("complex.h") + used if compute.is_complex else used
    fours = takes_fours(builder, steps, sizes, walked, list(outs), used)
    if fours:
        body, used = four_body(steps, len(sizes), single, reads, list(outs), code, setup), used + four_types(steps)
    else:
        body = _body(steps, single, reads, list(outs), code, setup)
    text = f"{used}\nkernel pointwise({', '.join(params)}) {{{body}}}\n"
    defines = _compute_defines(builder, compute) | _width(builder, steps, compute, helpers, code, outs)
    for n, r in walked.items():
        defines |= _operand(builder, n, r.dtype, compute)
    defines |= {f"EXPR_{n}": f"({o[1]})" for n, o in outs.items()}
    total = next(iter(walked.values())).numel
    items, chunk = (-(-total // 4), 4) if fours else builder.split(total)
    bound = Layout.of(sizes, strides)
    builder.launch(text, "pointwise", items, [*walked.values(), *numbers.values(), total, chunk, bound], defines)


def _width(
    builder: Builder, steps: Mapping[str, str], compute: torch.dtype, helpers: str, code: str, outs: Any
) -> dict[str, object]:
    """Asks for whole registers where compilers can inline what the loop calls, and elements are neighbours."""
    calls = set(re.findall(r"\b(\w+)\(", " ".join([code, *(o[1] for o in outs.values())])))
    fits = builder.is_cpu and compute == torch.float32 and not helpers and calls <= _INLINED
    return {"ON_CPU": 1} if fits and all(s in ("0", "1") for s in steps.values()) else {}


_INLINED = {"ACC", "K", *(f"m_{n}" for n in (
    "exp", "expm1", "log", "log1p", "tanh", "erf", "sigmoid", "sqrt", "gelu", "gelu_grad", "gelu_tanh",
    "gelu_tanh_grad", "silu_grad", "softplus", "mish_grad"))}  # fmt: skip


def _helpers(helpers: str, *code: str) -> str:
    """The helper functions of a kernel, and the library files whose functions (by their prefix) it calls."""
    used = " ".join([helpers, *code])
    found = [read_native(name) for mark, name in _LIBRARIES.items() if re.search(rf"\b{mark}\w+\(", used)]
    return "\n".join([*dict.fromkeys(found), helpers])


_LIBRARIES = {"(?:fast|m|s)_": "fastmath.h", "(?:m|s)_": "math.h", "s_": "special.h"}


def _numbers(scalars: Mapping[str, Any], compute: torch.dtype, setup: str) -> tuple[dict[str, Any], str]:
    """The kernel's number parameters, and `setup` after what makes complex numbers of pairs of them."""
    if not compute.is_complex:
        return dict(scalars), setup
    numbers: dict[str, Any] = {}
    for name, value in scalars.items():
        numbers |= {f"{name}_{part}_": _part(value, part) for part in ("real", "imag")}
    made = "".join(f"const ACC {n} = c_new({n}_real_, {n}_imag_); " for n in scalars)
    return numbers, made + setup


def _part(value: Any, part: str) -> Any:
    """The real or imaginary part of a number, or of one that comes at launch."""
    get = attrgetter(part)
    return value.map(get, float) if isinstance(value, Value) else get(value)


def _operand(builder: Builder, name: str, dtype: torch.dtype, compute: torch.dtype) -> dict[str, object]:
    """How operand `name` is stored, saved, and brought into the compute type (`GET_name`)."""
    if not dtype.is_complex:
        get = "c_real((REAL)T_{0}_load(v))" if compute.is_complex else "((ACC)T_{0}_load(v))"
        return builder.types(**{f"T_{name}": dtype}) | {f"GET_{name}(v)": get.format(name)}
    if not compute.is_complex:
        raise unsupported_dtype(dtype)
    builder.types(REAL=dtype.to_real())
    kind = complex_ctype(dtype)
    get = "(v)" if dtype == compute else f"from_{kind.store}(v)"
    save = "(v)" if dtype == compute else kind.save
    wide: dict[str, object] = {"COMPLEX128": 1} if dtype == torch.complex128 else {}
    return {f"T_{name}": kind.store, f"T_{name}_save(v)": save, f"GET_{name}(v)": get, **wide}


def _compute_defines(builder: Builder, compute: torch.dtype) -> dict[str, object]:
    """ACC, what the helper functions must know of it, and `K(1.5)` for constants in it."""
    if compute.is_complex:
        kind, real = complex_ctype(compute).compute, compute.to_real()
        wide: dict[str, object] = {"COMPLEX128": 1} if compute == torch.complex128 else {}
        return _compute_defines(builder, real) | {"ACC": kind, "REAL": ctype(real).compute, **wide}
    builder.types(ACC=compute)
    defines: dict[str, object] = {"ACC": ctype(compute).compute, "REAL": ctype(compute).compute}
    if compute == torch.float64:
        return defines | {"ACC_REAL": 1, "ACC_DOUBLE": 1, "K(v)": "v"}
    if compute.is_floating_point:
        return defines | {"ACC_REAL": 1, "K(v)": "v##f"}
    return defines | {"ACC_BITS": 8 * compute.itemsize, "ACC_SIGNED": int(compute.is_signed)}


def emit_copy(builder: Builder, target: Ref, source: Ref) -> None:
    """target = source, cast and broadcast; elements of equal dtype move as raw bits, so any dtype can be copied."""
    if builder.device.backend.dialect is None:
        emit_plain_copy(builder, target, source)
        return
    if target.dtype == source.dtype:
        if target.dtype.itemsize == 16:  # complex128: two 8-byte halves
            target, source = complex_parts(target), complex_parts(source.expand(target.shape))
        raw = raw_dtype(target.dtype.itemsize)
        _move(builder, replace(target, dtype=raw), replace(source, dtype=raw), raw)
    elif target.dtype.is_complex or source.dtype.is_complex:
        _copy_complex(builder, target, source)
    else:
        _move(builder, target, source, _cast_dtype(target.dtype, source.dtype))


def _move(builder: Builder, target: Ref, source: Ref, compute: torch.dtype) -> None:
    """target = source through `compute`, as runs of bytes or in tiles where that is faster."""
    _check_broadcast("source", source.shape, target.shape)
    whole = source.expand(target.shape)
    if emit_halves(builder, target, whole) or (target.dtype == source.dtype and emit_runs(builder, target, whole)):
        return
    if not emit_transpose(builder, target, whole, compute):
        emit(builder, {"o": (target, "s")}, {"s": source}, {}, compute)


def _cast_dtype(target: torch.dtype, source: torch.dtype) -> torch.dtype:
    """The dtype in which a cast happens: C's own conversion from it to the target gives torch's values."""
    ctype(target), ctype(source)  # raises Unsupported for float8, which torch promotes to nothing
    if target.is_floating_point and source.is_floating_point:
        return torch.promote_types(target, source)
    return target if target.is_floating_point and source != torch.float64 else source


def _copy_complex(builder: Builder, target: Ref, source: Ref) -> None:
    """A cast from or to a complex dtype, as real and imaginary parts."""
    if target.dtype.is_complex and source.dtype.is_complex:
        emit_copy(builder, complex_parts(target), complex_parts(source.expand(target.shape)))
    elif target.dtype.is_complex:
        emit_copy(builder, complex_parts(target).select(-1, 0), source)
        emit_fill(builder, complex_parts(target).select(-1, 1), 0)
    else:
        re_, im = complex_parts(source).select(-1, 0), complex_parts(source).select(-1, 1)
        if target.dtype != torch.bool:
            emit_copy(builder, target, re_)
        else:
            emit(builder, {"o": (target, "re != 0 || im != 0")}, {"re": re_, "im": im}, {}, re_.dtype)


def complex_parts(ref: Ref) -> Ref:
    """A complex tensor as real numbers [..., 2]."""
    strides = (*(2 * s for s in ref.strides), 1)
    dtype = ref.dtype.to_real()
    return replace(ref, shape=(*ref.shape, 2), strides=strides, dtype=dtype, offset=2 * ref.offset)


def emit_fill(builder: Builder, target: Ref, value: Any) -> None:
    """target[...] = value, as the target's dtype."""
    if builder.device.backend.dialect is None:
        emit_plain_copy(builder, target, value)
        return
    if target.dtype.is_complex:
        for k, part in enumerate(("real", "imag")):
            emit_fill(builder, complex_parts(target).select(-1, k), _part(value, part))
        return
    if target.dtype == torch.bool:
        value = value.map(bool, bool) if hasattr(value, "map") else bool(value)
    emit(builder, {"o": (target, "value")}, {}, {"value": value}, target.dtype)
