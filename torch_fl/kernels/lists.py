"""One launch for lists of tensors: pointwise kernels whose every element is a tensor (foreach ops, optimizers).

A launch per tensor costs more than the work on a small one, and leaves cores idle at the end of each. Where kernels may
use addresses (`Backend.addresses`), up to `MOST` tensors are one run of elements that work-items share out; elsewhere,
and for layouts that are not one dense run, `emit` serves each tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..refs import Addresses, Numbers, Ref, Value
from .pointwise import _compute_defines, _helpers, _operand, changed_names, emit
from .runs import MOST, addressed, counted

if TYPE_CHECKING:
    from ..builder import Builder


@dataclass(frozen=True)
class Step:
    """The arguments of `emit` for one tensor of a list."""

    outs: Mapping[str, tuple[Ref, str]]
    tensors: Mapping[str, Ref]
    scalars: Mapping[str, Value | float | int | bool]
    compute: torch.dtype


@dataclass(frozen=True)
class Texts:
    """C that all steps of a list share, as for `emit`."""

    helpers: str = ""
    code: str = ""
    setup: str = ""


def emit_each(b: Builder, steps: Sequence[Step], texts: Texts = Texts()) -> None:
    """Each step as `emit` would do it. Results must not be written twice, nor read by another step."""
    alone, groups = _grouped(b, steps)
    for step in alone:
        emit(b, step.outs, step.tensors, step.scalars, step.compute, texts.helpers, texts.code, texts.setup)
    for found in groups.values():
        for start in range(0, len(found), MOST):
            _launch(b, found[start : start + MOST], texts)


def _grouped(b: Builder, steps: Sequence[Step]) -> tuple[Sequence[Step], dict[Any, list[Step]]]:
    """Steps that need a launch of their own, and those that share one, by kind."""
    if not b.device.backend.addresses or len(steps) < 2 or _written_twice(b, steps):
        return steps, {}
    alone: list[Step] = []
    groups: dict[Any, list[Step]] = {}
    for step in steps:
        kind = _kind_of(step)
        if kind is None:
            alone.append(step)
        elif next(iter(step.outs.values()))[0].numel:
            groups.setdefault(kind, []).append(step)
    for kind in [k for k in groups if k[-1] is None]:  # tensors of one element fit into any group
        host = next((k for k in groups if k[:-1] == kind[:-1] and k is not kind), None)
        if host is not None:
            groups[host] += groups.pop(kind)
    return alone, groups


def _written_twice(b: Builder, steps: Sequence[Step]) -> bool:
    places = [b.places[r.slot] for s in steps for r, _ in s.outs.values() if r.slot < len(b.places)]
    return len(set(places)) < len(places)


def _kind_of(step: Step) -> Any:
    """Steps of one kind can share a launch; None: this one is not a dense run of elements."""
    refs = {**{n: o[0] for n, o in step.outs.items()}, **step.tensors}
    first = next(iter(refs.values()))
    if step.compute.is_complex or any(r.dtype.is_complex for r in refs.values()):
        return None
    single = tuple(n for n, r in refs.items() if n not in step.outs and r.numel == 1 < first.numel)
    if not all(n in single or _same_run(first, r) for n, r in refs.items()):
        return None
    dtypes = tuple((n, r.dtype) for n, r in refs.items())
    expressions = tuple((n, o[1]) for n, o in step.outs.items())
    return dtypes, expressions, step.compute, tuple(step.scalars), single if first.numel != 1 else None


def _same_run(first: Ref, ref: Ref) -> bool:
    """Whether both lie densely in memory with their elements in the same order."""
    if ref.shape != first.shape:
        return False
    if first.is_contiguous and ref.is_contiguous:
        return True
    apart = any(n != 1 and s != t for n, s, t in zip(ref.shape, ref.strides, first.strides))
    return not apart and first.extent == first.numel and 0 not in first.strides


@dataclass
class _Names:
    """How each name of the expressions reaches the kernel."""

    walked: list[str] = field(default_factory=list)
    single: list[str] = field(default_factory=list)
    """One element for each tensor."""
    shared: list[str] = field(default_factory=list)
    """One element for all tensors."""
    numbers: list[str] = field(default_factory=list)
    """A number for each tensor."""
    common: list[str] = field(default_factory=list)
    """A number for all tensors."""

    @classmethod
    def of(cls, steps: Sequence[Step], texts: Texts) -> _Names:
        found, first = cls(), steps[0]
        changed = changed_names(texts.code, first.outs)
        for n in [*first.outs, *(n for n in first.tensors if n not in first.outs)]:
            refs = [s.outs[n][0] if n in s.outs else s.tensors[n] for s in steps]
            if n in changed or any(r.numel != 1 for r in refs):
                found.walked.append(n)
            else:
                (found.shared if len(set(refs)) == 1 else found.single).append(n)
        for n in first.scalars:
            same = all(s.scalars[n] is first.scalars[n] for s in steps)
            (found.common if same else found.numbers).append(n)
        return found


def _launch(b: Builder, steps: Sequence[Step], texts: Texts) -> None:
    first, names = steps[0], _Names.of(steps, texts)
    refs = [{**{n: o[0] for n, o in s.outs.items()}, **s.tensors} for s in steps]
    ends = list(accumulate(r[names.walked[0]].numel for r in refs))
    if ends[-1] >= 2**62:
        raise Unsupported("lists of too many elements")
    defines = _compute_defines(b, first.compute) | {"MOST": MOST}
    for n in (*names.walked, *names.single, *names.shared):
        defines |= _operand(b, n, refs[0][n].dtype, first.compute)
    defines |= {f"EXPR_{n}": f"({o[1]})" for n, o in first.outs.items()}
    items, chunk = b.split(ends[-1])
    columns = [[r[n] for r in refs] for n in (*names.walked, *names.single)]
    addresses = Addresses(tuple(ref for column in columns for ref in addressed(column).refs))
    args: list[Any] = [addresses, counted(ends), *(refs[0][n] for n in names.shared)]
    for n in names.numbers:
        given = [s.scalars[n] for s in steps]
        args.append(Numbers("REAL", (*given, *[0] * (MOST - len(given)))))
    args += [first.scalars[n] for n in names.common]
    b.launch(_text(first, names, texts), "lists", items, [*args, len(steps), chunk], defines)


def _text(step: Step, names: _Names, texts: Texts) -> str:
    """The kernel: which tensors a work-item's share of the elements meets, and the loop over one of them."""
    used = _helpers(texts.helpers, texts.code, texts.setup, *(o[1] for o in step.outs.values()))
    reads, writes = [n for n in step.tensors if n in names.walked], list(step.outs)
    params = [f"{_pointer(n, step)} p_{n}" for n in (*names.walked, *names.single)]
    params += [f"const ACC {n}" for n in names.shared] + [f"const REAL {n}" for n in (*names.numbers, *names.common)]
    hoisted = "".join(f"  const ACC {n} = GET_{n}(p_{n}[0]);\n" for n in names.single)
    loads = "".join(f"    ACC {n} = GET_{n}(p_{n}[j_]);\n" for n in reads)
    results = "".join(f"    const T_{n} r_{n} = T_{n}_save(EXPR_{n});\n" for n in writes)
    saves = "".join(f"    p_{n}[j_] = r_{n};\n" for n in writes)
    pointers = [
        f"({_pointer(n, step).removesuffix(' restrict')})list_.at[{k} * MOST + k_]"
        for k, n in enumerate((*names.walked, *names.single))
    ]
    shared = "".join(f"  const ACC {n} = GET_{n}(p_{n}[0]);\n" for n in names.shared)
    passed = [*pointers, *names.shared, *(f"{n}_.v[k_]" for n in names.numbers), *names.common]
    header = ["List list_", "Ends ends_", *(f"in T_{n} p_{n}" for n in names.shared)]
    header += [f"ListNumbers {n}_" for n in names.numbers] + [f"REAL {n}" for n in names.common]
    return f"""{used}
typedef struct {{ ulong at[{len(pointers)} * MOST]; }} List;
typedef struct {{ long at[MOST]; }} Ends;
typedef struct {{ REAL v[MOST]; }} ListNumbers;
FUNC void one_({", ".join(params)}, const long from_, const long to_) {{
{hoisted}  {texts.setup}
  for (long j_ = from_; j_ < to_; ++j_) {{
{loads}    {texts.code}
{results}{saves}  }}
}}
kernel lists({", ".join(header)}, int count_, long chunk_) {{
{shared}  const long first_ = GID0 * chunk_, end_ = first_ + chunk_;
  for (int k_ = 0; k_ < count_; ++k_) {{
    const long base_ = k_ ? ends_.at[k_ - 1] : 0, stop_ = ends_.at[k_] < end_ ? ends_.at[k_] : end_;
    const long start_ = first_ > base_ ? first_ : base_;
    if (start_ < stop_) one_({", ".join(passed)}, start_ - base_, stop_ - base_);
  }}
}}
"""


def _pointer(name: str, step: Step) -> str:
    return f"{'' if name in step.outs else 'const '}GLOBAL T_{name}* restrict"
