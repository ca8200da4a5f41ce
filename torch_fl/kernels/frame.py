"""Geometry of convolution: how an input is laid out for a window, and the phases a stride splits positions into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..refs import Ref
from .window import Triple, Window, triple

_ALL = range(3)


@dataclass(frozen=True)
class Frame:
    """How one input is laid out for one window: see the head of native/conv.c.

    `lines`: positions per dimension from one line, plane or sample to the next. `phases`: of the stride.
    """

    window: Window
    size: Triple
    out: Triple
    samples: int
    lines: Triple
    phases: Triple
    align: int

    @classmethod
    def of(cls, window: Window, size: Sequence[int], out: Sequence[int], samples: int, align: int) -> Frame:
        """The tightest frame for input `size`, output size `out` and `samples` in a row; sizes are (D, H, W)."""
        phases = triple([s if k > 1 else 1 for k, s in zip(window.kernel, window.stride)], 3, 1)
        lines = triple([_line(window, d, size[d], out[d], phases[d]) for d in _ALL], 3, 1)
        return cls(window, triple(size, 3, 1), triple(out, 3, 1), samples, lines, phases, align)

    @property
    def steps(self) -> tuple[int, int, int, int]:
        """Positions from one output to the next per dimension (W, H, D), and from one sample to the next."""
        d, h, w = self.lines
        return 1, w, w * h, w * h * d

    @property
    def segment(self) -> int:
        """Positions of one channel and phase."""
        return -(-self.samples * self.steps[3] // self.align) * self.align

    @property
    def n_phases(self) -> int:
        """Phases over all dimensions."""
        return self.phases[0] * self.phases[1] * self.phases[2]

    @property
    def positions(self) -> int:
        """Positions up to the last output."""
        _, h, d, n = self.steps
        return (self.samples - 1) * n + (self.out[0] - 1) * d + (self.out[1] - 1) * h + self.out[2]

    @property
    def tail(self) -> int:
        """Positions read past the last segment: the largest shift, and one tile."""
        w = self.window
        shifts = [(w.kernel[d] - 1) * w.dilation[d] // w.stride[d] for d in _ALL]
        return shifts[2] + shifts[1] * self.steps[1] + shifts[0] * self.steps[2] + 4 * self.align

    @property
    def is_plain(self) -> bool:
        """Whether a row-major input already looks like this."""
        return self.lines == self.size and self.window.padding == (0, 0, 0) and self.n_phases == 1


def _line(window: Window, d: int, size: int, out: int, phases: int) -> int:
    """Positions per line: outputs must fit, and a read past the end must meet only the zeros of the next line."""
    stride, pad = window.stride[d], window.padding[d]
    last = out - 1 + (window.kernel[d] - 1) * window.dilation[d] // stride
    zeros = -(-max(0, pad - phases + 1) // stride)
    return max(out, min(last + 1, max(-(-(size + pad) // stride), last - zeros + 1)), 1)


@dataclass(frozen=True)
class Phase:
    """One dimension of one phase: positions first, first + stride, ...; taps tap, tap + step, ... (count of them)."""

    first: int
    length: int
    stride: int
    tap: int
    step: int
    count: int
    padding: int
    dilation: int

    @classmethod
    def of(cls, window: Window, d: int, phase: int, size: int) -> Phase:
        """Positions i with (i + padding) % stride == phase, and taps k with k * dilation % stride == phase."""
        kernel, stride, pad, dilation = (v[d] for v in (window.kernel, window.stride, window.padding, window.dilation))
        first = (phase - pad) % stride
        length = max(0, -(-(size - first) // stride))
        taps = [k for k in range(kernel) if k * dilation % stride == phase]
        if not taps:
            return cls(first, length, stride, 0, 1, 0, 0, 1)
        step = taps[1] - taps[0] if len(taps) > 1 else 1
        apart = step * dilation // stride
        # position first + stride * q meets output q + (first + pad) // stride - tap * dilation // stride
        lead = (first + pad) // stride - taps[0] * dilation // stride
        return cls(first, length, stride, taps[0], step, len(taps), (len(taps) - 1) * apart - lead, max(1, apart))

    def positions(self, ref: Ref, dim: int) -> Ref:
        """The positions of this phase: a strided view."""
        return _slice(ref, dim, self.first, self.length, self.stride)

    def taps(self, ref: Ref, dim: int) -> Ref:
        """The taps of this phase, last first."""
        return _slice(ref, dim, self.tap + (self.count - 1) * self.step, self.count, -self.step)


def _slice(ref: Ref, dim: int, first: int, length: int, step: int) -> Ref:
    shape, strides = list(ref.shape), list(ref.strides)
    offset = first * strides[dim] if length else 0
    shape[dim], strides[dim] = length, strides[dim] * step
    return ref.as_strided(shape, strides, offset)
