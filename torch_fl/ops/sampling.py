"""Distributions whose parameters are tensors, and random indices: poisson, binomial, gamma, multinomial, randperm."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..dispatch import call
from ..errors import unsupported_dtype
from ..fallback import download
from ..kernels.pointwise import emit
from ..refs import Ref
from ..registry import handler, kernel
from ..resizing import resize_out
from ..runtime.random import philox_of
from ..schema import NotOurs
from ..tensor import Tensor
from .random import checked_std, draw_key, draw_real, fill_dense, number, random_source, require

_ATEN = torch.ops.aten


# -- parameters in tensors -----------------------------------------------------------------------------------------
@kernel("aten::normal.Tensor_float", "aten::normal.float_Tensor", "aten::normal.Tensor_Tensor")
def normal(b: Builder, mean: Any, std: Any, generator: Any) -> None:
    """Normal numbers scaled and shifted elementwise, broadcast."""
    out = b.out()
    work = torch.float64 if out.dtype == torch.float64 else torch.float32
    noise = b.temp(out.shape, work)
    draw_real(b, noise, generator, {"AFTER(z)": "((z) * b + a)"}, 0.0, 1.0)
    given = {"mean": mean, "std": std if isinstance(std, Ref) else checked_std("normal", std)}
    tensors = {"z": noise} | {n: v for n, v in given.items() if isinstance(v, Ref)}
    numbers = {n: number(v) for n, v in given.items() if not isinstance(v, Ref)}
    emit(b, {"o": (out, "z * std + mean")}, tensors, numbers, work)


def _sample(b: Builder, function: str, target: Ref, p: Ref, q: Ref, generator: Any) -> None:
    dtype = target.dtype
    if not dtype.is_floating_point:
        raise unsupported_dtype(dtype)
    first, second = (b.contiguous(b.cast(r.expand(target.shape), dtype)) for r in (p, q))
    macros = {**b.types(T=dtype), "LANES": 1, "WORDS": 1, "SAMPLE": function, "REAL": "double" if b.fp64 else "float"}

    def write(dense: Ref) -> None:
        items, chunk = b.split(dense.numel, 256)
        seed, offset = draw_key(b, generator, dense.numel)
        args: list[Any] = [first, second, dense, dense.numel, chunk, seed, offset]
        b.launch(random_source("samplers.c"), "sample", items, args, macros)

    fill_dense(b, target, write)


@kernel("aten::poisson")
def poisson(b: Builder, self: Ref, generator: Any) -> None:
    """Poisson counts with the rates in self; NaN for a negative rate."""
    _sample(b, "sample_poisson", b.out(), self, self, generator)


@kernel("aten::binomial", infer=False)
def binomial(b: Builder, count: Ref, prob: Ref, generator: Any) -> None:
    """Successes of `count` trials of chance `prob`; NaN outside their ranges."""
    shape = torch.broadcast_shapes(count.shape, prob.shape)
    out = b.new_out(0, shape, torch.promote_types(count.dtype, prob.dtype))
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
    resize_out(out, (n,))
    return out.copy_(order.to(out.dtype))  # type: ignore[return-value]


_library: Any = torch.library.Library("torch_fl", "FRAGMENT")
_library.define("draw_indices(Tensor weights, int samples, Generator? generator) -> (Tensor, Tensor)")


@kernel("torch_fl::draw_indices", infer=False)
def draw_indices(b: Builder, weights: Ref, samples: int, generator: Any) -> None:
    """[..., samples] indices in proportion to weights [..., n], with replacement, and per row what is wrong."""
    n = weights.shape[-1]
    rows = weights.numel // n if n else 0
    index = b.new_out(0, (*weights.shape[:-1], samples), torch.int64)
    bad = b.new_out(1, (rows,), torch.int32)
    real = torch.float64 if b.fp64 else torch.float32
    sums = b.temp((rows, n), real)
    macros = {**b.types(T=weights.dtype), "LANES": 1, "WORDS": 1, "REAL": "double" if b.fp64 else "float"}
    text = random_source("multinomial.c")
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
    several = not replacement and num_samples > 1
    index, bad = call(_DRAW_INDICES, (self, 0 if several else num_samples, generator), {})
    if bad.numel():
        worst = int(download(bad).max())
        require(worst == 0, _WRONG[worst - 1])
    if several:
        noise = torch.empty_like(self, dtype=torch.float32).exponential_(1, generator=generator)
        index = (self / noise).topk(num_samples, dim=-1).indices
    return index  # type: ignore[no-any-return]


def _check_multinomial(self: torch.Tensor, num_samples: int, replacement: bool) -> None:
    require(self.dim() in (1, 2), "prob_dist must be 1 or 2 dim")
    require(
        self.dtype.is_floating_point,
        f"multinomial only supports floating-point dtypes for input, got: {self.dtype}",
    )
    require(num_samples > 0, "cannot sample n_sample <= 0 samples")
    fits = replacement or num_samples <= self.shape[-1]
    require(fits, "cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    require(self.shape[-1] <= 2**24, "number of categories cannot exceed 2^24")
