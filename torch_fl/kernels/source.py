"""Kernel sources: written once in C, rendered for OpenCL C, plain C, and CUDA and HIP (a new dialect adds a renderer).

A source file (`native/*.c`) holds helpers and kernels. A kernel is written

    kernel name(in T x, out U y, long n, Layout m) {
        ... GID0, GSIZE0 (and 1, 2): index and number of work-items ...
    }

`in`, `out` and `inout` mark buffers; each buffer gets a hidden offset (in elements) so that views of one allocation
can be passed. Work-items are independent of each other (no barriers): the host dialect runs them as a loop.
Types may be macros given as defines. `IDX` is `int` where every index of the launch fits, else `long`.

For chips with local memory there is a second form, launched on a grid of groups instead of work-items:

    kernel name(in T x, out U y, long n) groups(SIZE) {
        SHARED(float, tile, 64);        an array of the group, at the top of the kernel; pointers to it are LOCAL float*
        ... LID, GROUP0, GROUPS0 ...    0 <= LID < SIZE in the group; index and number of groups (and 1, 2)
        BARRIER;                        passed by all work-items of a group or by none
    }

SIZE is a number or a define, at most 256. In plain C each work-item is a fiber (native/groups_c.h): right, not fast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..errors import KernelError, message

NATIVE = Path(__file__).resolve().parents[1] / "native"
if not NATIVE.is_dir():  # a checkout keeps it beside the package
    NATIVE = NATIVE.parents[1] / "native"

FIELD = 8
"""Alignment in bytes of the fields in the struct of a kernel's scalars (OpenCL, CUDA and HIP)."""

_KERNEL = re.compile(r"^kernel\s+(\w+)\s*\(([^)]*)\)\s*(?:groups\((\w+)\)\s*)?\{", re.MULTILINE)


@dataclass(frozen=True)
class Param:
    """One kernel parameter: `access` is "in", "out", "inout" for buffers, "" for scalars and structs."""

    name: str
    ctype: str
    access: str = ""


@dataclass(frozen=True)
class Kernel:
    """A parsed kernel: its parameters in order, and how many work-items a group has ("" for independent ones)."""

    name: str
    params: tuple[Param, ...]
    group: str = ""

    def local(self, defines: Mapping[str, object]) -> int:
        """Work-items of a group; 0 where they are independent."""
        return int(str(defines.get(self.group, self.group) or 0))


def _parse_param(text: str, where: str) -> Param:
    words = text.split()
    if len(words) == 3 and words[0] in ("in", "out", "inout"):
        return Param(words[2], words[1], words[0])
    if len(words) == 2:
        return Param(words[1], words[0])
    raise KernelError(message(f"cannot read the parameter {text!r} of {where}", hint='write "in T x" or "int n"'))


@lru_cache(maxsize=4096)
def parse(text: str) -> dict[str, Kernel]:
    """All kernels of a source text by name. Raises KernelError where a header cannot be read."""
    found = {}
    for match in _KERNEL.finditer(text):
        name, params = match.group(1), [p.strip() for p in match.group(2).split(",") if p.strip()]
        found[name] = Kernel(name, tuple(_parse_param(p, name) for p in params), match.group(3) or "")
    return found


@lru_cache(maxsize=256)
def read_native(name: str) -> str:
    """The text of `native/<name>`."""
    return (NATIVE / name).read_text()


def _defines(defines: Mapping[str, object]) -> str:
    return "".join(f"#define {k} {v}\n" for k, v in defines.items())


def render(text: str, dialect: str, defines: Mapping[str, object]) -> str:
    """The complete source for a compiler: prelude of the dialect, defines, and the kernels with their headers."""
    header = _RENDERERS[dialect]
    kernels = parse(text)
    body = _KERNEL.sub(lambda m: header(kernels[m.group(1)]), text)
    tail = "".join(_c_entry(k) for k in kernels.values()) if dialect == "c" else ""
    prelude = read_native(f"prelude_{_PRELUDES.get(dialect, dialect)}.h") + read_native("prelude.h")
    if dialect == "c" and any(k.group for k in kernels.values()):
        prelude = read_native("groups_c.h") + prelude
    return f"{_defines(defines)}{prelude}\n{body}\n{tail}"


def _opencl_header(kernel: Kernel) -> str:
    """Buffers one by one, everything else in one struct: drivers copy and check each argument at every launch.

    Fields start at multiples of `FIELD` bytes, in the order of the parameters; a buffer's field is its offset.
    """
    params, fields, moves = [], [], []
    for p in kernel.params:
        if not p.access:
            fields.append((p.ctype, p.name))
            moves.append(f"const {p.ctype} {p.name} = args_.{p.name};")
            continue
        const = "const " if p.access == "in" else ""
        fields.append(("long", f"{p.name}_at"))
        params.append(f"global {const}{p.ctype}* restrict {p.name}_")
        moves.append(f"global {const}{p.ctype}* restrict {p.name} = {p.name}_ + args_.{p.name}_at;")
    fields.append(("long", "grid0_"))
    if not kernel.group:
        moves.append("const long grid0_ = args_.grid0_; if (GID0 >= grid0_) return;")
    params.append(f"const {kernel.name}_args args_")
    size = f" __attribute__((reqd_work_group_size({kernel.group}, 1, 1)))" if kernel.group else ""
    return f"{_struct(kernel, fields)}kernel{size} void {kernel.name}({', '.join(params)}) {{ {' '.join(moves)}"


def _struct(kernel: Kernel, fields: Sequence[tuple[str, str]]) -> str:
    members = " ".join(f"{t} {n} __attribute__((aligned({FIELD})));" for t, n in fields)
    return f"typedef struct {{ {members} }} {kernel.name}_args;\n"


def _cuda_header(kernel: Kernel) -> str:
    """Buffers one by one, with their offsets added by the host; everything else and the grid in one struct by value.

    `ENTER` (native/prelude_cuda.h) makes the work-item's place in the grid from CUDA's, which is one line of blocks;
    `ENTER_GROUP` the group's.
    """
    scalars = [(p.ctype, p.name) for p in kernel.params if not p.access]
    moves = [f"const {t} {n} = args_.{n};" for t, n in scalars]
    fields = [*scalars, *(("long", f"grid{d}_") for d in range(3))]
    const = {"in": "const ", "out": "", "inout": ""}
    params = [f"{const[p.access]}{p.ctype}* __restrict__ {p.name}" for p in kernel.params if p.access]
    params.append(f"const {kernel.name}_args args_")
    bounds, enter = (f"__launch_bounds__({kernel.group}, 2) ", "ENTER_GROUP") if kernel.group else ("", "ENTER")
    entry = f'extern "C" __global__ void {bounds}{kernel.name}({", ".join(params)})'
    return f"{_struct(kernel, fields)}{entry} {{ {enter}(args_) {' '.join(moves)}"


def _c_params(kernel: Kernel) -> list[str]:
    const = {"in": "const ", "out": "", "inout": ""}
    return [
        f"{const[p.access]}{p.ctype}* restrict {p.name}" if p.access else f"const {p.ctype} {p.name}"
        for p in kernel.params
    ]


def _c_header(kernel: Kernel) -> str:
    names = ("GROUP", "GROUPS") if kernel.group else ("GID", "GSIZE")
    ids = [f"const long {n}{d}" for n in names for d in range(3)]
    if kernel.group:
        ids.append("const int LID")
    return f"static inline void {kernel.name}_item({', '.join([*_c_params(kernel), *ids])}) {{"


def _c_group_entry(kernel: Kernel, args: Sequence[str]) -> str:
    """The exported function of a kernel with groups: a loop over them, each a set of fibers."""
    places = [*(f"at[{i}]" for i in range(6)), "lid"]
    return (
        f"static void {kernel.name}_fiber(void** a, const long* at, int lid)"
        f" {{ {kernel.name}_item({', '.join([*args, *places])}); }}\n"
        f"void {kernel.name}(void** a, long n0, long n1, long n2) {{ const long n = n0 * n1 * n2;\n"
        f"  PARALLEL_FOR for (long i = 0; i < n; ++i) {{\n"
        f"    const long at[6] = {{i % n0, i / n0 % n1, i / n0 / n1, n0, n1, n2}};\n"
        f"    run_group({kernel.group}, {kernel.name}_fiber, a, at); }} }}\n"
    )


def _c_entry(kernel: Kernel) -> str:
    """The exported function: unpacks an array of pointers to the arguments, then loops over the grid."""
    args = [
        f"*({'const ' if p.access == 'in' else ''}{p.ctype}**)a[{i}]" if p.access else f"*(const {p.ctype}*)a[{i}]"
        for i, p in enumerate(kernel.params)
    ]
    if kernel.group:
        return _c_group_entry(kernel, args)
    call = f"{kernel.name}_item({', '.join([*args, 'i % n0', 'i / n0 % n1', 'i / n0 / n1', 'n0', 'n1', 'n2'])});"
    return (
        f"void {kernel.name}(void** a, long n0, long n1, long n2) {{ const long n = n0 * n1 * n2;\n"
        f"  PARALLEL_FOR for (long i = 0; i < n; ++i) {call} }}\n"
    )


_RENDERERS = {"opencl": _opencl_header, "c": _c_header, "cuda": _cuda_header, "hip": _cuda_header}
_PRELUDES = {"hip": "cuda"}
