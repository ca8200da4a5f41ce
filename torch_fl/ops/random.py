"""Random numbers: every op draws from Philox counters, element i from block offset + i / 4, however work is split.

So one seed gives one sequence on every chip. Seed and offset are launch-time values; a launch reserves its blocks
exactly once. Numbers that torch validates (std, bounds, p) are validated at each launch, because plans outlive them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..builder import Builder
from ..errors import Unsupported, unsupported_dtype
from ..kernels.source import read_native
from ..refs import Ref, Value
from ..registry import kernel
from ..runtime.random import philox_of

_LANES = 32
_DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}


class _Taken(threading.local):
    offset = 0


_taken = _Taken()


def draw_key(b: Builder, generator: Value | None, blocks: int) -> tuple[Value, Value]:
    """Launch-time (seed, offset) of `blocks` counter blocks; adapters set arguments in order, so seed reserves them."""
    index = b.device.index

    def seed(values: Sequence[Any]) -> int:
        given = None if generator is None else generator.get(values)
        found, _taken.offset = philox_of(given, index).take(blocks)
        return found

    return Value(int, seed), Value(int, lambda values: _taken.offset)


def random_source(name: str) -> str:
    return read_native("philox.h") + read_native(name)


def number(value: Any) -> Value:
    return value if isinstance(value, Value) else Value(type(value), lambda values: value)


def _both(a: Value, c: Value, fn: Callable[[Any, Any], Any]) -> Value:
    return Value(float, lambda values: fn(a.get(values), c.get(values)))


def lanes_of(b: Builder) -> int:
    return _LANES if b.is_cpu else 1


def fill_dense(b: Builder, target: Ref, write: Callable[[Ref], None]) -> None:
    """Let `write` fill a row-major Ref: the target, or a temporary that is copied to it."""
    if target.numel == 0:
        return
    dense = b.row_major(target)
    write(dense)
    b.deliver(target, dense)


def _draw(
    b: Builder, target: Ref, generator: Value | None, defines: Mapping[str, object], words: int, a: Any, c: Any
) -> None:
    """target = the distribution that `defines` describe (see native/random.c), with parameters a and c."""
    lanes = lanes_of(b)
    tile = 4 * lanes // words
    macros = {**b.types(T=target.dtype), "LANES": lanes, "WORDS": words, **defines}
    if b.fp64:
        macros["FP64"] = 1

    def write(dense: Ref) -> None:
        tiles = -(-dense.numel // tile)
        items, chunk = b.split(tiles, 64)
        blocks = -(-dense.numel * words // 4)
        seed, offset = draw_key(b, generator, blocks)
        b.launch(random_source("random.c"), "draw", items, [dense, dense.numel, chunk, seed, offset, a, c], macros)

    fill_dense(b, target, write)


def _real(b: Builder, dtype: torch.dtype) -> tuple[dict[str, object], int]:
    """Defines and words per element of a distribution computed in floating point."""
    if dtype == torch.float64:
        b.types(T=dtype)  # Unsupported where the chip has no float64
        return {"VALUE": "double", "PARAM": "double"}, 2
    if dtype.is_complex:
        raise Unsupported("dtype complex")
    return {"VALUE": "float", "PARAM": "float"}, 1


def draw_real(
    b: Builder,
    target: Ref,
    generator: Any,
    how: Mapping[str, object],
    a: Any = 0.0,
    c: Any = 0.0,
    any_dtype: bool = False,
) -> None:
    if not any_dtype and not target.dtype.is_floating_point:
        raise unsupported_dtype(target.dtype)
    defines, words = _real(b, target.dtype)
    _draw(b, target, generator, {**defines, **how}, words, a, c)


def require(condition: bool, text: str) -> None:
    if not condition:
        raise RuntimeError(text)


# -- one distribution, in place ------------------------------------------------------------------------------------
@kernel("aten::uniform_")
def uniform_(b: Builder, self: Ref, from_: Value, to: Value, generator: Any) -> None:
    """[from, to): what rounds up to `to` becomes `from`, as on CUDA."""
    draw_uniform(b, b.out(), from_, to, generator)


def draw_uniform(b: Builder, target: Ref, from_: Value, to: Value, generator: Any) -> None:
    """Uniform numbers into any real tensor."""
    low, high = number(from_), number(to)

    def check(lo: float, hi: float) -> float:
        require(lo <= hi, f"uniform_ expects to return a [from, to) range, but found from={lo} > to={hi}")
        return hi

    draw = "T_load(T_save(U * (b - a) + a)) < T_load(T_save(b)) ? U * (b - a) + a : a"
    draw_real(b, target, generator, {"DRAW": draw}, low, _both(low, high, check))


def checked_std(op: str, std: Any) -> Value:
    def check(value: float) -> float:
        require(value >= 0, f"{op} expects std >= 0.0, but found std {value:g}")
        return value

    return number(std).map(check)


@kernel("aten::normal_")
def normal_(b: Builder, self: Ref, mean: Value, std: Value, generator: Any) -> None:
    """Normal numbers."""
    draw_normal(b, b.out(), number(mean), checked_std("normal", std), generator)


def draw_normal(b: Builder, target: Ref, mean: Any, std: Any, generator: Any) -> None:
    """Normal numbers (Box and Muller) into any real tensor."""
    draw_real(b, target, generator, {"AFTER(z)": "((z) * b + a)"}, mean, std)


@kernel("aten::log_normal_")
def log_normal_(b: Builder, self: Ref, mean: Value, std: Value, generator: Any) -> None:
    """exp of normal numbers."""

    def check(value: float) -> float:
        require(value > 0, f"log_normal_ expects std > 0.0, but found std={value:g}")
        return value

    after = {"AFTER(z)": "exp((z) * b + a)"}
    draw_real(b, b.out(), generator, after, number(mean), number(std).map(check))


@kernel("aten::exponential_")
def exponential_(b: Builder, self: Ref, lambd: Value, generator: Any) -> None:
    """-log(u) / lambd, always greater than 0."""

    def check(value: float) -> float:
        require(value > 0, f"exponential_ expects lambda > 0.0, but found lambda={value:g}")
        return 1.0 / value

    draw_real(b, b.out(), generator, {"DRAW": "-LOG(O) * a"}, number(lambd).map(check))


@kernel("aten::cauchy_")
def cauchy_(b: Builder, self: Ref, median: Value, sigma: Value, generator: Any) -> None:
    """median + sigma * tan(pi * (u - 1/2))."""

    def check(value: float) -> float:
        require(value > 0, f"cauchy_ expects sigma > 0.0, but found sigma={value:g}")
        return value

    draw = "a + b * tan((VALUE)3.14159265f * (O - (VALUE)0.5f))"
    if self.dtype == torch.float64:
        draw = "a + b * tan(3.141592653589793 * (O - 0.5))"
    draw_real(b, b.out(), generator, {"DRAW": draw}, number(median), number(sigma).map(check))


@kernel("aten::geometric_")
def geometric_(b: Builder, self: Ref, p: Value, generator: Any) -> None:
    """Trials up to the first success: ceil(log(u) / log(1 - p)), at least 1."""

    def rate(value: float) -> float:
        require(0 < value < 1, f"geometric_ expects p to be in (0, 1), but got p={value:g}")
        return 1.0 / math.log1p(-value)

    draw = "ceil(LOG(O) * a) > 1 ? ceil(LOG(O) * a) : (VALUE)1"
    draw_real(b, b.out(), generator, {"DRAW": draw}, number(p).map(rate), any_dtype=True)


def checked_chance(p: Any) -> Value:
    """A probability, checked at every call."""

    def check(value: float) -> float:
        require(0 <= value <= 1, f"bernoulli_ expects p to be in [0, 1], but got p={value:g}")
        return value

    return number(p).map(check)


@kernel("aten::bernoulli_.float", "aten::bernoulli.p")
def bernoulli_float(b: Builder, self: Ref, p: Value, generator: Any) -> None:
    """1 with chance p, else 0."""
    target = b.out()
    defines = {"VALUE": "float", "PARAM": "float", "DRAW": "U < a"}
    _draw(b, target, generator, defines, 1, checked_chance(p), 0.0)


# -- integers ------------------------------------------------------------------------------------------------------
def _draw_range(b: Builder, target: Ref, generator: Any, low: int, count: int) -> None:
    """Integers in [low, low + count); count 2**64 means every int64."""
    wide = count > 2**32
    draw = "(long)((((ulong)RAW * a) >> 32) + b)"
    if wide:
        draw = "(long)((a ? RAW % a : RAW) + b)"
    defines = {"VALUE": "long", "PARAM": "ulong", "DRAW": draw}
    _draw(b, target, generator, defines, 2 if wide else 1, count % 2**64, low % 2**64)


def _last_integer(dtype: torch.dtype) -> int:
    """The largest integer random_() gives: all smaller ones are exact in the dtype too."""
    if dtype == torch.bool:
        return 1
    return 2 ** _DIGITS[dtype] if dtype in _DIGITS else min(torch.iinfo(dtype).max, 2**63 - 1)


@kernel("aten::random_")
def random_(b: Builder, self: Ref, generator: Any) -> None:
    """Integers from 0 to the largest the dtype holds exactly."""
    if self.dtype.is_complex:
        raise Unsupported("dtype complex")
    _draw_range(b, b.out(), generator, 0, _last_integer(self.dtype) + 1)


@kernel("aten::random_.to")
def random_to(b: Builder, self: Ref, to: int, generator: Any) -> None:
    """Integers in [0, to)."""
    _draw_range(b, b.out(), generator, 0, to)


@kernel("aten::random_.from")
def random_from(b: Builder, self: Ref, from_: int, to: int | None, generator: Any) -> None:
    """Integers in [from, to); without `to` up to the largest of the dtype."""
    if to is not None:
        count = to - from_
    elif from_ == -(2**63):
        count = 2**64
    else:
        count = _last_integer(self.dtype) + 1 - from_
    _draw_range(b, b.out(), generator, from_, count)
