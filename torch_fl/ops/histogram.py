"""torch.histogram and histogramdd: elements counted in bins of one or several dimensions.

Composed of other ops, as histc: edges, places among them by binary search, one scatter of the weights. Bins are half
open but for the last one; what lies outside, and NaN, counts nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..registry import handler
from ..resizing import resize_out
from ..tensor import Tensor
from .random import require

_ATEN = torch.ops.aten
_C_NAMES = {torch.float32: "float", torch.float64: "double", torch.int32: "int", torch.int64: "long int"}


def _check(points: torch.Tensor, weight: torch.Tensor | None) -> None:
    if points.dtype not in (torch.float32, torch.float64):
        name = {torch.float16: "Half", torch.bfloat16: "BFloat16"}.get(points.dtype, str(points.dtype))
        raise NotImplementedError(f"\"histogramdd\" not implemented for '{name}'")
    if weight is None:
        return
    require(weight.dtype == points.dtype, "torch.histogramdd: if weight tensor is provided, input tensor and weight "
            f"tensor should have the same dtype, but got input {points.dtype}, and weight {weight.dtype}")  # fmt: skip
    require(weight.shape == points.shape[:-1], "torch.histogramdd: if weight tensor is provided it should have the "
            "same shape as the input tensor excluding its innermost dimension, but got input with shape "
            f"{list(points.shape)} and weight with shape {list(weight.shape)}")  # fmt: skip


def _ranges(points: torch.Tensor, given: Sequence[float] | None) -> list[tuple[float, float]]:
    """(low, high) of each dimension: given, or the data's own, widened where it is a single number."""
    dims = points.shape[-1]
    if given is not None:
        require(len(given) == 2 * dims, f"torch.histogramdd: for a {dims}-dimensional histogram range should have "
                f"{2 * dims} elements, but got {len(given)}")  # fmt: skip
        found = [(float(given[2 * d]), float(given[2 * d + 1])) for d in range(dims)]
    elif not points.numel():
        found = [(0.0, 1.0)] * dims
    else:
        flat = points.reshape(-1, dims)
        found = list(zip(_ATEN.amin.default(flat, [0]).tolist(), _ATEN.amax.default(flat, [0]).tolist()))
    for d, (low, high) in enumerate(found):
        require(math.isfinite(low) and math.isfinite(high),
                f"torch.histogramdd: dimension {d}'s range [{low:g}, {high:g}] is not finite")  # fmt: skip
        require(low <= high, "torch.histogramdd: min should not exceed max, but got "
                f"min {low:g} max {high:g} for dimension {d}")  # fmt: skip
    return [(low - 0.5, high + 0.5) if low == high else (low, high) for low, high in found]


def _edges(points: torch.Tensor, bins: Sequence[int], given: Sequence[float] | None) -> list[torch.Tensor]:
    dims = points.shape[-1]
    require(len(bins) == dims, f"histogramdd: The size of bins must be equal to the innermost dimension of the input: "
            f"{dims}, but got {len(bins)}")  # fmt: skip
    for d, n in enumerate(bins):
        require(n > 0, f"torch.histogram(): bins must be > 0, but got {n} for dimension {d}")
    options: Any = {"dtype": points.dtype, "device": points.device}
    ranges = _ranges(points, given)
    return [torch.linspace(low, high, n + 1, **options) for n, (low, high) in zip(bins, ranges)]


def _check_edges(points: torch.Tensor, edges: Sequence[torch.Tensor]) -> None:
    dims = points.shape[-1]
    require(len(edges) == dims, f"torch.histogramdd: expected {dims} sequences of bin edges for a {dims}-dimensional "
            f"histogram but got {len(edges)}")  # fmt: skip
    for d, e in enumerate(edges):
        require(e.dim() == 1, "torch.histogramdd: bins tensor should have one dimension, but got "
                f"{e.dim()} dimensions in the bins tensor for dimension {d}")  # fmt: skip
        require(e.dtype == points.dtype, "torch.histogramdd: input tensor and bins tensors should have the same dtype, "
                f"but got input with dtype {points.dtype} and bins for dimension {d} with dtype {e.dtype}")  # fmt: skip
        require(e.numel() > 0, "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in "
                f"the bins tensor for dimension {d}")  # fmt: skip


def _count(
    points: torch.Tensor, edges: Sequence[torch.Tensor], weight: torch.Tensor | None, density: bool
) -> torch.Tensor:
    """Weights of points [..., D] summed by bin: one dimension for each list of edges."""
    _check(points, weight)
    flat = points.reshape(-1, points.shape[-1])
    shape = [e.numel() - 1 for e in edges]
    total = math.prod(shape)
    place, inside = torch.zeros(flat.shape[0], dtype=torch.int64, device=flat.device), None
    for d, e in enumerate(edges):
        column, last = flat[:, d].contiguous(), e[-1]
        found = (_ATEN.searchsorted.Tensor(e, column, right=True) - 1).clamp(max=max(0, shape[d] - 1))
        within = (column >= e[0]) & (column <= last)
        place = place * shape[d] + found
        inside = within if inside is None else inside & within
    if inside is not None:
        place = _ATEN.where.ScalarOther(inside, place, total)
    source = torch.ones_like(flat[:, 0]) if weight is None else weight.reshape(-1)
    counts = torch.zeros(total + 1, dtype=flat.dtype, device=flat.device)
    hist = _ATEN.scatter_add.default(counts, 0, place, source)[:total].reshape(shape)
    return _dense(hist, edges) if density else hist.clone()


def _dense(hist: torch.Tensor, edges: Sequence[torch.Tensor]) -> torch.Tensor:
    """Counts as a density: divided by their sum and by the volume of each bin."""
    hist = hist / hist.sum()
    for d, e in enumerate(edges):
        hist = hist / e.diff().view([-1 if k == d else 1 for k in range(hist.dim())])
    return hist


def _column(tensor: torch.Tensor, weight: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    return tensor.reshape(-1, 1), None if weight is None else weight.reshape(-1)


@handler("aten::histogram.bin_ct")
def histogram(
    self: Tensor, bins: int = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> Any:  # fmt: skip
    """(counts, edges) of equal bins over a range (default: the data's own; waits for the device to read it)."""
    points, factors = _column(self, weight)
    _check(points, factors)
    edges = _edges(points, [bins], range)
    return _count(points, edges, factors, density), edges[0]


@handler("aten::histogram.bins_tensor")
def histogram_of_edges(self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> Any:
    """(counts, edges) of bins between given edges, which must rise."""
    points, factors = _column(self, weight)
    _check_edges(points, [bins])
    return _count(points, [bins], factors, density), bins.clone()


@handler("aten::histogram.bin_ct_out", "aten::histogram.bins_tensor_out")
def histogram_out(self: Tensor, bins: Any = 100, *, hist: Tensor, bin_edges: Tensor, **options: Any) -> Any:
    """The same, written into two tensors."""
    function = histogram_of_edges if isinstance(bins, torch.Tensor) else histogram
    for name, target, where in (("hist", hist, ""), ("bin_edges", bin_edges, " for dimension 0")):
        kinds = [_C_NAMES.get(t.dtype, str(t.dtype)) for t in (self, target)]
        require(kinds[0] == kinds[1], f"torch.histogram: input tensor and {name} tensor should have the same dtype, "
                f"but got input {kinds[0]} and {name} {kinds[1]}{where}")  # fmt: skip
    for target, found in zip((hist, bin_edges), function(self, bins, **options)):
        resize_out(target, found.shape)
        target.copy_(found)
    return hist, bin_edges


@handler("aten::_histogramdd_bin_edges")
def histogramdd_edges(
    self: Tensor, bins: Sequence[int], *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> Any:  # fmt: skip
    """The edges of equal bins of each of the D dimensions of points [..., D]."""
    _check(self, weight)
    return _edges(self, bins, range)


@handler("aten::_histogramdd_from_bin_cts")
def histogramdd(
    self: Tensor, bins: Sequence[int], *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Counts of points [..., D] in equal bins."""
    _check(self, weight)
    return _count(self, _edges(self, bins, range), weight, density)


@handler("aten::_histogramdd_from_bin_tensors")
def histogramdd_of_edges(
    self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> torch.Tensor:
    """Counts of points [..., D] in bins between given edges."""
    _check_edges(self, bins)
    return _count(self, bins, weight, density)
