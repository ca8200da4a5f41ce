"""Sliding windows over one to three spatial dimensions, always handled as three: missing ones have size 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..refs import Layout, Ref

Triple = tuple[int, int, int]


def triple(values: Sequence[int], rank: int, missing: int) -> Triple:
    """A value for each of three dimensions from `rank` values (or one for all); the leading ones are `missing`."""
    given = list(values) * rank if len(values) == 1 else list(values)
    full = [missing] * (3 - rank) + given
    return full[0], full[1], full[2]


def volume(ref: Ref, rank: int) -> Ref:
    """`[N, C, D, H, W]` from `[N, C, ...]` or `[C, ...]` with `rank` spatial dimensions; a view."""
    if ref.ndim == rank + 1:
        ref = ref.unsqueeze(0)
    for _ in range(3 - rank):
        ref = ref.unsqueeze(2)
    return ref


def layout(shape: Sequence[int], *refs: Ref) -> Layout:
    """The `LayoutK` of refs of equal rank walked over `shape`, innermost dimension first."""
    return Layout(tuple(reversed(shape)), tuple(tuple(reversed(r.strides)) for r in refs))


@dataclass(frozen=True)
class Window:
    """Kernel size, stride, padding and dilation in each of three dimensions."""

    kernel: Triple
    stride: Triple = (1, 1, 1)
    padding: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)

    def __str__(self) -> str:
        return " ".join(f"{k} " + "x".join(map(str, v)) for k, v in vars(self).items())

    @classmethod
    def of(
        cls, rank: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
    ) -> Window:
        """From the arguments of an op with `rank` spatial dimensions; an empty stride is the kernel size."""
        return cls(
            triple(kernel, rank, 1),
            triple(stride or kernel, rank, 1),
            triple(padding, rank, 0),
            triple(dilation, rank, 1),
        )

    @property
    def size(self) -> int:
        """Elements in one window."""
        return self.kernel[0] * self.kernel[1] * self.kernel[2]

    def over(self, shape: Sequence[int]) -> Layout:
        """The `Layout4` of a kernel: sizes of the input `shape` (D, H, W), then the four parameters."""
        rows = (self.kernel, self.stride, self.padding, self.dilation)
        return Layout(tuple(reversed(shape)), tuple(tuple(reversed(r)) for r in rows))
