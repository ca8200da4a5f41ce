"""Random numbers: every op draws from Philox counters, element i from block offset + i / 4, however work is split.

So one seed gives one sequence on every chip. Seed and offset are launch-time values; a launch reserves its blocks
exactly once. Numbers that torch validates (std, bounds, p) are validated at each launch, because plans outlive them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..dispatch import call
from ..errors import Unsupported
from ..kernels.pointwise import emit
from ..kernels.source import read_native
from ..plan import Builder, Ref, Value
from ..registry import handler, kernel
from ..runtime.random import philox_of
from ..schema import NotOurs
from ..tensor import Tensor
from .rows import pointwise

_ATEN = torch.ops.aten
_LANES = 16
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


def _source(name: str) -> str:
    return read_native("philox.h") + read_native(name)


def _number(value: Any) -> Value:
    return value if isinstance(value, Value) else Value(type(value), lambda values: value)


def _both(a: Value, c: Value, fn: Callable[[Any, Any], Any]) -> Value:
    return Value(float, lambda values: fn(a.get(values), c.get(values)))


def _lanes(b: Builder) -> int:
    return _LANES if b.is_cpu else 1


def _into(b: Builder, target: Ref, write: Callable[[Ref], None]) -> None:
    """Let `write` fill a row-major Ref: the target, or a temporary that is copied to it."""
    if target.numel == 0:
        return
    dense = target if target.is_contiguous else b.temp(target.shape, target.dtype)
    write(dense)
    if dense is not target:
        b.copy(target, dense)


def _draw(
    b: Builder, target: Ref, generator: Value | None, defines: dict[str, object], words: int, a: Any, c: Any
) -> None:
    """target = the distribution that `defines` describe (see native/random.c), with parameters a and c."""
    lanes = _lanes(b)
    tile = 4 * lanes // words
    macros = {**b.types(T=target.dtype), "LANES": lanes, "WORDS": words, **defines}
    if b.fp64:
        macros["FP64"] = 1

    def write(dense: Ref) -> None:
        tiles = -(-dense.numel // tile)
        items, chunk = b.split(tiles, 64)
        blocks = -(-dense.numel * words // 4)
        seed, offset = draw_key(b, generator, blocks)
        b.launch(_source("random.c"), "draw", items, [dense, dense.numel, chunk, seed, offset, a, c], macros)

    _into(b, target, write)


def _real(b: Builder, dtype: torch.dtype) -> tuple[dict[str, object], int]:
    """Defines and words per element of a distribution computed in floating point."""
    if dtype == torch.float64:
        b.types(T=dtype)  # Unsupported where the chip has no float64
        return {"VALUE": "double", "PARAM": "double"}, 2
    if dtype.is_complex:
        raise Unsupported("dtype complex")
    return {"VALUE": "float", "PARAM": "float"}, 1


def _draw_real(
    b: Builder, target: Ref, generator: Any, how: dict[str, object], a: Any = 0.0, c: Any = 0.0, any_dtype: bool = False
) -> None:
    if not any_dtype and not target.dtype.is_floating_point:
        raise Unsupported(f"dtype {str(target.dtype).removeprefix('torch.')}")
    defines, words = _real(b, target.dtype)
    _draw(b, target, generator, {**defines, **how}, words, a, c)


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise RuntimeError(text)


# -- one distribution, in place ------------------------------------------------------------------------------------
@kernel("aten::uniform_")
def uniform_(b: Builder, self: Ref, from_: Value, to: Value, generator: Any) -> None:
    """[from, to): what rounds up to `to` becomes `from`, as on CUDA."""
    low, high = _number(from_), _number(to)

    def check(lo: float, hi: float) -> float:
        _require(lo <= hi, f"uniform_ expects to return a [from, to) range, but found from={lo} > to={hi}")
        return hi

    draw = "T_load(T_save(U * (b - a) + a)) < T_load(T_save(b)) ? U * (b - a) + a : a"
    _draw_real(b, b.out(), generator, {"DRAW": draw}, low, _both(low, high, check))


def _checked_std(op: str, std: Any) -> Value:
    def check(value: float) -> float:
        _require(value >= 0, f"{op} expects std >= 0.0, but found std {value:g}")
        return value

    return _number(std).map(check)


@kernel("aten::normal_")
def normal_(b: Builder, self: Ref, mean: Value, std: Value, generator: Any) -> None:
    """Normal numbers (Box and Muller)."""
    _draw_real(b, b.out(), generator, {"AFTER(z)": "((z) * b + a)"}, _number(mean), _checked_std("normal", std))


@kernel("aten::log_normal_")
def log_normal_(b: Builder, self: Ref, mean: Value, std: Value, generator: Any) -> None:
    """exp of normal numbers."""

    def check(value: float) -> float:
        _require(value > 0, f"log_normal_ expects std > 0.0, but found std={value:g}")
        return value

    after = {"AFTER(z)": "exp((z) * b + a)"}
    _draw_real(b, b.out(), generator, after, _number(mean), _number(std).map(check))


@kernel("aten::exponential_")
def exponential_(b: Builder, self: Ref, lambd: Value, generator: Any) -> None:
    """-log(u) / lambd, always greater than 0."""

    def check(value: float) -> float:
        _require(value > 0, f"exponential_ expects lambda > 0.0, but found lambda={value:g}")
        return 1.0 / value

    _draw_real(b, b.out(), generator, {"DRAW": "-LOG(O) * a"}, _number(lambd).map(check))


@kernel("aten::cauchy_")
def cauchy_(b: Builder, self: Ref, median: Value, sigma: Value, generator: Any) -> None:
    """median + sigma * tan(pi * (u - 1/2))."""

    def check(value: float) -> float:
        _require(value > 0, f"cauchy_ expects sigma > 0.0, but found sigma={value:g}")
        return value

    draw = "a + b * tan((VALUE)3.14159265f * (O - (VALUE)0.5f))"
    if self.dtype == torch.float64:
        draw = "a + b * tan(3.141592653589793 * (O - 0.5))"
    _draw_real(b, b.out(), generator, {"DRAW": draw}, _number(median), _number(sigma).map(check))


@kernel("aten::geometric_")
def geometric_(b: Builder, self: Ref, p: Value, generator: Any) -> None:
    """Trials up to the first success: ceil(log(u) / log(1 - p)), at least 1."""

    def rate(value: float) -> float:
        _require(0 < value < 1, f"geometric_ expects p to be in (0, 1), but got p={value:g}")
        return 1.0 / math.log1p(-value)

    draw = "ceil(LOG(O) * a) > 1 ? ceil(LOG(O) * a) : (VALUE)1"
    _draw_real(b, b.out(), generator, {"DRAW": draw}, _number(p).map(rate), any_dtype=True)


def _checked_chance(p: Any) -> Value:
    def check(value: float) -> float:
        _require(0 <= value <= 1, f"bernoulli_ expects p to be in [0, 1], but got p={value:g}")
        return value

    return _number(p).map(check)


@kernel("aten::bernoulli_.float", "aten::bernoulli.p")
def bernoulli_float(b: Builder, self: Ref, p: Value, generator: Any) -> None:
    """1 with chance p, else 0."""
    target = b.out()
    defines = {"VALUE": "float", "PARAM": "float", "DRAW": "U < a"}
    _draw(b, target, generator, defines, 1, _checked_chance(p), 0.0)


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


# -- parameters in tensors -----------------------------------------------------------------------------------------
@kernel("aten::normal.Tensor_float", "aten::normal.float_Tensor", "aten::normal.Tensor_Tensor")
def normal(b: Builder, mean: Any, std: Any, generator: Any) -> None:
    """Normal numbers scaled and shifted elementwise, broadcast."""
    out = b.out()
    work = torch.float64 if out.dtype == torch.float64 else torch.float32
    noise = b.temp(out.shape, work)
    _draw_real(b, noise, generator, {"AFTER(z)": "((z) * b + a)"}, 0.0, 1.0)
    given = {"mean": mean, "std": std if isinstance(std, Ref) else _checked_std("normal", std)}
    tensors = {"z": noise} | {n: v for n, v in given.items() if isinstance(v, Ref)}
    numbers = {n: _number(v) for n, v in given.items() if not isinstance(v, Ref)}
    emit(b, {"o": (out, "z * std + mean")}, tensors, numbers, work)


def _bernoulli_of(b: Builder, target: Ref, chance: Ref, generator: Any) -> None:
    chances = b.contiguous(chance.expand(target.shape))
    lanes = _lanes(b)
    macros = {**b.types(T=chance.dtype, X=target.dtype), "LANES": lanes, "WORDS": 1}

    def write(dense: Ref) -> None:
        items, chunk = b.split(-(-dense.numel // (4 * lanes)), 64)
        seed, offset = draw_key(b, generator, -(-dense.numel // 4))
        args = [chances, dense, dense.numel, chunk, seed, offset]
        b.launch(_source("dropout.c"), "bernoulli", items, args, macros)

    _into(b, target, write)


@kernel("aten::bernoulli_.Tensor")
def bernoulli_tensor_(b: Builder, self: Ref, p: Any, generator: Any) -> None:
    """1 with the chance in `p`, which broadcasts to self."""
    if isinstance(p, Ref):
        _bernoulli_of(b, b.out(), p, generator)
    else:
        bernoulli_float(b, self, p, generator)


@kernel("aten::bernoulli")
def bernoulli(b: Builder, self: Ref, generator: Any) -> None:
    """1 with the chance in self."""
    _bernoulli_of(b, b.out(), self, generator)


def _sample(b: Builder, function: str, target: Ref, p: Ref, q: Ref, generator: Any) -> None:
    dtype = target.dtype
    if not dtype.is_floating_point:
        raise Unsupported(f"dtype {str(dtype).removeprefix('torch.')}")
    first, second = (b.contiguous(b.cast(r.expand(target.shape), dtype)) for r in (p, q))
    macros = {**b.types(T=dtype), "LANES": 1, "WORDS": 1, "SAMPLE": function, "REAL": "double" if b.fp64 else "float"}

    def write(dense: Ref) -> None:
        items, chunk = b.split(dense.numel, 256)
        seed, offset = draw_key(b, generator, dense.numel)
        args = [first, second, dense, dense.numel, chunk, seed, offset]
        b.launch(_source("samplers.c"), "sample", items, args, macros)

    _into(b, target, write)


@kernel("aten::poisson")
def poisson(b: Builder, self: Ref, generator: Any) -> None:
    """Poisson counts with the rates in self; NaN for a negative rate."""
    _sample(b, "sample_poisson", b.out(), self, self, generator)


@kernel("aten::binomial", infer=False)
def binomial(b: Builder, count: Ref, prob: Ref, generator: Any) -> None:
    """Successes of `count` trials of chance `prob`; NaN outside their ranges."""
    out = b.new_out(0, torch.broadcast_shapes(count.shape, prob.shape), torch.promote_types(count.dtype, prob.dtype))
    _sample(b, "sample_binomial", out, count, prob, generator)


@kernel("aten::_standard_gamma")
def standard_gamma(b: Builder, self: Ref, generator: Any) -> None:
    """Gamma numbers with the shapes in self and scale 1."""
    _sample(b, "sample_gamma", b.out(), self, self, generator)


@handler("aten::_sample_dirichlet")
def sample_dirichlet(self: Tensor, generator: Any = None) -> torch.Tensor:
    """Gamma numbers that sum to 1 along the last dimension."""
    gamma = _ATEN._standard_gamma.default(self, generator)
    return gamma / gamma.sum(-1, keepdim=True)  # type: ignore[no-any-return]


# -- dropout -------------------------------------------------------------------------------------------------------
@kernel("aten::native_dropout")
def native_dropout(b: Builder, input: Ref, p: Value, train: bool | None) -> None:
    """(input * mask / (1 - p), mask): an element is kept with chance 1 - p; outside training all are."""
    result, mask = b.out(0), b.out(1)
    if train is False or result.numel == 0:
        b.copy(result, input)
        b.fill(mask, True)
        return
    source = b.contiguous(input)
    dense = [r if r.is_contiguous else b.temp(r.shape, r.dtype) for r in (result, mask)]
    lanes = _lanes(b)
    items, chunk = b.split(-(-source.numel // (4 * lanes)), 64)
    seed, offset = draw_key(b, None, -(-source.numel // 4))
    keep = _number(p).map(lambda v: 1.0 - v, float)
    scale = _number(p).map(lambda v: 0.0 if v == 1 else 1.0 / (1.0 - v), float)
    macros = {**b.types(T=input.dtype, X=mask.dtype), "LANES": lanes, "WORDS": 1}
    args = [source, *dense, source.numel, chunk, seed, offset, keep, scale]
    b.launch(_source("dropout.c"), "dropout", items, args, macros)
    for target, made in zip((result, mask), dense):
        if made is not target:
            b.copy(target, made)


pointwise("aten::native_dropout_backward", "grad_output * mask * scale", promote=("grad_output",))


@handler("aten::rrelu_with_noise")
def rrelu_with_noise(
    self: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> torch.Tensor:
    """self times a slope where negative: uniform in [lower, upper), kept in `noise`; outside training their mean."""
    if not training:
        return torch.nn.functional.leaky_relu(self, (lower + upper) / 2)
    slopes = torch.empty_like(noise).uniform_(lower, upper, generator=generator)
    noise.copy_(torch.where(self <= 0, slopes, 1))
    return self * noise


@handler("aten::rrelu_with_noise_")
def rrelu_with_noise_(self: Tensor, noise: Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The same in place."""
    return self.copy_(rrelu_with_noise(self, noise, *args, **kwargs))


# -- indices -------------------------------------------------------------------------------------------------------
def _host_generator(index: int, generator: Any) -> torch.Generator:
    """A CPU generator whose seed is the next number of the device's sequence."""
    seed, offset = philox_of(generator, index).take(1)
    mixed = (seed * 0x9E3779B97F4A7C15 + offset * 0xD1B54A32D192ED03 + 1) % 2**64
    return torch.Generator("cpu").manual_seed(mixed)


@handler("aten::randperm.generator_out", "aten::randperm.out")
def randperm_out(n: int, generator: Any = None, *, out: Tensor) -> Tensor:
    """A permutation of 0 .. n - 1, shuffled on the host: exactly uniform, the same for a seed on every chip."""
    if type(out) is not Tensor:
        raise NotOurs
    order = torch.randperm(
        n, generator=_host_generator(out._spec.device.index, generator), dtype=torch.int64, device="cpu"
    )
    if tuple(out.shape) != (n,):
        out.resize_(n)
    return out.copy_(order.to(out.dtype))  # type: ignore[return-value]


_library = torch.library.Library("torch_fl", "FRAGMENT")
_library.define("draw_indices(Tensor weights, int samples, Generator? generator) -> (Tensor, Tensor)")


@kernel("torch_fl::draw_indices", infer=False)
def draw_indices(b: Builder, weights: Ref, samples: int, generator: Any) -> None:
    """[rows, samples] indices in proportion to weights [rows, n], with replacement, and [rows] what is wrong."""
    rows, n = weights.shape
    index = b.new_out(0, (rows, samples), torch.int64)
    bad = b.new_out(1, (rows,), torch.int32)
    real = torch.float64 if b.fp64 else torch.float32
    sums = b.temp((rows, n), real)
    macros = {**b.types(T=weights.dtype), "LANES": 1, "WORDS": 1, "REAL": "double" if b.fp64 else "float"}
    text = _source("multinomial.c")
    b.launch(text, "running_sums", rows, [b.contiguous(weights), sums, bad, n], macros)
    seed, offset = draw_key(b, generator, rows * samples)
    b.launch(text, "draw_indices", rows * samples, [sums, index, n, samples, seed, offset], macros)


_DRAW_INDICES = torch.ops.torch_fl.draw_indices.default
_WRONG = (
    "probability tensor contains either `inf`, `nan` or element < 0",
    "invalid multinomial distribution (sum of probabilities <= 0)",
)


@handler("aten::multinomial")
def multinomial(self: Tensor, num_samples: int, replacement: bool = False, generator: Any = None) -> torch.Tensor:
    """Indices in proportion to the weights along the last dimension.

    Without replacement: the largest of weight / exponential noise, as torch does. Raises for invalid weights.
    """
    _check_multinomial(self, num_samples, replacement)
    rows = self if self.dim() == 2 else self.unsqueeze(0)
    if rows.shape[0] == 0:
        return self.new_empty((0, num_samples), dtype=torch.int64)
    several = not replacement and num_samples > 1
    index, bad = call(_DRAW_INDICES, (rows, 0 if several else num_samples, generator), {})
    worst = int(bad.cpu().max())
    _require(worst == 0, _WRONG[worst - 1])
    if several:
        noise = torch.empty_like(rows, dtype=torch.float32).exponential_(1, generator=generator)
        index = (rows / noise).topk(num_samples, dim=-1).indices
    return index if self.dim() == 2 else index.squeeze(0)  # type: ignore[no-any-return]


def _check_multinomial(self: torch.Tensor, num_samples: int, replacement: bool) -> None:
    _require(self.dim() in (1, 2), "prob_dist must be 1 or 2 dim")
    _require(
        self.dtype.is_floating_point,
        f"multinomial only supports floating-point dtypes for input, got: {self.dtype}",
    )
    _require(num_samples > 0, "cannot sample n_sample <= 0 samples")
    fits = replacement or num_samples <= self.shape[-1]
    _require(fits, "cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    _require(self.shape[-1] <= 2**24, "number of categories cannot exceed 2^24")
