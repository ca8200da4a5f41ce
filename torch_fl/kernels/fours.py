"""Pointwise kernels for chips with local memory: four elements per work-item, loaded and stored as one where aligned.

They take what is dense or broadcast along rows of a multiple of four elements, which is most of it. Long functions stay
one element per work-item: their time is not in memory, and four copies of them would cost registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..builder import Builder
    from ..refs import Ref

LONGEST = 12000
"""Most characters of helper functions: what native/math.h has and native/special.h has not."""


def takes_fours(
    b: Builder,
    steps: Mapping[str, str],
    sizes: Sequence[int],
    walked: Mapping[str, Ref],
    outs: Sequence[str],
    used: str,
) -> bool:
    """Whether a pointwise kernel over these operands is of that kind. `used`: the text of the functions it calls."""
    if not b.groups or len(used) > LONGEST or any(r.dtype.is_complex for r in walked.values()):
        return False
    if any(steps[n] != "1" for n in outs) or any(s not in ("0", "1") for s in steps.values()):
        return False
    return len(sizes) == 1 or sizes[0] % 4 == 0


def four_types(steps: Mapping[str, str]) -> str:
    """The types of four elements of each operand."""
    return "".join(f"FOUR(Four_{n}, T_{n});\n" for n, s in steps.items() if s == "1")


def four_body(
    steps: Mapping[str, str],
    rank: int,
    single: Sequence[str],
    reads: Sequence[str],
    writes: Sequence[str],
    code: str,
    setup: str,
) -> str:
    """The text of one work-item; past the end it repeats the last element, whose results are not stored."""
    dense = [n for n, s in steps.items() if s == "1"]
    hoisted = "".join(f"  const ACC {n} = GET_{n}(p_{n}[0]);\n" for n in single)
    aligned = "".join(f" && ALIGNED(p_{n} + at_{n}, 4 * sizeof(T_{n}))" for n in dense)
    wide = "".join(
        f"    {{ const Four_{n} v_ = *(const GLOBAL Four_{n}*)(p_{n} + at_{n}); "
        f"q_{n}[0] = v_.x, q_{n}[1] = v_.y, q_{n}[2] = v_.z, q_{n}[3] = v_.w; }}\n"
        for n in reads
        if n in dense
    )
    narrow = "".join(f" q_{n}[j_] = p_{n}[at_{n} + k_];" for n in reads if n in dense)
    same = "".join(
        f"  {{ const T_{n} v_ = p_{n}[at_{n}]; q_{n}[0] = q_{n}[1] = q_{n}[2] = q_{n}[3] = v_; }}\n"
        for n in reads
        if n not in dense
    )
    loads = "".join(f" ACC {n} = GET_{n}(q_{n}[j_]);" for n in reads)
    results = "".join(f" w_{n}[j_] = T_{n}_save(EXPR_{n});" for n in writes)
    stores = "".join(
        f"    {{ Four_{n} v_; v_.x = w_{n}[0], v_.y = w_{n}[1], v_.z = w_{n}[2], v_.w = w_{n}[3]; "
        f"*(GLOBAL Four_{n}*)(p_{n} + at_{n}) = v_; }}\n"
        for n in writes
    )
    last = "".join(f" p_{n}[at_{n} + j_] = w_{n}[j_];" for n in writes)
    private = "".join(f" T_{n} q_{n}[4];" for n in reads) + "".join(f" T_{n} w_{n}[4];" for n in writes)
    return f"""
{hoisted}  {setup}
  const IDX start_ = (IDX)(GID0 * 4), left_ = (IDX)(total_ - start_);
{_places(steps, rank)}  const bool whole_ = left_ >= 4{aligned};
 {private}
{same}  if (whole_) {{
{wide}  }} else {{
    UNROLL for (int j_ = 0; j_ < 4; ++j_) {{ const IDX k_ = j_ < left_ ? j_ : left_ - 1;{narrow} }}
  }}
  UNROLL for (int j_ = 0; j_ < 4; ++j_) {{
   {loads} {code}
   {results}
  }}
  if (whole_) {{
{stores}  }} else {{
    UNROLL for (int j_ = 0; j_ < 4; ++j_) if (j_ < left_) {{{last} }}
  }}
"""


def _places(steps: Mapping[str, str], rank: int) -> str:
    """Where the first element of each operand is."""
    if rank == 1:
        return "".join(f"  const IDX at_{n} = start_ * {s};\n" for n, s in steps.items())
    begin = "".join(f" at_{n} = j0_ * {s}," for n, s in steps.items())
    walk = "".join(f" at_{n} += i_ * m_.stride[{k}][d_];" for k, n in enumerate(steps))
    return f"""  IDX row_ = start_ / m_.size[0];
  const IDX j0_ = start_ - row_ * m_.size[0];
  IDX{begin.rstrip(",")};
  for (IDX d_ = 1; d_ < m_.rank; ++d_) {{
    const IDX i_ = row_ % m_.size[d_];
    row_ /= m_.size[d_];
   {walk}
  }}
"""
